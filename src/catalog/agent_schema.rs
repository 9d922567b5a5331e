//! Types of the front matter that exist only for its JSON Schema, used by editors.
//!
//! Files are not deserialized into these types: the hand-written parser reports better errors.

#![expect(dead_code, reason = "only the schema of these types is used, never a value")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

/// The front matter of `agents/<name>/agent.md`.
#[derive(JsonSchema)]
#[schemars(title = "Adjutant agent")]
pub(crate) struct AgentFile {
    /// Equals the folder's name.
    name: Option<String>,
    /// What people see instead of the name.
    display_name: Option<String>,
    /// One sentence by which a caller chooses this agent.
    #[schemars(length(min = 1, max = 1000))]
    description: String,
    /// Whether its conversation goes on from call to call. Default: false.
    session: Option<bool>,
    /// Who may call it; "*" is anyone whose name is known. Default: [main].
    allowed_callers: Option<OneOrMany>,
    /// The whole call, in milliseconds. Default: 300000.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
    /// The longest silence, in milliseconds. Default: no limit.
    #[schemars(range(min = 1, max = 86_400_000))]
    idle_timeout_ms: Option<u64>,
    /// The model, as `claude --model` takes it.
    model: Option<String>,
    /// The effort, as `claude --effort` takes it.
    effort: Option<Effort>,
    /// Turns per call. Default: no limit.
    #[schemars(range(min = 1, max = 10_000))]
    max_turns: Option<u32>,
    /// Dollars per call. Default: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_budget_usd: Option<f64>,
    /// Characters of the answer that reach the caller. Default: 100000.
    #[schemars(range(min = 1, max = 500_000))]
    max_output_chars: Option<u32>,
    /// Runs of this agent at once. Default: no limit of its own.
    #[schemars(range(min = 1, max = 10_000))]
    max_concurrent: Option<u32>,
    /// How long a question to a person waits, in milliseconds. Default: 120000.
    #[schemars(range(min = 1, max = 86_400_000))]
    approval_timeout_ms: Option<u64>,
    /// The working folder. Default: the project's root.
    cwd: Option<String>,
    /// Further folders its tools may touch.
    add_dirs: Option<OneOrMany>,
    /// Variables of its own; `${VAR}` and `${VAR:-default}` are put in at the start.
    env: Option<BTreeMap<String, String>>,
    /// Commands that are told of events, in Claude Code's form.
    hooks: Option<BTreeMap<String, Vec<HookEntryPart>>>,
    /// Claude Code's own permission rules.
    permissions: Option<PermissionsPart>,
    /// Which tools exist at all: `builtin:Bash`, `mcp:server:tool`.
    tools: Option<OneOrMany>,
    /// Takes away again.
    policy: Option<PolicyPart>,
    /// Permits changes of the control files (agent files, gateway rules, hooks, settings) and reading Adjutant's own files.
    /// Default: false.
    may_change_project_config: Option<bool>,
    /// MCP servers of its own, and shared ones by name.
    mcp_servers: Option<ServersPart>,
    /// The form of the answer. Default: text, or json where there is a schema.
    output_format: Option<FormatPart>,
    /// A JSON Schema (2020-12) the answer must fit, or the name of a file beside agent.md.
    output_schema: Option<SchemaPart>,
    /// How often the agent is told what was wrong with its answer. Default: 2.
    #[schemars(range(max = 10))]
    output_retries: Option<u32>,
    /// How many started processes wait for a call. Default: 0.
    #[schemars(range(max = 64))]
    warm: Option<u32>,
    /// How long a session agent's process is kept after a turn, in milliseconds. Default: 300000.
    #[schemars(range(max = 86_400_000))]
    keep_alive_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum FormatPart {
    Text,
    Json,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum SchemaPart {
    File(String),
    Inline(BTreeMap<String, Value>),
}

/// Rules such as `Bash(curl:*)`, `Read(src/**)`, `mcp__server__tool`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PermissionsPart {
    /// Pre-approved; the tools named here exist for the agent.
    allow: Option<OneOrMany>,
    /// A person decides; denied where none can answer.
    ask: Option<OneOrMany>,
    /// Refused, whatever else is said.
    deny: Option<OneOrMany>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PolicyPart {
    /// Tools, by typed names and patterns.
    tools: Option<PolicyList>,
    /// Servers, by names and patterns.
    mcp: Option<PolicyList>,
    /// What is said about single servers.
    mcp_servers: Option<BTreeMap<String, TrustPart>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PolicyList {
    /// If given, only these remain.
    allowed: Option<OneOrMany>,
    /// These go, whatever else is said.
    exclude: Option<OneOrMany>,
    /// The same as `exclude`.
    excluded: Option<OneOrMany>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TrustPart {
    /// Its tools need no approval.
    trust: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum ServersPart {
    List(Vec<ListedServer>),
    Map(BTreeMap<String, Option<ServerPart>>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum ListedServer {
    Shared(String),
    Named(Box<ServerPart>),
    Keyed(BTreeMap<String, ServerPart>),
}

/// With neither `command` nor `url`: the shared server of that name in `.mcp.json`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ServerPart {
    /// Its tools are called `mcp__<name>__<tool>`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$"))]
    name: Option<String>,
    /// Said by other programs' files; must fit the other keys.
    #[schemars(rename = "type")]
    kind: Option<ServerKind>,
    /// The program.
    command: Option<String>,
    /// Its arguments.
    args: Option<Vec<String>>,
    /// Its variables.
    env: Option<BTreeMap<String, String>>,
    /// Its working folder.
    cwd: Option<String>,
    /// Where a server on the network is.
    url: Option<String>,
    /// Sent with every request to it.
    headers: Option<BTreeMap<String, String>>,
    /// How Adjutant signs in to it, where the server does not tell everything itself.
    auth: Option<SignInPart>,
    /// Whether a run may go on without it. Default: false.
    optional: Option<bool>,
    /// One process per agent (default) or per run.
    isolation: Option<Isolation>,
    /// Whether it is started ahead of the first call. Default: false.
    eager: Option<bool>,
    /// How long one of its calls may take, in milliseconds.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SignInPart {
    /// The client that was registered by hand; without one, Adjutant registers itself.
    client_id: Option<String>,
    /// Its secret, as `${VARIABLE}`.
    client_secret: Option<String>,
    /// What is asked for, beside what the server asks for itself.
    scopes: Option<OneOrMany>,
    /// The port of the address that the browser comes back to. Default: any free one.
    #[schemars(range(min = 1, max = 65_535))]
    redirect_port: Option<u16>,
    /// Whether what the server names may lie in a private network. Default: false.
    private_addresses: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum ServerKind {
    Stdio,
    Http,
    StreamableHttp,
    Sse,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Isolation {
    Agent,
    Run,
}

/// Which tools, and the commands that are told.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HookEntryPart {
    /// A name, `Edit|Write`, or a regular expression. Default: all.
    matcher: Option<String>,
    /// The commands.
    hooks: Vec<HookPart>,
}

/// One command; the payload is on its stdin.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HookPart {
    /// Always `command`.
    #[schemars(regex(pattern = "^command$"))]
    r#type: Option<String>,
    /// A line for the shell.
    #[schemars(length(min = 1))]
    command: String,
    /// How long it may take, in seconds. Default: 60.
    #[schemars(range(min = 1, max = 3_600))]
    timeout: Option<u64>,
    /// What becomes of a call when the hook fails. Default: block.
    on_failure: Option<OnFailurePart>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum OnFailurePart {
    Block,
    Allow,
}
