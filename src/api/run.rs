//! A run: `runs list`, `runs show`, `runs stop`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::common::{Caller, Usd, UtcTime};
use super::error::ErrorObject;
use crate::util::{RunId, Timestamp};

/// Tokens by kind: `input`, `output`, `cache_read`, `cache_creation`.
pub type TokenCounts = BTreeMap<String, u64>;

/// One delegation to one agent, or an idle process that waits for one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunObject {
    pub run_id: RunId,
    pub agent: String,
    pub state: RunState,
    /// Absent for `kept` processes and for current runs of servers before 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_transcript_path: Option<String>,
    /// Time of the request.
    pub queued_at: UtcTime,
    /// Time at which a process started to work on the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<UtcTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UtcTime>,
    /// `SUCCESS` or an error code, once the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// From the request to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Usd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: TokenCounts,
    /// Process id of a current run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Current activity in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// The steps in order; `runs show` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepObject>>,
    /// Milliseconds by phase, such as `queue_ms`, in order; `runs show` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, u64>>")]
    pub timing: Option<Map<String, Value>>,
}

impl RunObject {
    /// Returns a queued run.
    pub(crate) fn new(run_id: RunId, agent: &str, queued_at: Timestamp) -> Self {
        Self {
            run_id,
            agent: agent.to_owned(),
            state: RunState::Queued,
            caller: None,
            session_id: None,
            agent_transcript_path: None,
            queued_at: queued_at.into(),
            started_at: None,
            ended_at: None,
            outcome: None,
            error: None,
            duration_ms: None,
            cost_usd: None,
            turns: None,
            tokens: BTreeMap::new(),
            pid: None,
            doing: None,
            steps: None,
            timing: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Waits for a process.
    Queued,
    Running,
    Ended,
    /// An idle process of the pool, which is not a run.
    Kept,
}

/// A step of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepObject {
    pub started_at: UtcTime,
    /// `running`, `tool`, `failed`, `denied`, `subagent` or `event`.
    pub kind: String,
    /// The tool, the native subagent, or the event.
    pub name: String,
    /// One-line summary.
    pub about: String,
    /// Absent until the step ends, and for events without duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The native subagent that made the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}
