//! Names of all environment variables that Adjutant reads or sets.

/// Root of the project; `--root` takes precedence.
pub(crate) const ADJUTANT_ROOT: &str = "ADJUTANT_ROOT";
/// Path of `claude`, instead of the one on `PATH`.
pub(crate) const ADJUTANT_CLAUDE: &str = "ADJUTANT_CLAUDE";
/// Path of `bwrap`, instead of the one on `PATH`.
pub(crate) const ADJUTANT_BWRAP: &str = "ADJUTANT_BWRAP";
/// `off` stores tokens in private files instead of the desktop keyring.
pub(crate) const ADJUTANT_KEYRING: &str = "ADJUTANT_KEYRING";
/// Root of the project, set by Claude Code for MCP servers and hooks.
pub(crate) const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// Session id, set by Claude Code for MCP servers.
pub(crate) const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// Path of the file with the downstream servers, instead of `.mcp.json`.
pub(crate) const GATEWAY_MCP_CONFIG: &str = "GATEWAY_MCP_CONFIG";
/// Path of the gateway rules, instead of `.mcp-gateway-rules.json`.
pub(crate) const GATEWAY_RULES: &str = "GATEWAY_RULES";
/// Agent for calls that name none, if the rules permit it.
pub(crate) const GATEWAY_DEFAULT_AGENT: &str = "GATEWAY_DEFAULT_AGENT";
/// Path of the audit log, instead of `data/audit.jsonl`.
pub(crate) const GATEWAY_AUDIT_LOG: &str = "GATEWAY_AUDIT_LOG";
/// Run id, set for every process that Adjutant starts; processes of a crashed server are found by it.
pub(crate) const ADJUTANT_RUN: &str = "ADJUTANT_RUN";
/// Agent name, set for every agent process.
///
/// Below such a process, commands that act on or change the project are rejected.
pub(crate) const ADJUTANT_AGENT: &str = "ADJUTANT_AGENT";
/// `true`, `1` or `yes`, in any case, enables `get_gateway_status`.
pub(crate) const GATEWAY_DEBUG: &str = "GATEWAY_DEBUG";
/// Start of downstream servers: `eager` or `lazy`.
pub(crate) const GATEWAY_INIT_STRATEGY: &str = "GATEWAY_INIT_STRATEGY";
/// Transport of the gateway: `stdio` or `http`.
pub(crate) const GATEWAY_TRANSPORT: &str = "GATEWAY_TRANSPORT";
/// OTLP collector for spans (HTTP, JSON); without it no spans are recorded.
pub(crate) const OTEL_EXPORTER_OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Headers for the collector: `name=value,name=value`.
pub(crate) const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Service name in spans.
pub(crate) const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Trace context of a run, forwarded to its process.
pub(crate) const TRACEPARENT: &str = "TRACEPARENT";
