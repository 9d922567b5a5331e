//! Errors of the gateway, each with a code and a help text.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::audit::AuditUnavailable;
use crate::gateway::config::NoRules;
use crate::gateway::oauth::SignInNeeded;
use crate::identity::AttestationError;
use crate::policy::FallbackError;
use crate::util::{nearest_names, one_line, shorten};

/// Reason why a gateway request was rejected or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GatewayError {
    /// Denied by a rule, or because no rule matches. Same message as in `explain` and the audit log.
    #[error("{sentence}")]
    DeniedByPolicy {
        /// Agent, server or tool, and rule.
        sentence: String,
    },
    /// The calling agent cannot be determined.
    #[error(transparent)]
    AgentNotResolved(#[from] FallbackError),
    /// No gateway rules are in force, so no agent is known.
    #[error(transparent)]
    NoRules(#[from] NoRules),
    /// The `agent_id` argument contradicts the verified identity.
    #[error("this call comes from {known}, not from `{}`", name(claimed))]
    IdentityMismatch {
        /// Verified identity.
        known: String,
        /// Claimed agent.
        claimed: String,
    },
    /// The attestation of this call is invalid.
    #[error(transparent)]
    InvalidAttestation(#[from] AttestationError),
    /// No attestation, and `identity: required` is set.
    #[error(
        "nothing attests who is calling, and `identity: required` in agents/defaults.yaml refuses that"
    )]
    NotAttested,
    /// The server is temporarily unavailable.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    ServerUnavailable {
        server: String,
        /// Cause, with the end of stderr if there is any.
        reason: String,
        /// Time until the next connection attempt.
        retry_in: Option<Duration>,
    },
    /// The server is not available through the gateway; a retry does not help.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    NotServed {
        server: String,
        reason: String,
        /// Advice for the caller.
        way_out: &'static str,
    },
    /// A person has to sign in to the server.
    #[error("server `{}` is unavailable: {reason}", name(server))]
    SignInNeeded {
        server: String,
        reason: String,
        /// Command to run.
        command: String,
    },
    /// The server has no such tool, or none that this agent may use.
    #[error("server `{}` has no tool `{}`{}", name(server), name(tool), near)]
    ToolNotFound {
        server: String,
        tool: String,
        /// End of the message with similar tool names; only those that the agent may use.
        near: String,
    },
    /// No server that this agent may use has this resource or prompt.
    #[error("no server that you may use has the {}", name(what))]
    FeatureNotFound {
        /// Kind and name.
        what: String,
    },
    /// The tool definition changed and is not trusted yet.
    #[error(
        "tool `{}` of server `{}` is withheld: its definition changed",
        name(tool),
        name(server)
    )]
    ToolBlockedByPin {
        server: String,
        /// Name as listed by the server.
        tool: String,
    },
    /// The deadline passed; the server was sent a cancellation.
    #[error("server `{}` did not answer within {} ms", name(server), after.as_millis())]
    Timeout {
        server: String,
        /// Timeout that was in effect.
        after: Duration,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// An argument is missing or invalid.
    #[error("{sentence}")]
    InvalidArgument {
        /// Argument and problem.
        sentence: String,
    },
    /// The audit log cannot be written, so the request is not executed.
    #[error("the audit log cannot be written: {reason}")]
    AuditUnavailable {
        /// Cause of the failed write.
        reason: String,
    },
    /// JSON-RPC error of the server, forwarded unchanged.
    #[error("{message}")]
    Downstream {
        code: i32,
        /// Message of the server; can contain arguments of the call.
        message: String,
        data: Option<Value>,
    },
    /// `.mcp.json` is invalid.
    #[error("the list of servers cannot be read: line {line}: {reason}")]
    InvalidServers {
        /// Line number, starting at 1.
        line: u32,
        reason: String,
    },
    /// `data/tool-pins.json` cannot be read or written.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Pins {
        path: PathBuf,
        /// I/O, lock or format error.
        reason: String,
    },
}

impl From<AuditUnavailable> for GatewayError {
    fn from(error: AuditUnavailable) -> Self {
        Self::AuditUnavailable { reason: error.reason }
    }
}

impl GatewayError {
    /// Returns the message for the audit log.
    ///
    /// Without the message of a server: it can contain the call's arguments, which are logged only if configured.
    pub(crate) fn audit_message(&self) -> String {
        match self {
            Self::Downstream { code, .. } => format!("the server answered with the error {code}"),
            other => other.to_string(),
        }
    }

    /// Returns the stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DeniedByPolicy { .. } | Self::ToolBlockedByPin { .. } => "DENIED_BY_POLICY",
            Self::AgentNotResolved(error) => error.code(),
            Self::NoRules(_) => "INVALID_AGENT_ID",
            Self::IdentityMismatch { .. } | Self::InvalidAttestation(_) => "IDENTITY_MISMATCH",
            Self::NotAttested => "CALLER_NOT_ALLOWED",
            Self::ServerUnavailable { .. }
            | Self::NotServed { .. }
            | Self::SignInNeeded { .. }
            | Self::InvalidServers { .. } => "SERVER_UNAVAILABLE",
            Self::ToolNotFound { .. } => "TOOL_NOT_FOUND",
            Self::FeatureNotFound { .. } => "NOT_FOUND",
            Self::Timeout { .. } => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::InvalidArgument { .. } => "INVALID_ARGUMENT",
            Self::AuditUnavailable { .. } => "AUDIT_UNAVAILABLE",
            Self::Pins { .. } => "STORE_UNAVAILABLE",
            Self::Downstream { .. } => "DOWNSTREAM_ERROR",
        }
    }

    /// Formats the error for the caller: `CODE: message. Help.`
    pub fn text(&self) -> String {
        let sentence = self.to_string();
        let stop = if sentence.ends_with(['.', '?', '!']) { "" } else { "." };
        let text = format!("{}: {sentence}{stop} {}", self.code(), self.help());
        text.trim_end().to_owned()
    }

    /// Returns advice for the caller.
    pub fn help(&self) -> String {
        let advice = match self {
            Self::DeniedByPolicy { .. } => {
                "Call list_servers and get_server_tools to see what is allowed."
            }
            // The messages of these errors already contain advice.
            Self::AgentNotResolved(_) => "",
            Self::NoRules(gap) => gap.help(),
            Self::IdentityMismatch { .. } => "Leave agent_id out.",
            Self::InvalidAttestation(_) => "Call it again.",
            Self::NotAttested => {
                "A person can run `adjutant init`, which installs the hooks that attest it."
            }
            Self::ServerUnavailable { retry_in: Some(wait), .. } => {
                return format!("It is tried again in {} s.", wait.as_secs_f64().ceil().max(1.0));
            }
            Self::ServerUnavailable { .. } | Self::InvalidServers { .. } => {
                "Call again later; `adjutant doctor` says more."
            }
            Self::NotServed { way_out, .. } => way_out,
            Self::SignInNeeded { command, .. } => return format!("A person must run `{command}`."),
            Self::ToolNotFound { .. } => "Call get_server_tools to see its tools.",
            Self::FeatureNotFound { .. } => "List them to see what there is.",
            Self::ToolBlockedByPin { server, .. } => {
                return format!(
                    "A person must look at it and run `adjutant trust {}`.",
                    name(server)
                );
            }
            Self::Timeout { .. } => "Pass a larger timeout_ms, or ask for less.",
            Self::Cancelled => "Nothing is left to do.",
            Self::InvalidArgument { .. } => "Correct the arguments.",
            Self::AuditUnavailable { .. } => "A person must make the file writable.",
            Self::Pins { .. } => "A person must make the file readable and writable.",
            Self::Downstream { .. } => "The server said so itself.",
        };
        advice.to_owned()
    }

    pub(crate) fn sign_in_needed(server: &str, needed: SignInNeeded) -> Self {
        let SignInNeeded { reason, command } = needed;
        Self::SignInNeeded { server: server.to_owned(), reason, command }
    }

    /// Returns the error for an unknown tool; `visible` are the tools that the caller may see.
    pub(crate) fn tool_not_found<'a>(
        server: &str,
        tool: &str,
        visible: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let near = near_miss(tool, visible);
        Self::ToolNotFound { server: server.to_owned(), tool: tool.to_owned(), near }
    }

    /// Returns the error for an unknown server; `visible` are the servers that the caller may see.
    pub(crate) fn no_such_server<'a>(
        server: &str,
        visible: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::NotServed {
            server: server.to_owned(),
            reason: format!("there is no such server{}", near_miss(server, visible)),
            way_out: "Call list_servers to see which there are.",
        }
    }

    /// Returns the error for an entry that is left out.
    pub(crate) fn excluded_entry(server: &str, why: &str) -> Self {
        Self::NotServed {
            server: server.to_owned(),
            reason: why.to_owned(),
            way_out: "Call list_servers to see which there are; only a person can change that.",
        }
    }

    /// Returns the error for an invalid entry.
    pub(crate) fn invalid_entry(server: &str, reason: &str) -> Self {
        Self::NotServed {
            server: server.to_owned(),
            reason: reason.to_owned(),
            way_out: "A person must mend its entry; `adjutant doctor` says more.",
        }
    }

    pub(crate) fn unavailable(server: &str, reason: impl Into<String>) -> Self {
        Self::ServerUnavailable { server: server.to_owned(), reason: reason.into(), retry_in: None }
    }
}

/// Makes a name safe for a message: one line, at most 256 characters.
///
/// Callers and servers choose names and could forge log lines.
fn name(given: &str) -> String {
    one_line(&shorten(given, 256))
}

/// Returns the names that may be meant by `wanted`, as the end of a message.
pub(crate) fn near_miss<'a>(wanted: &str, visible: impl IntoIterator<Item = &'a str>) -> String {
    let near: Vec<String> = nearest_names(wanted, visible).into_iter().map(name).collect();
    if near.is_empty() { String::new() } else { format!("; is `{}` meant?", near.join("` or `")) }
}
