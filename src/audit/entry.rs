//! Audit entries: caller, request, decision with its reason, and outcome.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::chain::RemovedEntries;
use crate::api::{AuditEntryObject, Caller, DecisionWord, RemovedLines};
use crate::policy::{Decision, Verdict};
use crate::util::{RunId, shorten, shorten_cow};

/// Version of the line format of `audit.jsonl`.
pub(crate) const AUDIT_FORMAT: u32 = 2;

const MAX_NAME_LEN: usize = 256;
const MAX_REASON_LEN: usize = 2_000;
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// Typical size of an encoded entry, used as capacity.
pub(crate) const TYPICAL_ENTRY_BYTES: usize = 640;

/// The content of an audit entry. Only `operation` is mandatory.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry {
    pub caller: Option<Caller>,
    /// The request: `execute_tool`, `list_servers`, `run_subagent`, `approval` …
    pub operation: Cow<'static, str>,
    pub server: Option<String>,
    /// The tool, or for `run_subagent` the agent.
    pub tool: Option<String>,
    pub decision: Option<Decision>,
    /// Path of the rule that decided.
    pub rule: Option<String>,
    /// The message that the caller got.
    pub reason: Option<String>,
    pub duration: Option<Duration>,
    /// Error code, if the request failed.
    pub code: Option<String>,
    /// Size of the arguments in bytes.
    pub request_bytes: Option<u64>,
    /// Size of the response in bytes.
    pub response_bytes: Option<u64>,
    pub run_id: Option<RunId>,
    /// The call's id, as given by the client or Claude Code.
    pub call_id: Option<String>,
    /// The arguments; written in the detail that the log's options permit.
    pub arguments: Option<Value>,
    /// Supplies decision, rule and reason where the fields above have none.
    pub verdict: Option<Arc<Verdict>>,
    /// The removed entries, in a `log_pruned` entry.
    pub(crate) removed: Option<RemovedEntries>,
}

impl AuditEntry {
    pub fn new(operation: impl Into<Cow<'static, str>>) -> Self {
        Self { operation: operation.into(), ..Self::default() }
    }

    /// Sets the caller.
    #[must_use]
    pub fn with_caller(mut self, caller: &Caller) -> Self {
        self.caller = Some(caller.clone());
        self
    }

    /// Sets the server and tool.
    #[must_use]
    pub fn with_target(mut self, server: &str, tool: Option<&str>) -> Self {
        self.server = Some(server.to_owned());
        self.tool = tool.map(str::to_owned);
        self
    }

    /// Sets a denial before any rule was evaluated, with error code and message.
    #[must_use]
    pub fn with_denial(mut self, code: &str, sentence: String) -> Self {
        self.decision = Some(Decision::Deny);
        self.code = Some(code.to_owned());
        self.reason = Some(sentence);
        self
    }

    /// Sets the verdict of the rules.
    #[must_use]
    pub fn with_verdict(mut self, evaluation: Arc<Verdict>) -> Self {
        self.verdict = Some(evaluation);
        self
    }
}

/// Detail in which arguments are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentDetail {
    #[default]
    Never,
    /// Names, types and sizes of the top level.
    Redacted,
    /// Complete, up to 64 KiB.
    Full,
}

/// Position of an entry in the chain.
pub(crate) struct EntryLink<'a> {
    pub(crate) seq: u64,
    /// Current time, formatted.
    pub(crate) time: &'a str,
    pub(crate) prev: &'a str,
}

/// Appends the encoded entry to `text`, without a line feed.
pub(crate) fn encode_entry(
    line: &AuditEntry,
    position: &EntryLink<'_>,
    detail: ArgumentDetail,
    text: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let (before, verdict) = (text.len(), line.verdict.as_deref());
    let rule = line.rule.as_deref().or(verdict.map(|verdict| &*verdict.rule.path));
    let reason = line.reason.as_deref().or(verdict.map(Verdict::message));
    let stored = AuditEntryObject {
        format: AUDIT_FORMAT,
        seq: position.seq,
        time: position.time,
        caller: line.caller.as_ref().map(truncate_caller),
        operation: shorten_cow(&line.operation, MAX_NAME_LEN),
        server: truncate(line.server.as_deref(), MAX_NAME_LEN),
        tool: truncate(line.tool.as_deref(), MAX_NAME_LEN),
        decision: line.decision.or(verdict.map(|verdict| verdict.decision)).map(DecisionWord::from),
        rule: truncate(rule, MAX_REASON_LEN),
        reason: truncate(reason, MAX_REASON_LEN),
        duration_ms: line.duration.and_then(|time| u64::try_from(time.as_millis()).ok()),
        code: truncate(line.code.as_deref(), MAX_NAME_LEN),
        request_bytes: line.request_bytes,
        response_bytes: line.response_bytes,
        run_id: line.run_id,
        call_id: truncate(line.call_id.as_deref(), MAX_NAME_LEN),
        arguments: line.arguments.as_ref().and_then(|value| arguments_in_detail(value, detail)),
        removed: line
            .removed
            .as_ref()
            .map(|removed| RemovedLines { through: removed.through, hash: &removed.hash }),
        prev: position.prev,
    };
    serde_json::to_writer(&mut *text, &stored)?;
    if !is_printable_ascii(text.get(before..).unwrap_or_default()) {
        // serde_json always writes UTF-8.
        let odd = String::from_utf8(text.split_off(before)).unwrap_or_default();
        text.extend_from_slice(escape_controls(odd).as_bytes());
    }
    Ok(())
}

fn truncate_caller(caller: &Caller) -> Cow<'_, Caller> {
    let Caller { name, session_id, agent_id, tool_use_id, .. } = caller;
    let texts = [Some(name), session_id.as_ref(), agent_id.as_ref(), tool_use_id.as_ref()];
    if texts.into_iter().flatten().all(|text| text.len() <= MAX_NAME_LEN) {
        return Cow::Borrowed(caller);
    }
    let short = |text: &Option<String>| text.as_deref().map(|text| shorten(text, MAX_NAME_LEN));
    Cow::Owned(Caller {
        name: shorten(name, MAX_NAME_LEN),
        known_by: caller.known_by,
        session_id: short(session_id),
        agent_id: short(agent_id),
        tool_use_id: short(tool_use_id),
    })
}

fn truncate(text: Option<&str>, max_chars: usize) -> Option<Cow<'_, str>> {
    text.map(|text| shorten_cow(text, max_chars))
}

fn arguments_in_detail(arguments: &Value, detail: ArgumentDetail) -> Option<Value> {
    match detail {
        ArgumentDetail::Never => None,
        ArgumentDetail::Redacted => Some(summarize_arguments(arguments)),
        ArgumentDetail::Full => {
            let bytes = arguments.to_string().len();
            let whole = bytes <= MAX_ARGUMENTS_BYTES;
            Some(if whole { arguments.clone() } else { json!({ "left_out_bytes": bytes }) })
        }
    }
}

/// Replaces the arguments by names, types and sizes, one level deep, at most 64 names.
fn summarize_arguments(arguments: &Value) -> Value {
    let Value::Object(members) = arguments else { return Value::from(type_and_size(arguments)) };
    let shown: Map<String, Value> = members
        .iter()
        .take(64)
        .map(|(name, value)| (shorten(name, 64), Value::from(type_and_size(value))))
        .collect();
    Value::Object(shown)
}

fn type_and_size(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(text) => format!("text of {}", text.chars().count()),
        Value::Array(items) => format!("list of {}", items.len()),
        Value::Object(members) => format!("object of {}", members.len()),
    }
}

/// Returns true if the text is printable ASCII.
fn is_printable_ascii(json: &[u8]) -> bool {
    // Without an early exit the loop is vectorized.
    json.iter().fold(true, |so_far, byte| so_far & matches!(byte, b' '..=b'~'))
}

/// Escapes line separators, control characters and bidirectional marks, most of which JSON leaves as they are.
pub(crate) fn escape_controls(json: String) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if is_printable_ascii(json.as_bytes()) || !json.contains(harmful) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if harmful(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}
