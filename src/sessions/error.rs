//! What can go wrong with a conversation.

use std::time::Duration;

use super::name::ConversationName;
use super::queue::Holder;
use crate::base::{LockBusy, ReadRefused};

/// Why a conversation cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Somebody else is using it, and did not finish in time.
    #[error("the conversation `{name}` is in use by {holder}")]
    Busy {
        /// Which conversation.
        name: ConversationName,
        /// Who has it.
        holder: Holder,
        /// How long this call waited for it.
        waited: Duration,
    },
    /// A second fresh start was asked for in one call.
    #[error("the conversation `{name}` was already started anew in this call")]
    AlreadyRestarted {
        /// Which conversation.
        name: ConversationName,
    },
    /// The store does not have it.
    #[error("there is no conversation `{name}`; `adjutant sessions list` shows those there are")]
    Unknown {
        /// What was asked for.
        name: ConversationName,
    },
    /// A change could not be written down.
    #[error("the conversations could not be saved")]
    NotSaved(#[source] NotSaved),
}

/// Why the store could not be written. It is said in a note; no call fails because of it.
#[derive(Debug, thiserror::Error)]
pub enum NotSaved {
    /// A newer Adjutant wrote it.
    #[error(
        "`sessions.json` has format {found}, written by a newer Adjutant, and is left as it is"
    )]
    NewerFormat {
        /// Its number.
        found: u64,
    },
    /// What is damaged could not be set aside, so nothing may be written over it.
    #[error("the damaged `{file}` could not be set aside")]
    DamagedInPlace {
        /// Which file.
        file: String,
    },
    /// It could not be read.
    #[error("`sessions.json` could not be read")]
    Unreadable(#[source] ReadRefused),
    /// Another process holds the store.
    #[error("the lock on the conversations could not be had")]
    Lock(#[from] LockBusy),
    /// The system said no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
