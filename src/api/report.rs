//! A report: `run --json`, result of `run_subagent`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::common::Usd;
use super::error::ErrorObject;
use crate::util::RunId;

/// Result and statistics of one call. Has either `result` or `error`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportObject {
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Name as the caller wrote it.
    pub agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// From the call's arrival to its end.
    pub duration_ms: u64,
    /// Validated JSON value, if the agent has an output contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Text of the agent before the failure; never a valid answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Session id, for agents with `session: true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Usd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    pub run_id: RunId,
    /// Denied tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<DenialObject>,
    /// Notes for the caller beside the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DenialObject {
    pub tool: String,
    /// The missing rule, or the reason of the denial.
    pub rule: String,
}

/// Result of `run_subagents`: one report per task, in the order of the tasks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportsObject {
    pub results: Vec<ReportObject>,
}
