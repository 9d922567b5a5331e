//! The spine: the steps of a call in order, top to bottom, and nothing else.

mod approval_scope;
mod approvals;
mod asking;
mod audit;
mod bridge;
mod budget;
mod converse;
mod credentials;
mod cut;
mod find;
mod go_on;
mod history;
mod judge;
mod open;
mod orchestrator;
mod outlet;
mod prepare;
mod preview;
mod program;
mod readiness;
mod recorder;
mod redact;
mod request;
mod start_up;
mod status;
mod steps;
mod wanted;

pub use asking::{Asker, Asking, CHOICES, Nobody, Question, Reply};
pub use credentials::{config_dir, credentials};
pub use orchestrator::Orchestrator;
pub use preview::{Preview, preview};
pub use program::{Program, Programs, locate};
pub use readiness::Readiness;
pub use request::{MAX_TEXT_BYTES, Request};
pub use status::{Status, StatusBoard};
