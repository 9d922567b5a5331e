//! A line of the audit log, and the result of its verification: `audit`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::common::Caller;
use super::decision::DecisionWord;
use crate::util::RunId;

/// An audit entry in format 2. The order of the members is the order in the file.
#[derive(Serialize, JsonSchema)]
pub struct AuditEntryObject<'a> {
    pub format: u32,
    pub seq: u64,
    #[schemars(extend("format" = "date-time"))]
    pub time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Cow<'a, Caller>>,
    /// The request: `execute_tool`, `list_servers`, `run_subagent`, `approval` …
    pub operation: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Cow<'a, str>>,
    /// The tool, or for `run_subagent` the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionWord>,
    /// Path of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Cow<'a, str>>,
    /// The message that the caller got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Error code, if the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Cow<'a, str>>,
    /// Size of the arguments in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Size of the response in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The call's id, as given by the client or Claude Code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Cow<'a, str>>,
    /// The arguments, in the detail of `audit_arguments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Entries that `log_retention` removed, in a `log_pruned` entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedLines<'a>>,
    /// SHA-256 of the line before.
    pub prev: &'a str,
}

#[derive(Serialize, JsonSchema)]
pub struct RemovedLines<'a> {
    /// Number of the last removed entry.
    pub through: u64,
    /// Its hash.
    pub hash: &'a str,
}

/// Output of `audit --verify`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditVerification {
    /// The log has no deviation.
    pub ok: bool,
    /// Number of lines read.
    pub lines: u64,
    /// Hash of the newest entry.
    pub newest_hash: String,
    /// At most 100.
    pub problems: Vec<AuditFault>,
}

/// A deviation in the audit log.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditFault {
    /// `changed`, `missing`, `reordered`, `truncated`, `unreadable` or `replaced`.
    pub code: String,
    pub message: String,
    pub file: String,
    /// Counted from 1; absent for the file as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}
