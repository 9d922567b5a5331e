//! `adjutant init`: makes a project ready for Claude Code, and touches nothing else there.
//!
//! Everything is worked out before anything is written, so a file that is not as it must be leaves
//! the project as it was.

mod changes;
mod command;
mod json_text;
mod merge;
mod section;

pub(super) use command::{renew_section, run};
