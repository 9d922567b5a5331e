//! Exit codes, the same for every command.

use std::process::ExitCode;

/// How a command ended, as a shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0: done, allowed, nothing wrong.
    Success,
    /// 1: the answer is no: something is wrong, denied or failed, and it was said.
    Failure,
    /// 2: the question could not be asked: wrong usage, no such project, cannot say.
    Usage,
    /// What `adjutant run` makes of a report: see `Code::exit_code`.
    Code(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::Code(code) => Self::from(code),
        }
    }
}
