//! A line of the event log: `events`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::common::{Caller, Usd, UtcTime};
use super::error::ErrorObject;
use super::report::DenialObject;
use super::run::TokenCounts;
use crate::util::RunId;

/// An event in format 2: the payload of a Claude Code hook, with the agent, or an event of Adjutant.
///
/// Describes the lines that `events` builds from payloads; no value of this type is made.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "the type is the source of the schema and of the list of members")]
pub(crate) struct EventLine {
    format: u32,
    /// Number in this project.
    seq: u64,
    time: UtcTime,
    hook_event_name: String,
    session_id: Option<String>,
    /// The instance of the agent; for subagents of Adjutant equal to `run_id`.
    agent_id: Option<String>,
    /// Name of the agent.
    agent_type: Option<String>,
    agent_transcript_path: Option<String>,
    run_id: Option<RunId>,
    tool_use_id: Option<String>,
    tool_name: Option<String>,
    /// The subagent of Adjutant that a native subagent works for.
    parent_agent_id: Option<RunId>,
    parent_agent_type: Option<String>,
    /// The caller of the run.
    caller: Option<Caller>,
    transcript_path: Option<String>,
    cwd: Option<String>,
    permission_mode: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tool_input: Option<Value>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tool_response: Option<Value>,
    duration_ms: Option<u64>,
    error: Option<EventError>,
    is_interrupt: Option<bool>,
    reason: Option<String>,
    prompt: Option<String>,
    message: Option<String>,
    source: Option<String>,
    model: Option<String>,
    trigger: Option<String>,
    stop_hook_active: Option<bool>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    last_assistant_message: Option<Value>,
    /// `SUCCESS` or an error code.
    outcome: Option<String>,
    cost_usd: Option<Usd>,
    turns: Option<u64>,
    tokens: Option<TokenCounts>,
    denials: Option<Vec<DenialObject>>,
    /// An answer that does not fulfil the output contract.
    last_answer: Option<String>,
    /// Milliseconds by phase of the run, such as `queue_ms`.
    timing: Option<BTreeMap<String, u64>>,
    pid: Option<u32>,
    /// Number of events that were dropped before this one.
    lost: Option<u64>,
    note: Option<String>,
    /// Size of the whole event, if it was too long for a line.
    left_out_bytes: Option<u64>,
    /// All other members of the payload of a hook.
    other: Option<Map<String, Value>>,
}

/// Error of an event.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "see `EventLine`")]
enum EventError {
    /// Of a tool call, as Claude Code reports it.
    Text(String),
    /// Of a run.
    Run(ErrorObject),
}

/// Names of the members of an event; a member of a payload that is not among them is one of `other`.
pub(crate) static EVENT_MEMBERS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(EventLine).to_value();
    let members = schema.get("properties").and_then(Value::as_object);
    members.into_iter().flat_map(|members| members.keys().cloned()).collect()
});
