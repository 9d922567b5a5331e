//! `adjutant init`: makes a project ready for Claude Code, and touches nothing else there.
//!
//! Everything is worked out before anything is written, so a file that is not as it must be leaves
//! the project as it was.

#[path = "../commands/init/changes.rs"]
mod changes;
#[path = "../commands/init/command.rs"]
mod command;
#[path = "../commands/init/json_edit.rs"]
mod json_text;
#[path = "../commands/init/merge.rs"]
mod merge;
#[path = "../commands/init/main_prompt_section.rs"]
mod section;

pub(super) use command::{renew_section, run};
