//! Resumable sessions of agents: store, queue and leases.
//!
//! `data/sessions.json` is the snapshot, `data/sessions.journal` holds changes since, and `data/leases/` the queue of
//! each session. A session is used by at most one run at a time, across processes. Nothing here starts a process or
//! reads an agent file.

mod error;
mod lease;
mod queue;
mod resume;
mod salvage;
mod session;
mod session_name;
mod store;
mod table;
mod transcript;

pub use lease::{CompletedTurn, LeaseRequest};
pub use store::SessionStore;

pub(crate) use error::SessionError;
pub(crate) use lease::{SessionLease, StartMode};
pub(crate) use queue::{QueueWatch, TicketHolder};
pub(crate) use session::{Session, SessionState};
pub(crate) use session_name::{SessionKey, SessionName};
pub(crate) use store::ListedSession;
pub(crate) use table::store_schema;
pub(crate) use transcript::{
    Speaker, TranscriptMessage, adopt_transcript, expected_transcript, last_messages,
    transcripts_dir,
};
