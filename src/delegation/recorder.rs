//! Event recorder of one run: hook events of the CLI and events we derive, every start with its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::in_session::ExpectedSession;
use super::run_trace::RunTrace;
use super::user_hooks::{HookResult, UserHooks};
use crate::api::{ErrorObject, round_usd};
use crate::claude::{InitFrame, PermissionRequest, ResultFrame, TokenUsage, ToolUse};
use crate::events::{EventLog, RunSubject};
use crate::outcome::{Denial, Failure, Outcome, Report};
use crate::util::{Mutex, Redactor, Timestamp, now, one_line, shorten};

/// Limit of an invalid answer in the event log.
const MAX_ANSWER_CHARS: usize = 2_000;

/// Records the events of one run. Never blocks on file I/O.
pub(crate) struct RunRecorder {
    log: EventLog,
    redactor: Redactor,
    hooks: UserHooks,
    trace: Option<RunTrace>,
    state: Mutex<RecorderState>,
}

struct RecorderState {
    subject: RunSubject,
    /// True for an agent in a sandbox, whose `claude` reports a path inside.
    has_own_transcript: bool,
    /// Start of the session, until it ends.
    session_start: Option<Instant>,
    /// Time of the last prompt.
    turn_start: Option<Instant>,
    /// Prompt that was sent, until its turn begins.
    pending_prompt: Option<String>,
    /// Working directory and permission mode that the CLI reported at the start of the turn.
    turn_context: Map<String, Value>,
    /// Tool calls in progress, by `tool_use_id`.
    tool_calls: BTreeMap<String, OpenSpan>,
    /// Native subagents in progress, by id.
    native_subagents: BTreeMap<String, OpenSpan>,
    usage: TokenUsage,
    source: &'static str,
    is_ended: bool,
}

/// A start event with the data that its end event repeats.
struct OpenSpan {
    name: String,
    started: Instant,
    started_at: Timestamp,
}

impl RunRecorder {
    /// Starts recording a run that waits for admission: records `RunQueued`.
    pub(crate) fn queued(
        log: EventLog,
        redactor: Redactor,
        hooks: UserHooks,
        trace: Option<RunTrace>,
        subject: RunSubject,
    ) -> Self {
        let state = RecorderState {
            subject,
            has_own_transcript: false,
            session_start: None,
            turn_start: None,
            pending_prompt: None,
            turn_context: Map::new(),
            tool_calls: BTreeMap::new(),
            native_subagents: BTreeMap::new(),
            usage: TokenUsage::default(),
            source: "startup",
            is_ended: false,
        };
        let recorder = Self { log, redactor, hooks, trace, state: Mutex::new(state) };
        recorder.append(&recorder.state.lock(), "RunQueued", json!({}));
        recorder
    }

    /// Sets session id and transcript path of the run.
    pub(crate) fn attach_session(&self, conversation: ExpectedSession) {
        let mut state = self.state.lock();
        state.subject.session_id = Some(conversation.session_id.to_string());
        state.subject.transcript = Some(conversation.transcript);
        state.has_own_transcript = conversation.is_sandboxed;
    }

    /// Records the process of the run; `source` is `startup` or `resume`.
    pub(crate) fn process_started(&self, pid: u32, source: &'static str) {
        let mut state = self.state.lock();
        state.source = source;
        self.append(&state, "RunStarted", json!({ "pid": pid }));
    }

    /// Records a hook event and returns the completed payload for the user's hooks.
    pub(crate) fn hook_event(
        &self,
        event: &str,
        mut payload: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut state = self.state.lock();
        payload.insert("hook_event_name".to_owned(), event.into());
        state.update_session(&payload);
        self.begin_session(&mut state, None);
        if let Some(since) = state.track_turn(event, &payload) {
            payload.insert("duration_ms".to_owned(), elapsed_ms(since));
        }
        if let Some(open) = state.track_span(event, &payload) {
            payload.insert("duration_ms".to_owned(), elapsed_ms(open.started));
            if event != "SubagentStop" {
                let id = text(&payload, "tool_use_id");
                self.trace_tool(&open, id, tool_error(event, &payload));
            }
        }
        let payload = state.subject.add_run_fields(payload);
        if !state.is_ended {
            self.log.append(&state.subject.hook_event(payload.clone(), &self.redactor));
        }
        payload
    }

    /// Records `PreToolUse`.
    pub(crate) fn pre_tool_use(&self, tool_use: &ToolUse) -> Map<String, Value> {
        let ToolUse { tool_name, input, tool_use_id, payload } = tool_use;
        let call =
            json!({ "tool_name": tool_name, "tool_input": input, "tool_use_id": tool_use_id });
        self.hook_event("PreToolUse", with_members(payload.clone(), call))
    }

    /// Records `PermissionRequest`: no rule allows the call.
    pub(crate) fn permission_request(&self, request: &PermissionRequest) -> Map<String, Value> {
        let PermissionRequest { tool_name, input, tool_use_id, suggestions, .. } = request;
        let call = json!({
            "tool_name": tool_name, "tool_input": input, "tool_use_id": tool_use_id, "permission_suggestions": suggestions,
        });
        self.hook_event("PermissionRequest", with_members(Map::new(), call))
    }

    /// Records `PermissionDenied` and notifies the user's hooks.
    pub(crate) fn permission_denied(&self, tool_use_id: &str, tool: &str, reason: &str) {
        let denial = json!({ "tool_name": tool, "reason": shorten(&one_line(reason), 500) });
        let mut payload = with_members(Map::new(), denial);
        if !tool_use_id.is_empty() {
            payload.insert("tool_use_id".to_owned(), tool_use_id.into());
        }
        let payload = self.hook_event("PermissionDenied", payload);
        self.hooks.notify("PermissionDenied", &payload);
    }

    /// Runs the user's hooks for an event; `None` if none matches.
    pub(crate) async fn run_hooks(
        &self,
        event: &str,
        payload: &Map<String, Value>,
    ) -> Option<HookResult> {
        self.hooks.run_matching(event, payload).await
    }

    /// Sets the prompt; `UserPromptSubmit` is recorded when the turn begins.
    pub(crate) fn prompt_sent(&self, message: &str) {
        self.state.lock().pending_prompt = Some(message.to_owned());
    }

    /// Records `SessionStart` and the pending prompt at the `init` frame, which no hook reports.
    pub(crate) fn turn_started(&self, init: &InitFrame) {
        let mut state = self.state.lock();
        state.set_reported_session(&init.session_id);
        self.begin_session(&mut state, Some(&init.model));
        let context = json!({ "cwd": init.cwd, "permission_mode": init.permission_mode });
        state.turn_context = with_members(Map::new(), context);
        let prompt = state.pending_prompt.take();
        drop(state);
        if let Some(prompt) = prompt {
            self.derived_event("UserPromptSubmit", json!({ "prompt": prompt }));
        }
    }

    /// Records `Stop`.
    pub(crate) fn turn_stopped(&self, result: &ResultFrame) {
        let details = json!({ "stop_hook_active": false, "last_assistant_message": result.result });
        self.derived_event("Stop", details);
    }

    /// Records an event as if a hook had reported it.
    fn derived_event(&self, event: &str, details: Value) {
        let context = self.state.lock().turn_context.clone();
        self.hook_event(event, with_members(context, details));
    }

    fn begin_session(&self, state: &mut RecorderState, model: Option<&str>) {
        if state.session_start.is_none() && !state.is_ended {
            state.session_start = Some(Instant::now());
            self.append(state, "SessionStart", json!({ "source": state.source, "model": model }));
        }
    }

    /// Records the result of a tool call, unless a hook has reported it.
    pub(crate) fn tool_result(&self, tool_use_id: &str, is_error: bool, text: &str) {
        let mut state = self.state.lock();
        let Some(open) = state.tool_calls.remove(tool_use_id) else { return };
        let name = if is_error { "PostToolUseFailure" } else { "PostToolUse" };
        let told = shorten(text, 2_000);
        let key = if is_error { "error" } else { "tool_response" };
        let details = json!({
            "tool_name": &open.name, "tool_use_id": tool_use_id, "duration_ms": elapsed_ms(open.started), key: told,
        });
        self.append(&state, name, details);
        self.trace_tool(&open, tool_use_id, is_error.then(|| shorten(&one_line(text), 200)));
    }

    fn trace_tool(&self, open: &OpenSpan, id: &str, error: Option<String>) {
        if let Some(trace) = &self.trace {
            trace.send_tool_span(&open.name, id, open.started_at, error);
        }
    }

    /// Returns the `TRACEPARENT` for the process, if the run is traced.
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.trace.as_ref().map(RunTrace::traceparent)
    }

    /// Closes all open spans: the process is done with the run or has exited.
    pub(crate) fn session_ended(&self, reason: &str, usage: TokenUsage) {
        let mut state = self.state.lock();
        state.usage += usage;
        self.close_spans(&mut state, reason);
    }

    /// Records `RunEnded`.
    pub(crate) fn run_ended(&self, report: &Report, timing: &impl Serialize) {
        let mut state = self.state.lock();
        let (outcome, failure) = match &report.outcome {
            Outcome::Answered(_) => ("SUCCESS", None),
            Outcome::Failed(failure) => (failure.code.as_str(), Some(failure)),
        };
        let error = failure.map(Failure::to_object);
        // An invalid answer is needed to understand its errors.
        let wrong = failure.filter(|failure| !failure.errors.is_empty());
        let answer = wrong.and_then(|failure| failure.partial.as_deref());
        let denials: Vec<_> = report.denials.iter().map(Denial::to_object).collect();
        let denials = (!denials.is_empty()).then_some(denials);
        let details = json!({
            "outcome": outcome, "duration_ms": report.duration_ms, "cost_usd": report.cost_usd.map(round_usd),
            "turns": report.turns, "tokens": token_counts(state.usage), "session_id": report.session_id,
            "error": error,
            "last_answer": answer.map(|text| shorten(text, MAX_ANSWER_CHARS)),
            "denials": denials, "timing": timing,
        });
        self.finish(&mut state, outcome, details);
    }

    fn finish(&self, state: &mut RecorderState, reason: &str, details: Value) {
        if state.is_ended {
            return;
        }
        self.close_spans(state, reason);
        if let Some(trace) = &self.trace {
            trace.send_run_span(&state.subject, &details);
        }
        self.append(state, "RunEnded", details);
        state.is_ended = true;
    }

    fn close_spans(&self, state: &mut RecorderState, reason: &str) {
        for (id, call) in std::mem::take(&mut state.tool_calls) {
            let details = json!({
                "tool_name": &call.name, "tool_use_id": &id, "duration_ms": elapsed_ms(call.started),
                "error": "the run ended before the tool", "is_interrupt": true,
            });
            self.append(state, "PostToolUseFailure", details);
            self.trace_tool(&call, &id, Some("the run ended before the tool".to_owned()));
        }
        for (id, native) in std::mem::take(&mut state.native_subagents) {
            let details = json!({
                "agent_id": id, "agent_type": native.name, "duration_ms": elapsed_ms(native.started), "reason": reason,
                "transcript_path": state.subject.transcript,
            });
            self.append(state, "SubagentStop", details);
        }
        if let Some(since) = state.session_start.take() {
            let details = json!({ "reason": reason, "duration_ms": elapsed_ms(since) });
            self.append(state, "SessionEnd", details);
        }
    }

    /// Appends an event, unless the run has ended: a control request in progress may keep the recorder longer.
    fn append(&self, state: &RecorderState, name: &str, details: Value) {
        if state.is_ended {
            return;
        }
        let payload = state.subject.payload(name, details);
        self.hooks.notify(name, &payload);
        self.log.append(&state.subject.hook_event(payload, &self.redactor));
    }
}

/// Records `RunEnded` with outcome `INTERRUPTED` if the run panicked.
impl Drop for RunRecorder {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if !state.is_ended {
            let error = ErrorObject::new("INTERRUPTED", "a fault inside Adjutant ended the run");
            let details = json!({ "outcome": "INTERRUPTED", "error": error });
            self.finish(&mut state, "INTERRUPTED", details);
        }
    }
}

impl RecorderState {
    /// Takes session id and transcript path from a payload; native subagents report the same ones.
    fn update_session(&mut self, payload: &Map<String, Value>) {
        let given = |key| Some(text(payload, key)).filter(|text| !text.is_empty());
        if let Some(session) = given("session_id") {
            self.subject.session_id = Some(session.to_owned());
        }
        // In a sandbox `claude` sees it at another path.
        if let Some(path) = given("transcript_path").filter(|_| !self.has_own_transcript) {
            self.subject.transcript = Some(PathBuf::from(path));
        }
    }

    /// Sets the session id that the CLI reported.
    ///
    /// An older CLI chooses the id of an ephemeral session itself.
    fn set_reported_session(&mut self, session_id: &str) {
        if self.subject.session_id.as_deref() != Some(session_id) && !session_id.is_empty() {
            let transcript = self.subject.transcript.take();
            self.subject.transcript =
                transcript.map(|path| path.with_file_name(format!("{session_id}.jsonl")));
            self.subject.session_id = Some(session_id.to_owned());
        }
    }

    /// Stores the start of a turn; at its `Stop` returns the start. Ignores turns of native subagents.
    fn track_turn(&mut self, event: &str, payload: &Map<String, Value>) -> Option<Instant> {
        match event {
            _ if !text(payload, "agent_id").is_empty() => None,
            "UserPromptSubmit" => {
                self.turn_start = Some(Instant::now());
                None
            }
            "Stop" => self.turn_start,
            _ => None,
        }
    }

    /// Stores a start event; for an end event removes and returns the start.
    fn track_span(&mut self, event: &str, payload: &Map<String, Value>) -> Option<OpenSpan> {
        let text = |key: &str| text(payload, key).to_owned();
        let begun =
            |name: &str| OpenSpan { name: text(name), started: Instant::now(), started_at: now() };
        match event {
            "PreToolUse" => {
                self.tool_calls.insert(text("tool_use_id"), begun("tool_name"));
                None
            }
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.tool_calls.remove(&text("tool_use_id"))
            }
            "SubagentStart" => {
                self.native_subagents.insert(text("agent_id"), begun("agent_type"));
                None
            }
            "SubagentStop" => self.native_subagents.remove(&text("agent_id")),
            _ => None,
        }
    }
}

/// Adds the members of a JSON object to a payload.
fn with_members(mut payload: Map<String, Value>, members: Value) -> Map<String, Value> {
    if let Value::Object(members) = members {
        payload.extend(members);
    }
    payload
}

/// Returns a text in a payload; empty if there is none.
fn text<'p>(payload: &'p Map<String, Value>, key: &str) -> &'p str {
    payload.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn tool_error(event: &str, payload: &Map<String, Value>) -> Option<String> {
    match event {
        "PostToolUse" => None,
        "PermissionDenied" => Some("denied".to_owned()),
        _ => Some(shorten(&one_line(text(payload, "error")), 200)),
    }
}

/// Returns the token counts as JSON; `None` if all are zero.
fn token_counts(usage: TokenUsage) -> Option<Value> {
    (usage != TokenUsage::default()).then(|| {
        json!({
            "input": usage.input_tokens, "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens, "cache_creation": usage.cache_creation_input_tokens,
        })
    })
}

fn elapsed_ms(since: Instant) -> Value {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX).into()
}
