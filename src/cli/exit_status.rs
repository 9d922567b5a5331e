//! Exit statuses of all commands: number, name and meaning.

use std::fmt::Write;
use std::process::ExitCode;

use crate::outcome::Code;

/// Exit status of a command. `--help` and `docs/command-line.md` have this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitStatus {
    Success,
    Failure,
    Usage,
    NotFound,
    Environment,
    LimitReached,
    OutputInvalid,
    TryAgain,
    Timeout,
    Cancelled,
}

impl ExitStatus {
    pub const ALL: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::NotFound,
        Self::Environment,
        Self::LimitReached,
        Self::OutputInvalid,
        Self::TryAgain,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// Returns number, name and meaning.
    const fn row(self) -> (u8, &'static str, &'static str) {
        match self {
            Self::Success => (0, "success", "done, allowed, nothing wrong"),
            Self::Failure => (1, "failure", "failed, denied, or errors found"),
            Self::Usage => (
                2,
                "usage",
                "wrong usage, no project, refused below an agent, or no answer possible",
            ),
            Self::NotFound => (3, "not found", "does not exist, or must not be called"),
            Self::Environment => {
                (4, "environment", "a program, server or file that is needed cannot be used")
            }
            Self::LimitReached => (5, "limit reached", "budget or turns used up"),
            Self::OutputInvalid => (6, "output invalid", "the answer does not fit its schema"),
            // EX_TEMPFAIL of sysexits.h.
            Self::TryAgain => (75, "try again", "busy: try again later"),
            // The exit status of `timeout`, and of a shell command ended by SIGINT.
            Self::Timeout => (124, "timeout", "not done in time"),
            Self::Cancelled => {
                (130, "cancelled", "cancelled by a person, the caller or a shutdown")
            }
        }
    }

    pub const fn number(self) -> u8 {
        self.row().0
    }

    pub const fn name(self) -> &'static str {
        self.row().1
    }

    pub const fn meaning(self) -> &'static str {
        self.row().2
    }

    /// Returns the exit status of a failed run.
    pub const fn of_run(code: Code) -> Self {
        match code {
            Code::ClaudeFailed => Self::Failure,
            Code::InvalidArgument => Self::Usage,
            Code::AgentNotFound
            | Code::AgentInvalid
            | Code::CallerNotAllowed
            | Code::IdentityMismatch => Self::NotFound,
            Code::SpawnFailed
            | Code::SandboxUnavailable
            | Code::ServerUnavailable
            | Code::AuditUnavailable
            | Code::StoreUnavailable => Self::Environment,
            Code::BudgetExceeded | Code::MaxTurns => Self::LimitReached,
            Code::OutputInvalid => Self::OutputInvalid,
            Code::SessionBusy | Code::TooManyRuns | Code::Interrupted => Self::TryAgain,
            Code::Timeout => Self::Timeout,
            Code::Cancelled => Self::Cancelled,
        }
    }

    pub(crate) const fn success_if(succeeded: bool) -> Self {
        if succeeded { Self::Success } else { Self::Failure }
    }

    /// Formats the table for `--help`.
    pub(crate) fn help() -> String {
        let mut text = "Exit codes:".to_owned();
        for (number, name, meaning) in Self::ALL.map(Self::row) {
            let _ = write!(text, "\n  {number:>3}  {name:<14}  {meaning}");
        }
        text
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        exit.number().into()
    }
}
