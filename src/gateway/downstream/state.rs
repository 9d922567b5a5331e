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
use super::backoff::Backoff;
use super::connection::DownstreamConnection;
use crate::gateway::oauth::{SignInNeeded, TokenSource};
use crate::store::FileVersion;
use crate::util::Timestamp;

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
