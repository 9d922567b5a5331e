//! Model of `agents/defaults.yaml`: defaults for all agents and limits of the orchestrator.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::agent::Template;
use super::hook::UserHook;

/// Values for keys that an agent file leaves out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defaults {
    /// Timeout of the whole run.
    pub timeout: Duration,
    /// Maximum time without activity; `None` is unlimited.
    pub idle_timeout: Option<Duration>,
    /// As passed to `claude --model`.
    pub model: Option<String>,
    /// As passed to `claude --effort`.
    pub effort: Option<String>,
    /// Turns per run.
    pub max_turns: Option<u32>,
    /// US dollars per run.
    pub max_budget_usd: Option<f64>,
    /// Characters of the answer that the caller receives.
    pub max_output_chars: usize,
    /// Concurrent runs of one agent.
    pub max_concurrent: Option<u32>,
    /// Correction turns after an invalid answer.
    pub output_retries: u32,
    /// Number of warm processes per agent.
    pub warm: u32,
    /// Time that the process of a session agent is kept after a turn.
    pub keep_alive: Duration,
    /// Timeout of an approval by a person.
    pub approval_timeout: Duration,
    /// Environment variables for every agent; those of the agent take precedence.
    pub env: BTreeMap<String, Template>,
    /// User hooks for every agent; they precede those of the agent.
    pub hooks: Vec<UserHook>,
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

/// Limits and rules of the orchestrator, for all agents together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Orchestration {
    /// Concurrent runs of this Adjutant process.
    pub max_runs: u32,
    /// Runs waiting for admission; further calls are rejected.
    pub max_queue: u32,
    /// Concurrent runs on this machine, over all Adjutant processes of this user.
    pub max_machine_runs: Option<u32>,
    /// Minimum free memory to start a process; 0 disables the check.
    pub min_free_memory_mb: u64,
    /// Maximum wait for a session in use.
    pub session_wait: Duration,
    /// Sessions unused for longer are deleted; `None` keeps them.
    pub session_retention: Option<Duration>,
    pub identity: IdentityRule,
    pub audit: AuditRule,
    pub audit_arguments: ArgumentLogging,
    /// Budgets by agent.
    pub budgets: BTreeMap<String, Budget>,
    /// US dollars for all runs started by one main session.
    pub session_budget_usd: Option<f64>,
    /// Total number of idle processes.
    pub max_warm: u32,
    /// Total memory of idle processes.
    pub max_warm_mb: u64,
    /// Idle processes are stopped after this time.
    pub warm_idle: Duration,
    /// A live process with more memory is stopped after its turn.
    pub max_live_mb: u64,
    /// An older live process is stopped after its turn.
    pub max_live_age: Duration,
    /// An unused private MCP server is stopped after this time.
    pub server_idle: Duration,
    /// Maximum length of an output line of `claude`.
    pub max_line_mb: u64,
    /// Grace period for running calls at shutdown.
    pub shutdown_grace: Duration,
    /// `events.jsonl` and `audit.jsonl` are rotated at this size.
    pub log_max_mb: u64,
    /// Older log files are deleted; `None` keeps them.
    pub log_retention: Option<Duration>,
}

impl Default for Orchestration {
    fn default() -> Self {
        Self {
            max_runs: 8,
            max_queue: 64,
            max_machine_runs: None,
            // Memory of an idle `claude`: 180 to 280 MB.
            min_free_memory_mb: 256,
            session_wait: Duration::from_secs(30),
            session_retention: None,
            identity: IdentityRule::Optional,
            audit: AuditRule::Required,
            audit_arguments: ArgumentLogging::Never,
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

/// Handling of calls whose caller is not attested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityRule {
    /// Unattested calls are rejected.
    Required,
    /// Unattested calls are evaluated as the fallback agent.
    Optional,
}

/// Handling of calls while the audit log cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditRule {
    /// Calls are rejected.
    Required,
    /// Calls proceed; the failure is logged.
    BestEffort,
}

/// Call arguments in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentLogging {
    Never,
    /// Names, types and sizes.
    Redacted,
    /// Values, at most 64 KiB.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Budget {
    pub per_day_usd: f64,
}
