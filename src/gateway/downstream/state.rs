//! In which state a server is, and what people are told of it.
//!
//! ```text
//! idle ──first call──▶ connecting ──▶ ready ──dies after it worked──▶ idle
//!                          │            └──dies before it worked──┐
//!                          └──fails──▶ failed (until the next try) ◀┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::connection::Connection;
use super::error::GatewayError;
use super::sign_in::{Keeper, SignInNeeded, Stamp};
use crate::base::Timestamp;

/// The state itself, with what belongs to it.
#[derive(Clone)]
pub(super) enum Phase {
    /// Not started, or over: then with how it ended.
    Idle {
        ended: Option<String>,
    },
    Connecting,
    Ready {
        connection: Arc<Connection>,
        since: Timestamp,
        failures: Backoff,
    },
    Failed {
        reason: String,
        backoff: Backoff,
        at: Timestamp,
        sign_in: Option<Waiting>,
    },
}

/// A server that waits for a person; tried again as soon as one has signed in.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) needed: SignInNeeded,
    pub(super) keeper: Arc<Keeper>,
    pub(super) seen: Option<Stamp>,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.keeper.stamp() != self.seen
    }
}

impl Phase {
    /// How long a failed server is left alone; `None` where it is to be tried.
    pub(super) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Failed { backoff, sign_in, .. }
                if !sign_in.as_ref().is_some_and(Waiting::is_over) =>
            {
                backoff.remaining(Instant::now())
            }
            _ => None,
        }
    }

    pub(super) fn failure(&self, server: &str) -> Option<GatewayError> {
        let retry_in = self.pause()?;
        match self {
            Self::Failed { sign_in: Some(waiting), .. } => {
                Some(GatewayError::sign_in(server, waiting.needed.clone()))
            }
            Self::Failed { reason, .. } => Some(GatewayError::ServerUnavailable {
                server: server.to_owned(),
                reason: reason.clone(),
                retry_in: Some(retry_in),
            }),
            Self::Idle { .. } | Self::Connecting | Self::Ready { .. } => None,
        }
    }

    /// Its state, for people.
    pub(super) fn state(&self, restarts: u64) -> ServerState {
        let plain =
            |state| ServerState { state, since: None, reason: None, retry_in_ms: None, restarts };
        match self {
            Self::Idle { ended } => ServerState { reason: ended.clone(), ..plain("idle") },
            Self::Connecting => plain("connecting"),
            Self::Ready { since, .. } => ServerState { since: Some(*since), ..plain("connected") },
            Self::Failed { reason, backoff, at, sign_in } => ServerState {
                since: Some(*at),
                reason: Some(match sign_in {
                    Some(waiting) => format!("{reason}; run `{}`", waiting.needed.command),
                    None => reason.clone(),
                }),
                retry_in_ms: backoff
                    .remaining(Instant::now())
                    .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                ..plain("failed")
            },
        }
    }
}

/// A server's state, for people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ServerState {
    /// `idle`, `connecting`, `connected` or `failed`.
    pub state: &'static str,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// Why it failed, or how it last ended.
    pub reason: Option<String>,
    /// Milliseconds until it is tried again.
    pub retry_in_ms: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
}
