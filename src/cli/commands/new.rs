//! `adjutant new AGENT`: creates a folder with a commented `agent.md` that passes `check`.

use std::fs;

use clap::Args;

use super::init;
use super::list::agent_object;
use crate::catalog::Snapshot;
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument, usage,
};
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

    #[command(flatten)]
    format: JsonArgument,
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
        let snapshot = Snapshot::load(settings);
        let agent = snapshot.get(name.as_str()).map(|entry| agent_object(entry, settings));
        init::refresh_section(settings);
        CommandReport::new(&agent)
            .data(format_args!("agents/{name}/agent.md"))
            .message(format_args!(
                "edit it, look at it with `adjutant show {name}`, try it with `adjutant run {name} \"…\"`"
            ))
            .print(self.format)
    }
}

const TEMPLATE: &str = include_str!("new_agent.md");
