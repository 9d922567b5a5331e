//! `adjutant new AGENT`: creates a folder with a commented `agent.md` that passes `check`.

use std::fs;

use clap::Args;

use super::init;
use crate::cli::{CliCommand, CommandError, CommandResult, ErrorCode, ExitStatus, output, usage};
use crate::config::Settings;
use crate::store::write_project_file;
use crate::util::AgentName;

/// Make a folder for a new agent, with a commented agent.md
///
/// Nothing is overwritten; the list of subagents in agents/main/system-prompt.md is renewed where
/// there is one. Exit code 0; 1 if the folder is there already; 2 if the name cannot be used; 4 if the file cannot be written.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  adjutant new web-search")]
pub(crate) struct NewArguments {
    /// The agent's name: letters, digits, `-`, `_` and `.`
    agent: String,
}

impl CliCommand for NewArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let name: AgentName = self
            .agent
            .parse()
            .map_err(|error| usage(format_args!("{error}; try something like `web-search`")))?;
        let folder = settings.agents_dir().join(name.as_str());
        if fs::symlink_metadata(&folder).is_ok() {
            let shown = settings.relative(&folder);
            let message = format!("`{shown}` is there already; nothing was changed");
            return Err(CommandError::new(ErrorCode::AlreadyExists, message));
        }
        let text = TEMPLATE.replace("{name}", name.as_str());
        write_project_file(&folder.join("agent.md"), text.as_bytes()).map_err(|error| {
            let message = format!("`agents/{name}/agent.md` cannot be written: {error}");
            CommandError::new(ErrorCode::IoFailed, message)
        })?;
        output::print(format_args!("agents/{name}/agent.md"));
        init::refresh_section(settings);
        output::print_message(format_args!(
            "edit it, look at it with `adjutant show {name}`, try it with `adjutant run {name} \"…\"`"
        ));
        Ok(ExitStatus::Success)
    }
}

const TEMPLATE: &str = include_str!("new_agent.md");
