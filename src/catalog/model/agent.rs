//! Validated model of an agent file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::hook::UserHook;
use super::sandbox::SandboxSettings;
use super::server::ServerEntry;
use crate::util::{AgentName, RESERVED_MAIN};

/// A subagent with all defaults applied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agent {
    /// Directory name, which is also the name callers use.
    pub name: AgentName,
    pub display_name: Option<String>,
    /// One line by which callers choose the agent.
    pub description: String,
    pub origin: AgentOrigin,
    /// Path of `agent.md`.
    pub file: PathBuf,
    /// System prompt: the body of `agent.md`.
    pub prompt: String,
    /// Path of `memory.md` beside `agent.md`, if it exists; read at every launch of a session agent.
    pub memory: Option<PathBuf>,
    /// Runs belong to a resumable session.
    pub session: bool,
    pub allowed_callers: AllowedCallers,
    /// As passed to `claude --model`.
    pub model: Option<String>,
    /// As passed to `claude --effort`.
    pub effort: Option<String>,
    /// Working directory as written; `None` is the project root.
    pub cwd: Option<Template>,
    /// Further directories that tools may access.
    pub add_dirs: Vec<Template>,
    /// Environment variables of the agent.
    pub env: BTreeMap<String, Template>,
    /// Claude Code's permission rules.
    pub permissions: Permissions,
    /// Granted tools; `None` if the file has no `tools` key.
    pub tools: Option<Vec<ToolRef>>,
    /// Restrictions; they only remove permissions.
    pub policy: PolicyRules,
    /// Permits changing control files and reading those that Adjutant owns.
    /// Control files are agent files, gateway rules, Claude Code settings and the like.
    pub may_change_project_config: bool,
    /// Sandbox of its processes. Not serialized without one, so that digests of agents without the key stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSettings>,
    /// MCP servers: private servers and references to shared servers.
    pub servers: Vec<ServerEntry>,
    pub output: OutputSpec,
    pub limits: Limits,
    /// Number of warm processes.
    pub warm: u32,
    /// Time that the process of a session agent is kept after a turn.
    pub keep_alive: Duration,
    /// User hooks. Not serialized.
    #[serde(skip)]
    pub hooks: Vec<UserHook>,
}

impl Agent {
    /// Returns an agent with the built-in value of every key, and without a name.
    pub(crate) fn template() -> Self {
        Self {
            name: AgentName::unnamed(),
            display_name: None,
            description: String::new(),
            origin: AgentOrigin::Project,
            file: PathBuf::new(),
            prompt: String::new(),
            memory: None,
            session: false,
            allowed_callers: AllowedCallers::Named(vec![RESERVED_MAIN.to_owned()]),
            model: None,
            effort: None,
            cwd: None,
            add_dirs: Vec::new(),
            env: BTreeMap::new(),
            permissions: Permissions::default(),
            tools: None,
            policy: PolicyRules::default(),
            may_change_project_config: false,
            sandbox: None,
            servers: Vec::new(),
            output: OutputSpec { format: OutputFormat::Text, schema: None, retries: 2 },
            limits: Limits {
                timeout: Duration::from_mins(5),
                idle_timeout: None,
                max_turns: None,
                max_budget_usd: None,
                max_output_chars: 100_000,
                max_concurrent: None,
                approval_timeout: Duration::from_mins(2),
            },
            warm: 0,
            keep_alive: Duration::from_mins(5),
            hooks: Vec::new(),
        }
    }

    /// True if the process may be kept after a run for the next run of the same session.
    pub fn keeps_process(&self) -> bool {
        self.session && !self.keep_alive.is_zero()
    }

    /// True if a user hook is configured for `event`.
    pub fn has_hook_for(&self, event: &str) -> bool {
        self.hooks.iter().any(|hook| hook.event == event)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrigin {
    /// The `agents/` directory of the project.
    Project,
    /// The extension of this name.
    Extension(String),
}

/// Callers that may call an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowedCallers {
    /// `"*"`: every caller with a known name.
    Anyone,
    Named(Vec<String>),
}

impl AllowedCallers {
    pub fn allows(&self, caller: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(names) => names.iter().any(|name| name == caller),
        }
    }
}

/// Text with `${VAR}`, `${VAR:-default}` and a leading `~`, serialized as written.
///
/// Resolved when an agent or server starts, never when the file is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Template(pub String);

/// Claude Code's permission rules by list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// Approved in advance.
    pub allow: Vec<RuleText>,
    /// A person decides.
    pub ask: Vec<RuleText>,
    /// Denied; takes precedence over all other lists.
    pub deny: Vec<RuleText>,
}

/// A validated permission rule in Claude Code's syntax: `Tool` or `Tool(specifier)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RuleText {
    /// Canonical tool name (`Bash`, `mcp__server__tool`).
    pub tool: String,
    /// Text in parentheses.
    pub specifier: Option<String>,
}

impl RuleText {
    /// Splits text such as `Bash(git push:*)` into tool and specifier, without checking either.
    pub(crate) fn split(text: &str) -> Self {
        let parts = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let (tool, specifier) = parts.map_or((text, None), |(tool, inside)| (tool, Some(inside)));
        Self { tool: tool.to_owned(), specifier: specifier.map(str::to_owned) }
    }
}

impl std::fmt::Display for RuleText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.specifier {
            Some(specifier) => write!(f, "{}({specifier})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// A tool by its typed name; aliases of built-in tools are resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolRef {
    /// `builtin:Bash`; a pattern if it contains `*` or `?`.
    Builtin(String),
    /// `mcp:server:tool`; both parts may be patterns.
    Mcp { server: String, tool: String },
}

impl std::fmt::Display for ToolRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::Mcp { server, tool } => write!(f, "mcp:{server}:{tool}"),
        }
    }
}

impl Serialize for ToolRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Policy of an agent file; only removes permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyRules {
    /// If set, all other tools are removed.
    pub tools_allowed: Option<Vec<ToolRef>>,
    /// Removed, whatever grants them.
    pub tools_exclude: Vec<ToolRef>,
    /// If set, all other servers are removed.
    pub mcp_allowed: Option<Vec<String>>,
    /// Removed servers. Precedence: literal name here, literal name in `mcp_allowed`, pattern here.
    pub mcp_excluded: Vec<String>,
    /// Servers with `trust: true`: their tools need no approval.
    pub trusted_servers: Vec<String>,
}

/// Required format of an agent's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputSpec {
    pub format: OutputFormat,
    /// JSON Schema that the answer must match.
    pub schema: Option<Arc<Value>>,
    /// Correction turns after an invalid answer.
    pub retries: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// Free text.
    #[default]
    Text,
    /// Exactly one JSON value.
    Json,
}

/// Limits of a run of one agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Timeout of the whole run.
    pub timeout: Duration,
    /// Maximum time without activity; `None` is unlimited.
    pub idle_timeout: Option<Duration>,
    /// Turns per run.
    pub max_turns: Option<u32>,
    /// US dollars per run.
    pub max_budget_usd: Option<f64>,
    /// Characters of the answer that the caller receives; the whole answer is stored in a file.
    pub max_output_chars: usize,
    /// Concurrent runs of this agent.
    pub max_concurrent: Option<u32>,
    /// Timeout of an approval by a person.
    pub approval_timeout: Duration,
}
