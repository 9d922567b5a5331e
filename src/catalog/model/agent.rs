//! What an agent file means, checked: nothing is left for a reader to guess.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::hooks::Hook;
use super::sign_in::SignIn;
use crate::base::AgentName;

/// One subagent: the contract its author wrote, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agent {
    /// The folder's name, and the name it is called by.
    pub name: AgentName,
    /// What people see instead of the name.
    pub display_name: Option<String>,
    /// One line for the caller: what it is good for.
    pub description: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its `agent.md`.
    pub file: PathBuf,
    /// The body of `agent.md`: the system prompt.
    pub prompt: String,
    /// `memory.md` beside it, if there is one; read at every launch of a session agent.
    pub memory: Option<PathBuf>,
    /// Whether its conversation goes on from call to call.
    pub session: bool,
    /// Who may call it.
    pub allowed_callers: Callers,
    /// The model, as `claude --model` takes it.
    pub model: Option<String>,
    /// The effort, as `claude --effort` takes it.
    pub effort: Option<String>,
    /// The working folder as written; `None` is the project's root.
    pub cwd: Option<Template>,
    /// Further folders its tools may touch.
    pub add_dirs: Vec<Template>,
    /// Variables of its own.
    pub env: BTreeMap<String, Template>,
    /// Claude Code's own permission rules.
    pub permissions: Permissions,
    /// Which tools exist at all; `None` where the file does not say.
    pub tools: Option<Vec<ToolRef>>,
    /// What is taken away again.
    pub policy: PolicyRules,
    /// Its MCP servers, private ones and references to shared ones.
    pub servers: Vec<ServerEntry>,
    /// What its answer must be.
    pub output: OutputSpec,
    /// How long, how much, how many.
    pub limits: Limits,
    /// How many started processes wait for a call.
    pub warm: u32,
    /// How long a session agent's process is kept after a turn.
    pub keep_alive: Duration,
    /// Commands of the user's that are told of what it does. They belong to the record, not to the conversation.
    #[serde(skip)]
    pub hooks: Vec<Hook>,
}

impl Agent {
    /// Whether its process may be kept after a call, for the next one of the same conversation.
    pub fn may_stay(&self) -> bool {
        self.session && !self.keep_alive.is_zero()
    }

    /// Whether a hook of the user is to be asked about, or told of, such an event.
    pub fn has_hook_for(&self, event: &str) -> bool {
        self.hooks.iter().any(|hook| hook.event == event)
    }
}

/// Where an agent comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The project's own `agents/` folder.
    Project,
    /// An extension of this name.
    Extension(String),
}

/// Who may call an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Callers {
    /// `"*"`: anyone whose name is known.
    Anyone,
    /// Just these.
    Named(Vec<String>),
}

impl Callers {
    /// Whether a caller of this name may call.
    pub fn allow(&self, caller: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(names) => names.iter().any(|name| name == caller),
        }
    }
}

/// Text in which `${VAR}`, `${VAR:-default}` and a leading `~` are resolved when an agent is started,
/// never when it is read: it prints as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Template(pub String);

/// Claude Code's permission rules: allowed, to be asked about, and denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// Pre-approved.
    pub allow: Vec<RuleText>,
    /// A person decides.
    pub ask: Vec<RuleText>,
    /// Refused, whatever else is said.
    pub deny: Vec<RuleText>,
}

/// One permission rule in Claude Code's syntax, checked: `Tool` or `Tool(specifier)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RuleText {
    /// The tool's canonical name (`Bash`, `mcp__server__tool`).
    pub tool: String,
    /// What stands in the parentheses, if there are any.
    pub specifier: Option<String>,
}

impl std::fmt::Display for RuleText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.specifier {
            Some(specifier) => write!(f, "{}({specifier})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// A tool by its typed name; built-ins by their canonical name, whatever alias was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolRef {
    /// `builtin:Bash`; a pattern where `*` or `?` stands in it.
    Builtin(String),
    /// `mcp:server:tool`; both parts may be patterns.
    Mcp {
        /// The server's name or pattern.
        server: String,
        /// The tool's name or pattern.
        tool: String,
    },
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

/// The scoped policy: it can only take away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyRules {
    /// If given, only these tools remain.
    pub tools_allowed: Option<Vec<ToolRef>>,
    /// These go, whatever else is said.
    pub tools_exclude: Vec<ToolRef>,
    /// If given, only these servers remain.
    pub mcp_allowed: Option<Vec<String>>,
    /// These servers go; a literal name in `mcp_allowed` beats a pattern here, a literal name here beats all.
    pub mcp_excluded: Vec<String>,
    /// Servers whose tools need no approval.
    pub trusted_servers: Vec<String>,
}

/// An MCP server of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerEntry {
    /// Its name: tools are called `mcp__<name>__<tool>`.
    pub name: String,
    /// How it is reached.
    pub launch: ServerLaunch,
    /// Whether a run may go on without it.
    pub optional: bool,
    /// Whether each run gets a process of its own (`isolation: run`) rather than one per agent.
    pub per_run: bool,
    /// Whether it is started ahead of the first call.
    pub eager: bool,
    /// How long one of its calls may take; `None` is the gateway's own limit.
    pub timeout: Option<Duration>,
    /// How Adjutant signs in to it.
    #[serde(skip_serializing_if = "SignIn::is_default")]
    pub sign_in: SignIn,
}

impl ServerEntry {
    /// A server that is needed, shared by the agent's runs, and started on first use.
    pub fn new(name: &str, launch: ServerLaunch) -> Self {
        Self {
            name: name.to_owned(),
            launch,
            optional: false,
            per_run: false,
            eager: false,
            timeout: None,
            sign_in: SignIn::default(),
        }
    }
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerLaunch {
    /// A process of its own.
    Stdio {
        /// The program.
        command: Template,
        /// Its arguments.
        args: Vec<Template>,
        /// Its variables; values are printed as written, never resolved.
        env: BTreeMap<String, Template>,
        /// Its working folder.
        cwd: Option<Template>,
    },
    /// A server on the network.
    Http {
        /// Where.
        url: Template,
        /// Sent with every request.
        headers: BTreeMap<String, Template>,
        /// What it speaks.
        dialect: Dialect,
    },
    /// The shared server of the same name in `.mcp.json`, if the gateway's rules grant it.
    Shared,
}

/// What a server on the network speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Streamable HTTP.
    #[default]
    Streamable,
    /// The older HTTP+SSE pair.
    Sse,
}

/// What an answer must be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputSpec {
    /// Text or JSON.
    pub format: OutputFormat,
    /// A JSON Schema the answer must fit.
    pub schema: Option<Arc<Value>>,
    /// How often the agent is told what was wrong and asked again.
    pub retries: u32,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// Whatever it writes.
    #[default]
    Text,
    /// One JSON value.
    Json,
}

/// How long, how much, how many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// The whole call.
    pub timeout: Duration,
    /// The longest silence, if there is a limit.
    pub idle_timeout: Option<Duration>,
    /// Turns per call.
    pub max_turns: Option<u32>,
    /// Dollars per call.
    pub max_budget_usd: Option<f64>,
    /// Characters of the answer that reach the caller; the rest goes to a file.
    pub max_output_chars: usize,
    /// Runs of this agent at once.
    pub max_concurrent: Option<u32>,
    /// How long a question to a person waits.
    pub approval_timeout: Duration,
}
