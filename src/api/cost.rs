//! Costs and statistics: `costs`, `stats`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::common::Usd;
use super::run::TokenCounts;

/// Costs of an agent, a day or a session. Without any of the three: costs outside of a session.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CostObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// In UTC, such as `2026-01-31`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// Session of the main agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Number of ended runs.
    pub runs: u64,
    pub cost_usd: Usd,
    /// Costs of today, for agents with a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub today_usd: Option<Usd>,
    /// Budget per day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_day_usd: Option<Usd>,
}

/// Statistics of the runs of one agent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentStatsObject {
    pub agent: String,
    pub runs: u64,
    /// Runs that have not ended.
    pub running: u64,
    /// Failed runs by error code.
    pub failures: BTreeMap<String, u64>,
    /// Median duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 95th percentile of the duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    pub cost_usd: Usd,
    pub tokens: TokenCounts,
    /// Tool calls that were executed.
    pub tools: u64,
    /// Tool calls that were denied.
    pub denials: u64,
}
