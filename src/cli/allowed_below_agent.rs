//! Rejects commands below a subagent if they act for a caller or change the project.
//!
//! An agent has only the permissions that its file grants. These commands would let it gain others: act as another
//! caller, use servers as another agent, or change the grants. Each command declares its [`CommandAccess`].
//!
//! The hidden commands `__keep`, `__exec` and `__stand-in-claude` declare none. They start the programs that
//! their caller names, with the permissions of the caller, so they add nothing to the agent's shell.

use super::args::Command;
use super::command::CommandAccess;
use super::exit_status::ExitStatus;
use super::output;
use crate::process::ancestor_agent;

/// Rejects a command that acts or changes something if an agent started this process.
///
/// The command is also rejected if its ancestors cannot be determined.
pub(crate) fn refuse_below_agent(command: &Command) -> Option<ExitStatus> {
    if command.command().access() == CommandAccess::ReadsOnly {
        return None;
    }
    match ancestor_agent() {
        Ok(None) => return None,
        Ok(Some(agent)) => output::print_error(format_args!(
            "this command was started by the subagent `{agent}`: subagents cannot delegate, act for other callers or \
             change the project; let the main agent or a person run it"
        )),
        Err(error) => output::print_error(format_args!(
            "it cannot be determined whether a subagent started this command ({error}): it needs a mounted /proc"
        )),
    }
    // Claude Code takes exit code 2 from a hook as "block this call".
    Some(if matches!(command, Command::Hook(_)) { ExitStatus::Success } else { ExitStatus::Usage })
}
