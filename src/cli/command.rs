//! A command of the command line: its arguments, its permission below an agent, its work.

use super::exit_status::ExitStatus;
use crate::config::Settings;

/// Implemented by the arguments of every command, in the file of the command.
pub(crate) trait CliCommand {
    /// Effect of the command, which decides whether a subagent may run it.
    fn access(&self) -> CommandAccess;

    /// Runs the command and returns its exit status. Output goes through [`super::output`].
    fn run(&self, settings: &Settings) -> ExitStatus;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandAccess {
    /// Reads the project, and starts at most `claude --help`.
    ReadsOnly,
    /// Acts for a caller, starts servers, or changes the project or the user's settings.
    ActsOrChanges,
}
