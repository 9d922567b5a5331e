//! The codes of `run_subagent`: a word a program can act on.

use std::fmt;

use serde::{Serialize, Serializer};

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// No agent has that name.
    AgentNotFound,
    /// Its files are wrong.
    AgentInvalid,
    /// It does not take calls from this caller.
    CallerNotAllowed,
    /// The caller says that it is another one, or nobody can say who it is.
    IdentityMismatch,
    /// The call itself is wrong.
    InvalidArgument,
    /// The deadline passed.
    Timeout,
    /// Somebody ended it.
    Cancelled,
    /// `claude` could not be started.
    SpawnFailed,
    /// An MCP server it needs is not there.
    ServerUnavailable,
    /// `claude` ended without a good answer.
    ClaudeFailed,
    /// The money is spent.
    BudgetExceeded,
    /// The turns are used up.
    MaxTurns,
    /// The answer is not what was asked for.
    OutputInvalid,
    /// Another call has the conversation.
    SessionBusy,
    /// No room for another run.
    TooManyRuns,
}

impl Code {
    /// All of them, for documentation and tests.
    pub const ALL: [Self; 15] = [
        Self::AgentNotFound,
        Self::AgentInvalid,
        Self::CallerNotAllowed,
        Self::IdentityMismatch,
        Self::InvalidArgument,
        Self::Timeout,
        Self::Cancelled,
        Self::SpawnFailed,
        Self::ServerUnavailable,
        Self::ClaudeFailed,
        Self::BudgetExceeded,
        Self::MaxTurns,
        Self::OutputInvalid,
        Self::SessionBusy,
        Self::TooManyRuns,
    ];

    /// The word, as callers and logs see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::AgentInvalid => "AGENT_INVALID",
            Self::CallerNotAllowed => "CALLER_NOT_ALLOWED",
            Self::IdentityMismatch => "IDENTITY_MISMATCH",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::SpawnFailed => "SPAWN_FAILED",
            Self::ServerUnavailable => "SERVER_UNAVAILABLE",
            Self::ClaudeFailed => "CLAUDE_FAILED",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::MaxTurns => "MAX_TURNS",
            Self::OutputInvalid => "OUTPUT_INVALID",
            Self::SessionBusy => "SESSION_BUSY",
            Self::TooManyRuns => "TOO_MANY_RUNS",
        }
    }

    /// What `adjutant run` exits with.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::ClaudeFailed => 1,
            Self::InvalidArgument => 2,
            Self::AgentNotFound
            | Self::AgentInvalid
            | Self::CallerNotAllowed
            | Self::IdentityMismatch => 3,
            Self::SpawnFailed | Self::ServerUnavailable => 4,
            Self::BudgetExceeded | Self::MaxTurns => 5,
            Self::OutputInvalid => 6,
            // The system's word for «try again later».
            Self::SessionBusy | Self::TooManyRuns => 75,
            // What `timeout` and an interrupted shell command exit with.
            Self::Timeout => 124,
            Self::Cancelled => 130,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
