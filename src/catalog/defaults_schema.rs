//! Types of `agents/defaults.yaml` that exist only for its JSON Schema.

#![expect(dead_code, reason = "only the schema of these types is used, never a value")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::agent_schema::HookEntryPart;

/// `agents/defaults.yaml`: what every agent gets unless its own file says otherwise, and the orchestrator's limits.
#[derive(JsonSchema)]
#[schemars(title = "Adjutant defaults", deny_unknown_fields)]
pub(crate) struct DefaultsFile {
    /// The whole call, in milliseconds. Default: 300000.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
    /// The longest silence, in milliseconds. Default: no limit.
    #[schemars(range(min = 1, max = 86_400_000))]
    idle_timeout_ms: Option<u64>,
    /// The model, as `claude --model` takes it.
    model: Option<String>,
    /// The effort, as `claude --effort` takes it.
    effort: Option<String>,
    /// Turns per call. Default: no limit.
    #[schemars(range(min = 1, max = 10_000))]
    max_turns: Option<u32>,
    /// Dollars per call. Default: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_budget_usd: Option<f64>,
    /// Characters of an answer that reach the caller. Default: 100000.
    #[schemars(range(min = 1, max = 500_000))]
    max_output_chars: Option<u32>,
    /// Runs of one agent at once. Default: no limit of its own.
    #[schemars(range(min = 1, max = 10_000))]
    max_concurrent: Option<u32>,
    /// How often an agent is told what was wrong with its answer. Default: 2.
    #[schemars(range(max = 10))]
    output_retries: Option<u32>,
    /// How many started processes wait for a call, per agent. Default: 0.
    #[schemars(range(max = 64))]
    warm: Option<u32>,
    /// How long a session agent's process is kept after a turn, in milliseconds. Default: 300000.
    #[schemars(range(max = 86_400_000))]
    keep_alive_ms: Option<u64>,
    /// How long a question to a person waits, in milliseconds. Default: 120000.
    #[schemars(range(min = 1, max = 86_400_000))]
    approval_timeout_ms: Option<u64>,
    /// Variables for every agent; an agent's own win.
    env: Option<BTreeMap<String, String>>,
    /// Commands that are told of events, in Claude Code's form.
    hooks: Option<BTreeMap<String, Vec<HookEntryPart>>>,
    /// Runs at once in one process. Default: 8.
    #[schemars(range(min = 1, max = 100_000))]
    max_runs: Option<u32>,
    /// Calls that may wait for their turn. Default: 64.
    #[schemars(range(max = 100_000))]
    max_queue: Option<u32>,
    /// Runs at once on this machine. Default: no limit.
    #[schemars(range(min = 1, max = 100_000))]
    max_machine_runs: Option<u32>,
    /// No new process starts when less memory is free, in MB; 0 never refuses. Default: 256.
    min_free_memory_mb: Option<u64>,
    /// How long a call waits for a conversation that is in use, in milliseconds. Default: 30000.
    session_wait_ms: Option<u64>,
    /// Conversations unused for longer are forgotten, such as `30d`. Default: never.
    #[schemars(regex(pattern = r"^[0-9]+[smhdw]$"))]
    session_retention: Option<String>,
    /// Whether a caller must be attested. Default: optional.
    identity: Option<IdentityPart>,
    /// What happens to calls when the audit log cannot be written (default: required, they are refused), and whether it
    /// keeps the arguments of calls.
    audit: Option<AuditPart>,
    /// What agents may spend.
    budgets: Option<BTreeMap<String, BudgetPart>>,
    /// Dollars for everything one main session has started. Default: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    session_budget_usd: Option<f64>,
    /// Idle processes kept ready, in all. Default: 4.
    #[schemars(range(max = 1_000))]
    max_warm: Option<u32>,
    /// Memory that idle processes may hold, in all, in MB. Default: 1024.
    max_warm_mb: Option<u64>,
    /// An idle process ends after this time, in milliseconds. Default: 600000.
    #[schemars(range(min = 1_000))]
    warm_idle_ms: Option<u64>,
    /// A kept process that holds more MB is ended after its turn. Default: 1024.
    #[schemars(range(min = 1))]
    max_live_mb: Option<u64>,
    /// A kept process that is older is ended after its turn, in milliseconds. Default: 3600000.
    #[schemars(range(min = 1_000))]
    max_live_age_ms: Option<u64>,
    /// A private MCP server that nobody used for this long is ended, in milliseconds. Default: 300000.
    server_idle_ms: Option<u64>,
    /// The longest line that is read from an agent, in MB. Default: 64.
    #[schemars(range(min = 1))]
    max_line_mb: Option<u64>,
    /// How long running calls may go on after the order to stop, in milliseconds. Default: 10000.
    shutdown_grace_ms: Option<u64>,
    /// `events.jsonl` and `audit.jsonl` begin a new file at this size, in MB. Default: 64.
    #[schemars(range(min = 1))]
    log_max_mb: Option<u64>,
    /// Files of the audit log that are full and older are removed, such as `90d`. Default: never.
    #[schemars(regex(pattern = r"^[0-9]+[smhdw]$"))]
    log_retention: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum IdentityPart {
    Required,
    Optional,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum AuditPart {
    Mode(AuditMode),
    Details(AuditDetails),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AuditMode {
    Required,
    BestEffort,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AuditDetails {
    /// Whether calls are refused while the log cannot be written. Default: required.
    mode: Option<AuditMode>,
    /// How much of a call's arguments is kept. Default: never.
    arguments: Option<AuditArgumentsPart>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum AuditArgumentsPart {
    /// Nothing.
    Never,
    /// Their names, kinds and sizes.
    Redacted,
    /// All of them, up to 64 KiB.
    Full,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct BudgetPart {
    /// Dollars per day.
    #[schemars(extend("exclusiveMinimum" = 0))]
    per_day_usd: f64,
}
