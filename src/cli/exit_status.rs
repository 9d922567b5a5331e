//! Outcome of a command: an exit status, or an error with its exit status.

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

use super::output::error_with_causes;
use crate::outcome::{Code, Failure};

/// Result of every command. `dispatch.rs` prints the error.
pub(crate) type CommandResult = Result<ExitStatus, CommandError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// 0: success, allowed, or no errors found.
    Success,
    /// 1: failed, denied, or errors found; the reason has been printed.
    Failure,
    /// 2: wrong usage, invalid project, or no answer can be given.
    Usage,
    /// Exit status of an error code in `run` and `plan`: see `Code::exit_code`.
    Code(u8),
}

/// Reason why a command has no result, on one line.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) message: String,
    pub(crate) exit: ExitStatus,
}

/// Returns an error with exit status 1.
pub(crate) fn failure(message: impl Display) -> CommandError {
    CommandError { message: message.to_string(), exit: ExitStatus::Failure }
}

/// Returns an error with exit status 2.
pub(crate) fn usage(message: impl Display) -> CommandError {
    CommandError { message: message.to_string(), exit: ExitStatus::Usage }
}

/// An error that is not converted explicitly is shown with its causes and has exit status 2.
impl<E: Error> From<E> for CommandError {
    fn from(error: E) -> Self {
        usage(error_with_causes(&error))
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self { message: failure.full_message(), exit: ExitStatus::of(failure.code) }
    }
}

impl ExitStatus {
    /// Returns the exit status of a failed run.
    pub(crate) fn of(code: Code) -> Self {
        Self::Code(code.exit_code())
    }

    pub(crate) fn success_if(succeeded: bool) -> Self {
        if succeeded { Self::Success } else { Self::Failure }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(match exit {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::Usage => 2,
            ExitStatus::Code(code) => code,
        })
    }
}
