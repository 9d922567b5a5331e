//! State machine of a downstream server, and its representation in the status.
//!
//! ```text
//! idle ──first call──▶ connecting ──▶ ready ──ends after a response──▶ idle
//!                          │            └──ends before a response──┐
//!                          └──fails──▶ failed (until next attempt) ◀┘
//! ```
//!
//! Any state can change to `Retired`, which is final, when the entry of the server is changed or removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::error::GatewayError;
use super::connection::DownstreamConnection;
use crate::gateway::oauth::{SignInNeeded, TokenSource};
use crate::store::FileVersion;
use crate::util::Timestamp;

const INITIAL_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_mins(1);

/// State of a server.
#[derive(Clone)]
pub(crate) enum ServerState {
    /// Not started, or ended after it worked; then with the reason.
    Idle {
        ended: Option<String>,
    },
    Connecting,
    Ready {
        connection: Arc<DownstreamConnection>,
        since: Timestamp,
        failures: Backoff,
    },
    Failed {
        reason: String,
        backoff: Backoff,
        at: Timestamp,
        sign_in: Option<SignInPending>,
    },
    /// Entry changed or removed. Never started again; running calls may still hold the connection.
    Retired,
}

/// A server that waits for a sign-in; retried as soon as the stored credentials change.
#[derive(Clone)]
pub(crate) struct SignInPending {
    pub(crate) needed: SignInNeeded,
    pub(crate) token_source: Arc<TokenSource>,
    pub(crate) seen_version: Option<FileVersion>,
}

impl SignInPending {
    fn has_changed(&self) -> bool {
        FileVersion::differs(self.token_source.version(), self.seen_version)
    }
}

impl ServerState {
    /// Returns the time until the next connection attempt; `None` if an attempt is due.
    pub(crate) fn remaining_delay(&self) -> Option<Duration> {
        match self {
            Self::Failed { backoff, sign_in, .. }
                if !sign_in.as_ref().is_some_and(SignInPending::has_changed) =>
            {
                backoff.remaining(Instant::now())
            }
            _ => None,
        }
    }

    pub(crate) fn failure(&self, server: &str) -> Option<GatewayError> {
        let retry_in = self.remaining_delay()?;
        match self {
            Self::Failed { sign_in: Some(waiting), .. } => {
                Some(GatewayError::sign_in_needed(server, waiting.needed.clone()))
            }
            Self::Failed { reason, .. } => Some(GatewayError::ServerUnavailable {
                server: server.to_owned(),
                reason: reason.clone(),
                retry_in: Some(retry_in),
            }),
            Self::Idle { .. } | Self::Connecting | Self::Ready { .. } | Self::Retired => None,
        }
    }

    /// Returns the state for the status. `restart_in` is the backoff of an eager server that ended.
    pub(crate) fn report(&self, restarts: u64, restart_in: Option<Duration>) -> ServerReport {
        let milliseconds = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let plain =
            |state| ServerReport { state, since: None, reason: None, retry_in_ms: None, restarts };
        match self {
            Self::Idle { ended } => ServerReport {
                reason: ended.clone(),
                retry_in_ms: restart_in.map(milliseconds),
                ..plain(if restart_in.is_some() { "failed" } else { "idle" })
            },
            Self::Connecting => plain("connecting"),
            Self::Retired => plain("idle"),
            Self::Ready { since, .. } => ServerReport { since: Some(*since), ..plain("connected") },
            Self::Failed { reason, backoff, at, sign_in } => ServerReport {
                since: Some(*at),
                reason: Some(match sign_in {
                    Some(waiting) => format!("{reason}; run `{}`", waiting.needed.command),
                    None => reason.clone(),
                }),
                retry_in_ms: backoff.remaining(Instant::now()).map(milliseconds),
                ..plain("failed")
            },
        }
    }
}

/// State of a server in the status.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ServerReport {
    /// `idle`, `connecting`, `connected` or `failed`.
    pub state: &'static str,
    /// Start of this state, if known.
    pub since: Option<Timestamp>,
    /// Reason of the failure or of the last end.
    pub reason: Option<String>,
    /// Time until the next attempt.
    pub retry_in_ms: Option<u64>,
    /// Number of starts after the first.
    pub restarts: u64,
}

/// Exponential backoff between attempts to start a broken server: 500 ms, doubling, at most 1 min.
///
/// Failures in a row and the earliest time of the next attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    next_attempt: Option<Instant>,
}

impl Backoff {
    /// Counts a failure and doubles the delay.
    pub(crate) fn record_failure(&mut self, now: Instant) {
        let doubled =
            INITIAL_DELAY.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        self.next_attempt = Some(now + doubled.min(MAX_DELAY));
    }

    /// Counts the end of a connection that worked and lasted for `lived`.
    ///
    /// A connection that lasted for [`MAX_DELAY`] was not part of a crash loop, so the count restarts.
    pub(crate) fn record_disconnect(&mut self, lived: Duration, now: Instant) {
        if lived >= MAX_DELAY {
            *self = Self::default();
        }
        self.record_failure(now);
    }

    /// Returns the time until the next attempt; `None` if an attempt is due.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.next_attempt
            .and_then(|next| next.checked_duration_since(now))
            .filter(|wait| !wait.is_zero())
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_one_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..40)
            .map(|_| {
                backoff.record_failure(now);
                backoff.remaining(now).unwrap().as_millis()
            })
            .collect();
        assert_eq!(waits[..4], [500, 1_000, 2_000, 4_000]);
        assert_eq!(waits[39], 60_000);
        assert_eq!(backoff.remaining(now + MAX_DELAY), None);
    }

    #[test]
    fn a_connection_that_lasted_one_minute_resets_the_delay() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let mut wait_after = |lived: Duration| {
            backoff.record_disconnect(lived, now);
            backoff.remaining(now).unwrap().as_millis()
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            [second, second, MAX_DELAY, second].map(&mut wait_after),
            [500, 1_000, 500, 1_000]
        );
    }
}
