//! One audit line: who wanted what, what was decided and why, how it went.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::chain::Removed;
use crate::base::{RunId, shorten, shortened};
use crate::identity::{Caller, KnownBy};
use crate::policy::{Decision, Evaluation};

/// The format of the lines; a reader of a newer one does not guess.
pub const AUDIT_FORMAT: u32 = 1;

const MAX_NAME: usize = 256;
const MAX_REASON: usize = 2_000;
const MAX_ARGUMENTS: usize = 64 * 1024;
/// Most lines are shorter.
pub(super) const USUAL_LINE: usize = 640;

/// What is recorded of one request. Only `operation` is always known.
#[derive(Clone, Debug, Default)]
pub struct AuditLine {
    /// Who called.
    pub agent: Option<String>,
    /// How that is known.
    pub known_by: Option<KnownBy>,
    /// What was asked for: `execute_tool`, `list_servers`, `run_subagent`, `approval` …
    pub operation: Cow<'static, str>,
    /// Of which server.
    pub server: Option<String>,
    /// Which tool, or which agent for `run_subagent`.
    pub tool: Option<String>,
    /// Allowed or denied.
    pub decision: Option<Decision>,
    /// The path of the rule that decided.
    pub rule: Option<String>,
    /// The sentence that the caller was told.
    pub reason: Option<String>,
    /// How long it took, in microseconds.
    pub latency_us: Option<u64>,
    /// The code of the error, if it ended with one.
    pub error: Option<String>,
    /// The size of the request's arguments.
    pub request_bytes: Option<u64>,
    /// The size of the answer.
    pub response_bytes: Option<u64>,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// The call's id, as the client or Claude Code gave it.
    pub call_id: Option<String>,
    /// The arguments; written only as far as the log's options say.
    pub arguments: Option<Value>,
    /// What the rules said: the decision, its rule and its sentence, where nothing else is said above.
    pub verdict: Option<Arc<Evaluation>>,
    /// Which old lines were removed, in the line that says so.
    pub(super) removed: Option<Removed>,
}

impl AuditLine {
    /// A line for an operation of which nothing else is known yet.
    pub fn new(operation: impl Into<Cow<'static, str>>) -> Self {
        Self { operation: operation.into(), ..Self::default() }
    }

    /// Adds who called.
    #[must_use]
    pub fn by(mut self, caller: &Caller) -> Self {
        self.agent = Some(caller.name.clone());
        self.known_by = Some(caller.known_by);
        self
    }

    /// Adds the server and the tool that were asked for.
    #[must_use]
    pub fn on(mut self, server: &str, tool: Option<&str>) -> Self {
        self.server = Some(server.to_owned());
        self.tool = tool.map(str::to_owned);
        self
    }

    /// Adds that it was refused before any rule was asked, by which word and in which sentence.
    #[must_use]
    pub fn refused(mut self, code: &str, sentence: String) -> Self {
        self.decision = Some(Decision::Deny);
        self.error = Some(code.to_owned());
        self.reason = Some(sentence);
        self
    }

    /// Adds the decision with its rule and sentence.
    #[must_use]
    pub fn judged(mut self, evaluation: Arc<Evaluation>) -> Self {
        self.verdict = Some(evaluation);
        self
    }
}

/// How much of a request's arguments is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentDetail {
    /// Nothing.
    #[default]
    Never,
    /// Their names, kinds and sizes.
    Redacted,
    /// Everything, up to 64 KiB.
    Full,
}

/// The line as it is stored; the order of the fields is the order in the file.
#[derive(Serialize)]
struct Stored<'a> {
    format: u32,
    seq: u64,
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known_by: Option<KnownBy>,
    operation: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<&'a Removed>,
    prev: &'a str,
}

/// Where a line stands in the chain.
pub(super) struct Link<'a> {
    pub(super) seq: u64,
    /// Now, as it is written.
    pub(super) time: &'a str,
    pub(super) prev: &'a str,
}

/// Writes a line behind what is in `text`, without its line feed.
pub(super) fn encode(
    line: &AuditLine,
    position: &Link<'_>,
    detail: ArgumentDetail,
    text: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let (before, verdict) = (text.len(), line.verdict.as_deref());
    let rule = line.rule.as_deref().or(verdict.map(|verdict| &*verdict.rule.path));
    let reason = line.reason.as_deref().or(verdict.map(Evaluation::sentence));
    let stored = Stored {
        format: AUDIT_FORMAT,
        seq: position.seq,
        time: position.time,
        agent: cut(line.agent.as_deref(), MAX_NAME),
        known_by: line.known_by,
        operation: shortened(&line.operation, MAX_NAME),
        server: cut(line.server.as_deref(), MAX_NAME),
        tool: cut(line.tool.as_deref(), MAX_NAME),
        decision: line.decision.or(verdict.map(|verdict| verdict.decision)),
        rule: cut(rule, MAX_REASON),
        reason: cut(reason, MAX_REASON),
        latency_us: line.latency_us,
        error: cut(line.error.as_deref(), MAX_NAME),
        request_bytes: line.request_bytes,
        response_bytes: line.response_bytes,
        run_id: line.run_id.map(|id| id.to_string()),
        call_id: cut(line.call_id.as_deref(), MAX_NAME),
        arguments: line.arguments.as_ref().and_then(|value| detailed(value, detail)),
        removed: line.removed.as_ref(),
        prev: position.prev,
    };
    serde_json::to_writer(&mut *text, &stored)?;
    if !is_plain(text.get(before..).unwrap_or_default()) {
        // What serde_json writes is always UTF-8.
        let odd = String::from_utf8(text.split_off(before)).unwrap_or_default();
        text.extend_from_slice(escape_controls(odd).as_bytes());
    }
    Ok(())
}

fn cut(text: Option<&str>, most: usize) -> Option<Cow<'_, str>> {
    text.map(|text| shortened(text, most))
}

fn detailed(arguments: &Value, detail: ArgumentDetail) -> Option<Value> {
    match detail {
        ArgumentDetail::Never => None,
        ArgumentDetail::Redacted => Some(redacted(arguments)),
        ArgumentDetail::Full => {
            let bytes = arguments.to_string().len();
            let whole = bytes <= MAX_ARGUMENTS;
            Some(if whole { arguments.clone() } else { json!({ "left_out_bytes": bytes }) })
        }
    }
}

/// Names, kinds and sizes of the arguments, one level deep: enough to see what was done, too little to leak.
fn redacted(arguments: &Value) -> Value {
    let Value::Object(members) = arguments else { return Value::from(kind(arguments)) };
    let shown: Map<String, Value> = members
        .iter()
        .take(64)
        .map(|(name, value)| (shorten(name, 64), Value::from(kind(value))))
        .collect();
    Value::Object(shown)
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(text) => format!("text of {}", text.chars().count()),
        Value::Array(items) => format!("list of {}", items.len()),
        Value::Object(members) => format!("object of {}", members.len()),
    }
}

/// Whether there is nothing in it but what everybody reads the same way.
fn is_plain(json: &[u8]) -> bool {
    // Without leaving early, which lets the compiler look at many at once.
    json.iter().fold(true, |so_far, byte| so_far & matches!(byte, b' '..=b'~'))
}

/// JSON escapes what ends a line in ASCII; some readers also break lines, or turn text around, at other characters.
pub(super) fn escape_controls(json: String) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if is_plain(json.as_bytes()) || !json.contains(harmful) {
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
