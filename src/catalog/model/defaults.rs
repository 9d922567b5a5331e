//! `agents/defaults.yaml`: what every agent gets unless its own file says otherwise, and the orchestrator's limits.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::hooks::Hook;
use super::model::Template;

/// What an agent gets where its own file does not say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defaults {
    /// The whole call.
    pub timeout: Duration,
    /// The longest silence, if there is a limit.
    pub idle_timeout: Option<Duration>,
    /// The model, as `claude --model` takes it.
    pub model: Option<String>,
    /// The effort, as `claude --effort` takes it.
    pub effort: Option<String>,
    /// Turns per call.
    pub max_turns: Option<u32>,
    /// Dollars per call.
    pub max_budget_usd: Option<f64>,
    /// Characters of an answer that reach the caller.
    pub max_output_chars: usize,
    /// Runs of one agent at once.
    pub max_concurrent: Option<u32>,
    /// How often an agent is told what was wrong with its answer.
    pub output_retries: u32,
    /// How many started processes wait for a call.
    pub warm: u32,
    /// How long a session agent's process is kept after a turn.
    pub keep_alive: Duration,
    /// How long a question to a person waits.
    pub approval_timeout: Duration,
    /// Variables for every agent; an agent's own win.
    pub env: BTreeMap<String, Template>,
    /// Commands that are told of events; an agent's own come after these.
    pub hooks: Vec<Hook>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(5),
            idle_timeout: None,
            model: None,
            effort: None,
            max_turns: None,
            max_budget_usd: None,
            max_output_chars: 100_000,
            max_concurrent: None,
            output_retries: 2,
            warm: 0,
            keep_alive: Duration::from_mins(5),
            approval_timeout: Duration::from_mins(2),
            env: BTreeMap::new(),
            hooks: Vec::new(),
        }
    }
}

/// The orchestrator's own limits and rules, for all agents together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Orchestration {
    /// Runs at once in this process.
    pub max_runs: u32,
    /// Calls that may wait for their turn.
    pub max_queue: u32,
    /// Runs at once on this machine, over all Adjutant processes of this user.
    pub max_machine_runs: Option<u32>,
    /// No new process starts when less memory than this is free; 0 never refuses.
    pub min_free_memory_mb: u64,
    /// How long a call waits for a conversation that is in use.
    pub session_wait: Duration,
    /// Conversations unused for longer are forgotten, if there is a limit.
    pub session_retention: Option<Duration>,
    /// Whether a caller must be attested.
    pub identity: IdentityRule,
    /// What happens when the audit log cannot be written.
    pub audit: AuditRule,
    /// How much of a call's arguments the audit log keeps.
    pub audit_arguments: KeptArguments,
    /// What an agent may spend.
    pub budgets: BTreeMap<String, Budget>,
    /// Dollars for everything one main session has started.
    pub session_budget_usd: Option<f64>,
    /// Idle processes kept ready, in all.
    pub max_warm: u32,
    /// Memory that idle processes may hold, in all.
    pub max_warm_mb: u64,
    /// An idle process ends after this time.
    pub warm_idle: Duration,
    /// A kept process that holds more is ended after its turn.
    pub max_live_mb: u64,
    /// A kept process that is older is ended after its turn.
    pub max_live_age: Duration,
    /// A private MCP server that nobody used for this long is ended.
    pub server_idle: Duration,
    /// The longest line that is read from an agent.
    pub max_line_mb: u64,
    /// How long running calls may go on after the order to stop.
    pub shutdown_grace: Duration,
    /// `events.jsonl` and `audit.jsonl` begin a new file at this size.
    pub log_max_mb: u64,
    /// Older log files are removed, if there is a limit.
    pub log_retention: Option<Duration>,
}

impl Default for Orchestration {
    fn default() -> Self {
        Self {
            max_runs: 8,
            max_queue: 64,
            max_machine_runs: None,
            // An idle `claude` holds 180 to 280 MB.
            min_free_memory_mb: 256,
            session_wait: Duration::from_secs(30),
            session_retention: None,
            identity: IdentityRule::Optional,
            audit: AuditRule::Required,
            audit_arguments: KeptArguments::Never,
            budgets: BTreeMap::new(),
            session_budget_usd: None,
            max_warm: 4,
            max_warm_mb: 1024,
            warm_idle: Duration::from_mins(10),
            max_live_mb: 1024,
            max_live_age: Duration::from_hours(1),
            server_idle: Duration::from_mins(5),
            max_line_mb: 64,
            shutdown_grace: Duration::from_secs(10),
            log_max_mb: 64,
            log_retention: None,
        }
    }
}

/// Whether calls by callers that nothing attests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityRule {
    /// Unattested calls are refused.
    Required,
    /// Unattested calls are judged as the fallback's.
    Optional,
}

/// What happens to calls when the audit log cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditRule {
    /// They are refused.
    Required,
    /// They go on, and it is said in the log.
    BestEffort,
}

/// How much of a call's arguments the audit log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptArguments {
    /// Nothing.
    Never,
    /// Their names, kinds and sizes.
    Redacted,
    /// All of them, up to 64 KiB.
    Full,
}

/// What an agent may spend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Budget {
    /// Dollars per day.
    pub per_day_usd: f64,
}
