//! `adjutant new AGENT`: a folder with a commented `agent.md` that passes `check`.

use std::fs;

use clap::Args;

use super::exit::Exit;
use super::{init, render};
use crate::base::{AgentName, write_project_file};
use crate::config::Settings;

/// What `new` must be told.
#[derive(Debug, Args)]
pub(super) struct NewArguments {
    /// The agent's name: letters, digits, `-`, `_` and `.`
    agent: String,
}

pub(super) fn run(settings: &Settings, arguments: &NewArguments) -> Exit {
    let name: AgentName = match arguments.agent.parse() {
        Ok(name) => name,
        Err(error) => {
            render::problem(format_args!("{error}; try something like `web-search`"));
            return Exit::Usage;
        }
    };
    let folder = settings.agents_dir().join(name.as_str());
    if fs::symlink_metadata(&folder).is_ok() {
        let shown = folder.strip_prefix(&settings.root).unwrap_or(&folder).display();
        render::problem(format_args!("`{shown}` is there already; nothing was changed"));
        return Exit::Failure;
    }
    match write_project_file(&folder.join("agent.md"), text(&name).as_bytes()) {
        Ok(()) => {
            render::data(format_args!("agents/{name}/agent.md"));
            init::renew_section(settings);
            render::talk(format_args!(
                "edit it, look at it with `adjutant show {name}`, try it with `adjutant run {name} \"…\"`"
            ));
            Exit::Success
        }
        Err(error) => {
            render::problem(format_args!("`agents/{name}/agent.md` cannot be written: {error}"));
            Exit::Failure
        }
    }
}

/// The commented file.
fn text(name: &AgentName) -> String {
    TEMPLATE.replace("{name}", name.as_str())
}

const TEMPLATE: &str = include_str!("../new_agent.md");
