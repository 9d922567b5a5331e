//! Conversations that go on, kept safe: which one a call continues, who has it now, what it has cost.
//!
//! `data/sessions.json` is the store, `data/sessions.journal` what has not been folded into it yet, and
//! `data/leases/` says who is using which conversation. Nothing here starts a process or reads an agent file.

#[path = "session.rs"]
mod conversation;
#[path = "resume.rs"]
mod decide;
mod error;
mod examine;
#[path = "table.rs"]
mod file;
mod journal;
mod lease;
#[path = "session_name.rs"]
mod name;
mod queue;
mod salvage;
mod shelf;
mod store;
mod transcript;

pub use conversation::{Conversation, State};
pub use error::SessionError;
pub use file::store_schema;
pub use lease::{Begin, CompletedTurn, Lease, Start};
pub use name::{ConversationName, DEFAULT_KEY, InvalidSessionKey, SessionKey};
pub use queue::{Holder, Line};
pub use store::{Forgotten, Listed, Listing, SessionStore};
pub use transcript::{Exchange, Speaker, expected_transcript, last_exchanges, locate_transcript};
