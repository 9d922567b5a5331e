//! MCP server of an agent file, an extension or `.mcp.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::agent::Template;

/// Validated entry of one MCP server. Keys that a file format does not have are at their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerEntry {
    /// Tools of the server are named `mcp__<name>__<tool>`.
    pub name: String,
    pub launch: ServerLaunch,
    /// A run may start without the server.
    pub optional: bool,
    #[serde(rename = "per_run", serialize_with = "serialize_per_run")]
    pub isolation: ServerIsolation,
    /// Start policy; `None` uses `GATEWAY_INIT_STRATEGY`.
    #[serde(rename = "eager", serialize_with = "serialize_eager")]
    pub start: Option<StartPolicy>,
    /// Timeout of one tool call; `None` applies the gateway's default.
    pub timeout: Option<Duration>,
    #[serde(skip_serializing_if = "OAuthConfig::is_default")]
    pub sign_in: OAuthConfig,
    /// Maximum time from the start to the response to `initialize`; `None` applies the gateway's default.
    #[serde(skip)]
    pub startup_timeout: Option<Duration>,
    /// One line, shown to agents.
    #[serde(skip)]
    pub description: Option<String>,
    #[serde(skip)]
    pub pinning: Pinning,
}

impl ServerEntry {
    /// Returns a required server, shared by all runs of the agent and started on first use.
    pub fn new(name: &str, launch: ServerLaunch) -> Self {
        Self {
            name: name.to_owned(),
            launch,
            optional: false,
            isolation: ServerIsolation::Agent,
            start: Some(StartPolicy::Lazy),
            timeout: None,
            sign_in: OAuthConfig::default(),
            startup_timeout: None,
            description: None,
            pinning: Pinning::Report,
        }
    }

    /// Returns true if every run has a process of its own.
    pub fn is_per_run(&self) -> bool {
        self.isolation == ServerIsolation::Run
    }

    /// Returns true if the server is started before the first call.
    pub fn is_eager(&self) -> bool {
        self.start == Some(StartPolicy::Eager)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn serialize_per_run<S: Serializer>(
    isolation: &ServerIsolation,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*isolation == ServerIsolation::Run)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "serde passes a reference"
)]
fn serialize_eager<S: Serializer>(
    start: &Option<StartPolicy>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*start == Some(StartPolicy::Eager))
}

/// Isolation of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerIsolation {
    /// All agents share one process.
    Shared,
    /// Each agent has its own process.
    Agent,
    /// Each run has its own process.
    Run,
}

/// Reaction to a tool definition that differs from its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Report the change.
    Report,
    /// Report the change and hide the tool until a person trusts it.
    Strict,
}

/// Start policy of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// Together with the gateway.
    Eager,
    /// At the first call.
    Lazy,
}

/// Transport of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerLaunch {
    /// Child process with JSON-RPC over stdio.
    Stdio {
        command: Template,
        args: Vec<Template>,
        /// Serialized as written, never resolved.
        env: BTreeMap<String, Template>,
        cwd: Option<Template>,
    },
    /// Remote server over HTTP.
    Http {
        url: Template,
        /// Sent with every request.
        headers: BTreeMap<String, Template>,
        dialect: HttpTransportKind,
    },
    /// Shared server of the same name in `.mcp.json`, if the gateway rules grant it.
    Shared,
}

/// HTTP transport of the MCP specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpTransportKind {
    /// Streamable HTTP.
    #[default]
    Streamable,
    /// HTTP+SSE, the older transport.
    Sse,
}

/// OAuth settings. Usually empty: most servers publish all metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OAuthConfig {
    /// Client registered by hand; `None` uses dynamic client registration.
    pub client_id: Option<Template>,
    /// As written.
    pub client_secret: Option<Template>,
    /// Requested in addition to the scopes that the server requires.
    pub scopes: Vec<String>,
    /// Port of the redirect address; `None` uses any free port.
    pub redirect_port: Option<u16>,
    /// Endpoints published by the server may be in a private network.
    pub private_addresses: bool,
    /// Each agent signs in with its own account.
    pub per_agent: bool,
}

impl OAuthConfig {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
