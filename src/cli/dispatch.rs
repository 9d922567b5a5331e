//! Entry point: parses the command line, rejects what a subagent may not do, and runs the command.

use std::process::ExitCode;

use clap::Parser;

use super::args::{CliArguments, Command, CommandAccess};
use super::commands::{demo, hook};
use super::{CommandError, CommandResult, ExitStatus, output};
use crate::config::Settings;
use crate::process::{ancestor_agent, run_hidden_command};

/// Runs the command of the command line, prints its error and returns its exit status.
pub fn main() -> ExitCode {
    if let Some(code) = run_hidden_command().or_else(demo::hidden_command) {
        return code;
    }
    let done = match hook::command_from_args() {
        Some(command) => refuse_below_agent(&command).map(|()| hook::handle()),
        None => run(&CliArguments::parse()),
    };
    let exit = done.unwrap_or_else(|error| {
        output::print_error(error.message);
        error.exit
    });
    exit.into()
}

fn run(arguments: &CliArguments) -> CommandResult {
    refuse_below_agent(&arguments.command)?;
    let root = arguments.root.as_deref();
    let settings = match arguments.command.needs_project() {
        true => Settings::resolve(root)?,
        false => Settings::resolve_or_current(root)?,
    };
    arguments.command.command().run(&settings)
}

/// Rejects a command that acts for a caller or changes something if an agent started this process.
///
/// An agent has only the permissions that its file grants. Such a command would let it gain others: act as another
/// caller, use servers as another agent, or change the grants. The command is also rejected if its ancestors cannot be
/// determined.
///
/// The hidden commands `__keep`, `__exec` and `__stand-in-claude` are not checked. They start the programs that
/// their caller names, with the permissions of the caller, so they add nothing to the agent's shell.
fn refuse_below_agent(command: &Command) -> Result<(), CommandError> {
    if command.access() == CommandAccess::ReadsOnly {
        return Ok(());
    }
    let message = match ancestor_agent() {
        Ok(None) => return Ok(()),
        Ok(Some(agent)) => format!(
            "this command was started by the subagent `{agent}`: subagents cannot delegate, act for other callers or \
             change the project; let the main agent or a person run it"
        ),
        Err(error) => format!(
            "it cannot be determined whether a subagent started this command ({error}): it needs a mounted /proc"
        ),
    };
    // Claude Code takes exit code 2 from a hook as "block this call".
    let is_hook = matches!(command, Command::Hook(_));
    Err(CommandError {
        message,
        exit: if is_hook { ExitStatus::Success } else { ExitStatus::Usage },
    })
}
