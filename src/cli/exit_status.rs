//! Exit status of all commands.

use std::process::ExitCode;

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

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        match exit {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::Failure => Self::from(1),
            ExitStatus::Usage => Self::from(2),
            ExitStatus::Code(code) => Self::from(code),
        }
    }
}
