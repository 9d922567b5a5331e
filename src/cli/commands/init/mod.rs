//! `adjutant init`: sets up a project for Claude Code and keeps all existing content.
//!
//! All changes are computed before the first write, so that an invalid file leaves the project unchanged.

mod changes;
mod command;
mod json_edit;
mod main_prompt_section;
mod merge;

pub(crate) use command::{InitArguments, refresh_section};
