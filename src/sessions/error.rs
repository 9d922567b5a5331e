//! Errors of the session store.

use std::time::Duration;

use super::queue::TicketHolder;
use super::session_name::SessionName;
use crate::store::{JournalError, LockError};

/// Failure to lease, resume or forget a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another run or process holds the session, and did not release it in time.
    #[error("the conversation `{name}` is in use by {holder}")]
    Busy {
        /// Name of the session.
        name: SessionName,
        /// Current owner of the session.
        holder: TicketHolder,
        /// Time that this call waited.
        waited: Duration,
    },
    /// The session was started anew twice in one run.
    #[error("the conversation `{name}` was already started anew in this call")]
    AlreadyRestarted {
        /// Name of the session.
        name: SessionName,
    },
    /// The store exists but cannot be read, so the state of the session is unknown.
    #[error(transparent)]
    Unreadable(JournalError),
    /// The queue cannot be read, so another process could be using the session.
    #[error(
        "the queue of the conversation `{name}` cannot be read, so another call could be using it: {reason}"
    )]
    QueueUnavailable {
        /// Name of the session.
        name: SessionName,
        /// Error of `data/leases/`.
        #[source]
        reason: LockError,
    },
    /// A change could not be written. A run reports it as a note and does not fail.
    #[error("the conversations could not be saved")]
    NotSaved(#[source] JournalError),
}
