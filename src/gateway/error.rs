//! What can go wrong between an agent and a server, each with its code and a way out.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::files::RulesGap;
use super::sign_in::SignInNeeded;
use crate::base::{one_line, shorten};
use crate::identity::Doubt;
use crate::policy::ChainError;

/// Why a request to the gateway was refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GatewayError {
    /// A rule, or the absence of one, says no. The sentence is the one `explain` and the audit say.
    #[error("{sentence}")]
    DeniedByPolicy {
        /// Who, what and by which rule.
        sentence: String,
    },
    /// No agent could be found for the call.
    #[error(transparent)]
    Agent(#[from] ChainError),
    /// There are no rules, so there are no agents.
    #[error(transparent)]
    NoRules(#[from] RulesGap),
    /// The `agent_id` contradicts what is known for certain.
    #[error("this call comes from {known}, not from `{}`", name(claimed))]
    IdentityMismatch {
        /// Who it is.
        known: String,
        /// Who it says it is.
        claimed: String,
    },
    /// What is attested about this call cannot be relied upon.
    #[error(transparent)]
    Doubtful(#[from] Doubt),
    /// Nothing attests who calls, and the house wants that.
    #[error(
        "nothing attests who is calling, and `identity: required` in agents/defaults.yaml refuses that"
    )]
    NotAttested,
    /// The server cannot be reached now.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    ServerUnavailable {
        /// Its name.
        server: String,
        /// Why, with the end of its stderr where there is one.
        reason: String,
        /// How long until it is tried again.
        retry_in: Option<Duration>,
    },
    /// The server is not behind the gateway, and waiting will not change that.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    NotServed {
        /// Its name.
        server: String,
        /// Why.
        reason: String,
        /// What to do.
        way_out: &'static str,
    },
    /// A person has to sign in to the server.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    SignInNeeded {
        /// Its name.
        server: String,
        /// Why.
        reason: String,
        /// What the person types.
        command: String,
    },
    /// The server has no such tool, or none that this agent may see.
    #[error("server `{}` has no tool `{}`{}", name(server), name(tool), near_text(near))]
    ToolNotFound {
        /// The server.
        server: String,
        /// What was asked for.
        tool: String,
        /// What the agent may have meant; only names it may see.
        near: Vec<String>,
    },
    /// No server that this agent may use has this resource or prompt.
    #[error("no server that you may use has the {}", name(what))]
    NotOffered {
        /// Its kind and name.
        what: String,
    },
    /// The tool's definition changed and nobody has accepted it yet.
    #[error(
        "tool `{}` of server `{}` is withheld: its definition changed",
        name(tool),
        name(server)
    )]
    ToolWithheld {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// The deadline passed; the server was told to stop.
    #[error("server `{}` did not answer within {} ms", name(server), after.as_millis())]
    Timeout {
        /// The server.
        server: String,
        /// The deadline.
        after: Duration,
    },
    /// The caller took the call back.
    #[error("the call was cancelled")]
    Cancelled,
    /// An argument is missing or of the wrong kind.
    #[error("{sentence}")]
    InvalidArgument {
        /// Which and why.
        sentence: String,
    },
    /// The audit log cannot be written, so nothing is done.
    #[error("the audit log cannot be written: {reason}")]
    AuditUnavailable {
        /// Why.
        reason: String,
    },
    /// The server answered with a protocol error; it is passed on as it is.
    #[error("{message}")]
    Downstream {
        /// The JSON-RPC code.
        code: i32,
        /// The server's message.
        message: String,
        /// What came with it.
        data: Option<Value>,
    },
    /// `.mcp.json` does not parse.
    #[error("the list of servers cannot be read: line {line}: {reason}")]
    InvalidServers {
        /// Where, counted from one.
        line: u32,
        /// Why.
        reason: String,
    },
    /// The pins of tool definitions cannot be read or written.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Pins {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl GatewayError {
    /// What the audit log says of it. The words of a server may hold what it was called with, which the log keeps only
    /// where that is wanted.
    pub(super) fn sentence_for_the_log(&self) -> String {
        match self {
            Self::Downstream { code, .. } => format!("the server answered with the error {code}"),
            other => other.to_string(),
        }
    }

    /// The code that programs look for.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DeniedByPolicy { .. } | Self::ToolWithheld { .. } | Self::Pins { .. } => {
                "DENIED_BY_POLICY"
            }
            Self::Agent(error) => error.code(),
            Self::NoRules(_) => "INVALID_AGENT_ID",
            Self::IdentityMismatch { .. } | Self::Doubtful(_) => "IDENTITY_MISMATCH",
            Self::NotAttested => "CALLER_NOT_ALLOWED",
            Self::ServerUnavailable { .. }
            | Self::NotServed { .. }
            | Self::SignInNeeded { .. }
            | Self::InvalidServers { .. } => "SERVER_UNAVAILABLE",
            Self::ToolNotFound { .. } => "TOOL_NOT_FOUND",
            Self::NotOffered { .. } => "NOT_FOUND",
            Self::Timeout { .. } => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::InvalidArgument { .. } => "INVALID_ARGUMENT",
            Self::AuditUnavailable { .. } => "AUDIT_UNAVAILABLE",
            Self::Downstream { .. } => "DOWNSTREAM_ERROR",
        }
    }

    /// `CODE: sentence. What to do.`, as the caller reads it.
    pub fn text(&self) -> String {
        let sentence = self.to_string();
        let stop = if sentence.ends_with(['.', '?', '!']) { "" } else { "." };
        let text = format!("{}: {sentence}{stop} {}", self.code(), self.way_out());
        text.trim_end().to_owned()
    }

    /// What to do.
    pub fn way_out(&self) -> String {
        match self {
            Self::DeniedByPolicy { .. } => {
                "Call list_servers and get_server_tools to see what is allowed.".to_owned()
            }
            // These sentences end with their own way out.
            Self::Agent(_) => String::new(),
            Self::NoRules(gap) => gap.way_out().to_owned(),
            Self::IdentityMismatch { .. } => "Leave agent_id out.".to_owned(),
            Self::Doubtful(_) => "Call it again.".to_owned(),
            Self::NotAttested => {
                "A person can run `adjutant init`, which installs the hooks that attest it."
                    .to_owned()
            }
            Self::ServerUnavailable { retry_in: Some(wait), .. } => {
                format!("It is tried again in {} s.", wait.as_secs_f64().ceil().max(1.0))
            }
            Self::ServerUnavailable { .. } | Self::InvalidServers { .. } => {
                "Call again later; `adjutant doctor` says more.".to_owned()
            }
            Self::NotServed { way_out, .. } => (*way_out).to_owned(),
            Self::SignInNeeded { command, .. } => format!("A person must run `{command}`."),
            Self::ToolNotFound { .. } => "Call get_server_tools to see its tools.".to_owned(),
            Self::NotOffered { .. } => "List them to see what there is.".to_owned(),
            Self::ToolWithheld { server, .. } => {
                format!("A person must look at it and run `adjutant trust {}`.", name(server))
            }
            Self::Timeout { .. } => "Pass a larger timeout_ms, or ask for less.".to_owned(),
            Self::Cancelled => "Nothing is left to do.".to_owned(),
            Self::InvalidArgument { .. } => "Correct the arguments.".to_owned(),
            Self::AuditUnavailable { .. } | Self::Pins { .. } => {
                "A person must make the file writable.".to_owned()
            }
            Self::Downstream { .. } => "The server said so itself.".to_owned(),
        }
    }

    pub(super) fn sign_in(server: &str, needed: SignInNeeded) -> Self {
        let SignInNeeded { reason, command } = needed;
        Self::SignInNeeded { server: server.to_owned(), reason, command }
    }

    /// A server's result is no JSON that can be taken apart.
    pub fn unreadable(server: &str, error: &serde_json::Error) -> Self {
        Self::unavailable(server, format!("its answer cannot be read: {error}"))
    }

    /// The same; where the time was over, with the whole of what was allowed.
    pub(super) fn within(self, allowed: Duration) -> Self {
        match self {
            Self::Timeout { server, .. } => Self::Timeout { server, after: allowed },
            other => other,
        }
    }

    /// No server has this name; `near` is one that the caller may see and may have meant.
    pub(super) fn no_such_server(server: &str, near: Option<&str>) -> Self {
        let hint = near.map(|near| format!("; is `{}` meant?", name(near))).unwrap_or_default();
        Self::NotServed {
            server: server.to_owned(),
            reason: format!("there is no such server{hint}"),
            way_out: "Call list_servers to see which there are.",
        }
    }

    /// Its entry is left out.
    pub(super) fn left_out(server: &str, why: &str) -> Self {
        Self::NotServed {
            server: server.to_owned(),
            reason: why.to_owned(),
            way_out: "Call list_servers to see which there are; only a person can change that.",
        }
    }

    /// Its entry makes no sense.
    pub(super) fn unusable(server: &str, reason: &str) -> Self {
        Self::NotServed {
            server: server.to_owned(),
            reason: reason.to_owned(),
            way_out: "A person must mend its entry; `adjutant doctor` says more.",
        }
    }

    pub(super) fn unavailable(server: &str, reason: impl Into<String>) -> Self {
        Self::ServerUnavailable { server: server.to_owned(), reason: reason.into(), retry_in: None }
    }
}

/// A name as it can stand in a sentence: callers and servers choose their own, and must not forge a line with it.
fn name(given: &str) -> String {
    one_line(&shorten(given, 256))
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let near: Vec<String> = near.iter().map(|near| name(near)).collect();
    format!("; is `{}` meant?", near.join("` or `"))
}
