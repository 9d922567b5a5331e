//! Result codes of `run_subagent`, stable for programs.

use std::fmt;

use serde::{Serialize, Serializer};

/// Reason for a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    AgentNotFound,
    /// The agent's files have errors.
    AgentInvalid,
    /// The agent's `allowed_callers` do not include the caller.
    CallerNotAllowed,
    /// The caller claims another identity, or its identity cannot be verified.
    IdentityMismatch,
    /// An argument of the call is invalid.
    InvalidArgument,
    Timeout,
    /// Cancelled by the caller, a person or shutdown.
    Cancelled,
    /// Adjutant stopped the run because its sandbox no longer protected a control file.
    Interrupted,
    SpawnFailed,
    /// The agent's sandbox cannot be made; it is never started without one.
    SandboxUnavailable,
    /// An MCP server of the agent is unavailable.
    ServerUnavailable,
    /// `claude` ended without a successful result.
    ClaudeFailed,
    /// A budget of the call, the agent or the session is used up.
    BudgetExceeded,
    MaxTurns,
    /// The answer does not fulfil the output contract.
    OutputInvalid,
    /// Another run has the session.
    SessionBusy,
    /// The limits of running and waiting runs are reached.
    TooManyRuns,
    /// The audit log cannot be written, so no run was started.
    AuditUnavailable,
    StoreUnavailable,
}

impl Code {
    /// All codes, for documentation and tests.
    pub const ALL: [Self; 19] = [
        Self::AgentNotFound,
        Self::AgentInvalid,
        Self::CallerNotAllowed,
        Self::IdentityMismatch,
        Self::InvalidArgument,
        Self::Timeout,
        Self::Cancelled,
        Self::Interrupted,
        Self::SpawnFailed,
        Self::SandboxUnavailable,
        Self::ServerUnavailable,
        Self::ClaudeFailed,
        Self::BudgetExceeded,
        Self::MaxTurns,
        Self::OutputInvalid,
        Self::SessionBusy,
        Self::TooManyRuns,
        Self::AuditUnavailable,
        Self::StoreUnavailable,
    ];

    /// Returns the code as callers and logs see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::AgentInvalid => "AGENT_INVALID",
            Self::CallerNotAllowed => "CALLER_NOT_ALLOWED",
            Self::IdentityMismatch => "IDENTITY_MISMATCH",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::Interrupted => "INTERRUPTED",
            Self::SpawnFailed => "SPAWN_FAILED",
            Self::SandboxUnavailable => "SANDBOX_UNAVAILABLE",
            Self::ServerUnavailable => "SERVER_UNAVAILABLE",
            Self::ClaudeFailed => "CLAUDE_FAILED",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::MaxTurns => "MAX_TURNS",
            Self::OutputInvalid => "OUTPUT_INVALID",
            Self::SessionBusy => "SESSION_BUSY",
            Self::TooManyRuns => "TOO_MANY_RUNS",
            Self::AuditUnavailable => "AUDIT_UNAVAILABLE",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
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
