//! Every environment variable that Adjutant reads, by name.

/// The project's root; `--root` wins over it.
pub const ADJUTANT_ROOT: &str = "ADJUTANT_ROOT";
/// The `claude` to start instead of the one on the `PATH`.
pub const ADJUTANT_CLAUDE: &str = "ADJUTANT_CLAUDE";
/// Whether tokens may go into the desktop's keyring: `off` keeps them in private files.
pub const ADJUTANT_KEYRING: &str = "ADJUTANT_KEYRING";
/// The project's root as Claude Code tells its MCP servers and hooks.
pub const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// The session of Claude Code that this process was started for, as it tells its MCP servers.
pub const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// The MCP servers behind the gateway: a file like `.mcp.json`.
pub const GATEWAY_MCP_CONFIG: &str = "GATEWAY_MCP_CONFIG";
/// The gateway's rules: a file like `.mcp-gateway-rules.json`.
pub const GATEWAY_RULES: &str = "GATEWAY_RULES";
/// The agent that is meant where a call names none and the rules permit that.
pub const GATEWAY_DEFAULT_AGENT: &str = "GATEWAY_DEFAULT_AGENT";
/// Where the audit log is written instead of `data/audit.jsonl`.
pub const GATEWAY_AUDIT_LOG: &str = "GATEWAY_AUDIT_LOG";
/// Set for every process that Adjutant starts: the id of its run. Start-up finds leftovers by it.
pub const ADJUTANT_RUN: &str = "ADJUTANT_RUN";
/// Set for every agent's process to the agent's name: below it, `adjutant run` and `adjutant serve` are refused.
pub const ADJUTANT_AGENT: &str = "ADJUTANT_AGENT";
/// Whether `get_gateway_status` is offered: `true`, `1` or `yes`, in any case.
pub const GATEWAY_DEBUG: &str = "GATEWAY_DEBUG";
/// When the gateway's servers are started: `eager` or `lazy`.
pub const GATEWAY_INIT_STRATEGY: &str = "GATEWAY_INIT_STRATEGY";
/// What the gateway speaks: `stdio` or `http`.
pub const GATEWAY_TRANSPORT: &str = "GATEWAY_TRANSPORT";
/// The collector that spans are sent to (OTLP over HTTP, JSON); without it none are made.
pub const OTEL_EXPORTER_OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Headers for the collector: `name=value,name=value`.
pub const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The name under which spans appear.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// The trace that a run belongs to; handed on to its process.
pub const TRACEPARENT: &str = "TRACEPARENT";
