//! Limits and rules of the orchestrator, from `agents/defaults.yaml`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

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
