//! The events of one run: what came over its pipe and what we know ourselves, every start with its stop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::go_on::Foreseen;
use super::hook_answer::Together;
use super::hooks::Hooks;
use super::spans::RunTrace;
use crate::base::{Timestamp, now, one_line, shorten};
use crate::claude::{ApprovalRequest, Init, ResultFrame, ToolUse, Usage};
use crate::outcome::{Failure, Outcome, Report};
use crate::record::{EventLog, Redactor, RunSubject};

/// Characters of an answer that did not fit.
const MOST_OF_AN_ANSWER: usize = 2_000;

/// Writes down what happens in a run. Nothing here waits for the disk.
pub(super) struct Recorder {
    log: EventLog,
    redactor: Redactor,
    hooks: Hooks,
    trace: Option<RunTrace>,
    state: Mutex<State>,
}

struct State {
    subject: RunSubject,
    /// Set from the beginning of the conversation to its end.
    session: Option<Instant>,
    /// When the agent was last told what to do.
    turn: Option<Instant>,
    /// What the agent is being told, until the turn begins.
    prompt: Option<String>,
    /// Where and how the CLI works, as it said when the turn began.
    around: Map<String, Value>,
    /// Tool calls that have begun and not ended, by id.
    calls: BTreeMap<String, Open>,
    /// Native subagents that have begun and not ended, by id.
    natives: BTreeMap<String, Open>,
    usage: Usage,
    source: &'static str,
    is_over: bool,
}

/// Something that began, with what its end must name.
struct Open {
    name: String,
    since: Instant,
    began: Timestamp,
}

/// Where the events of a run go, besides the log.
pub(super) struct Outlets {
    /// What must not stand in the log.
    pub(super) redactor: Redactor,
    /// The user's own commands.
    pub(super) hooks: Hooks,
    /// A collector of spans.
    pub(super) trace: Option<RunTrace>,
}

impl Recorder {
    /// Begins the record of a run that waits for its turn.
    pub(super) fn queued(log: EventLog, outlets: Outlets, subject: RunSubject) -> Self {
        let Outlets { redactor, hooks, trace } = outlets;
        let state = State {
            subject,
            session: None,
            turn: None,
            prompt: None,
            around: Map::new(),
            calls: BTreeMap::new(),
            natives: BTreeMap::new(),
            usage: Usage::default(),
            source: "startup",
            is_over: false,
        };
        let recorder = Self { log, redactor, hooks, trace, state: Mutex::new(state) };
        recorder.add(&recorder.state(), "RunQueued", json!({}));
        recorder
    }

    /// It is settled which conversation the run is part of.
    pub(super) fn belongs_to(&self, conversation: Foreseen) {
        let mut state = self.state();
        state.subject.session_id = Some(conversation.session_id.to_string());
        state.subject.transcript = Some(conversation.transcript);
    }

    /// A process works for the run; `source` is how its conversation begins: `startup` or `resume`.
    pub(super) fn started(&self, pid: u32, source: &'static str) {
        let mut state = self.state();
        state.source = source;
        self.add(&state, "RunStarted", json!({ "pid": pid }));
    }

    /// A hook's payload came over the pipe; gives it back as hooks of the user see it.
    pub(super) fn hook(&self, event: &str, mut payload: Map<String, Value>) -> Map<String, Value> {
        let mut state = self.state();
        payload.insert("hook_event_name".to_owned(), event.into());
        state.learn(&payload);
        self.begin_session(&mut state, None);
        if let Some(since) = state.turn_of(event, &payload) {
            payload.insert("duration_ms".to_owned(), millis(since));
        }
        if let Some(open) = state.pair(event, &payload) {
            payload.insert("duration_ms".to_owned(), millis(open.since));
            if event != "SubagentStop" {
                let id = payload.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                self.trace_tool(&open, id, why_it_failed(event, &payload));
            }
        }
        let payload = state.subject.complete(payload);
        if !state.is_over {
            self.log.append(&state.subject.hook_event(payload.clone(), &self.redactor));
        }
        payload
    }

    /// The agent wants to use a tool.
    pub(super) fn tool_wanted(&self, tool_use: &ToolUse) -> Map<String, Value> {
        let mut payload = tool_use.payload.clone();
        payload.insert("tool_name".to_owned(), tool_use.tool_name.clone().into());
        payload.insert("tool_input".to_owned(), tool_use.input.clone());
        payload.insert("tool_use_id".to_owned(), tool_use.tool_use_id.clone().into());
        self.hook("PreToolUse", payload)
    }

    /// Nothing that is pre-approved covers the call: somebody must decide.
    pub(super) fn permission_asked(&self, request: &ApprovalRequest) -> Map<String, Value> {
        let payload = Map::from_iter([
            ("tool_name".to_owned(), request.tool_name.clone().into()),
            ("tool_input".to_owned(), request.input.clone()),
            ("tool_use_id".to_owned(), request.tool_use_id.clone().into()),
            ("permission_suggestions".to_owned(), json!(request.suggestions)),
        ]);
        self.hook("PermissionRequest", payload)
    }

    /// A call was refused, by whomever.
    pub(super) fn denied(&self, tool_use_id: &str, tool: &str, reason: &str) {
        let mut payload = Map::from_iter([
            ("tool_name".to_owned(), tool.into()),
            ("reason".to_owned(), shorten(&one_line(reason), 500).into()),
        ]);
        if !tool_use_id.is_empty() {
            payload.insert("tool_use_id".to_owned(), tool_use_id.into());
        }
        let payload = self.hook("PermissionDenied", payload);
        self.hooks.tell("PermissionDenied", &payload);
    }

    /// What hooks of the user say to an event; `None` where there are none.
    pub(super) async fn ask_hooks(
        &self,
        event: &str,
        payload: &Map<String, Value>,
    ) -> Option<Together> {
        self.hooks.ask(event, payload).await
    }

    /// The agent is being told something; it stands in the record as soon as the CLI has begun with it.
    pub(super) fn prompted(&self, message: &str) {
        self.state().prompt = Some(message.to_owned());
    }

    /// A turn began; no hook tells of the conversation's start.
    pub(super) fn session_seen(&self, init: &Init) {
        let prompt = {
            let mut state = self.state();
            state.seen_in(&init.session_id);
            self.begin_session(&mut state, Some(&init.model));
            state.around = Map::from_iter([
                ("cwd".to_owned(), init.cwd.clone().into()),
                ("permission_mode".to_owned(), init.permission_mode.clone().into()),
            ]);
            state.prompt.take()
        };
        if let Some(prompt) = prompt {
            self.seen("UserPromptSubmit", [("prompt", prompt.into())]);
        }
    }

    /// The agent has said what it had to say.
    pub(super) fn stopped(&self, result: &ResultFrame) {
        let words = json!(result.result);
        self.seen("Stop", [("stop_hook_active", false.into()), ("last_assistant_message", words)]);
    }

    /// What the CLI would have told a hook.
    fn seen<const N: usize>(&self, event: &str, details: [(&str, Value); N]) {
        let mut payload = self.state().around.clone();
        payload.extend(details.map(|(key, value)| (key.to_owned(), value)));
        self.hook(event, payload);
    }

    fn begin_session(&self, state: &mut State, model: Option<&str>) {
        if state.session.is_none() && !state.is_over {
            state.session = Some(Instant::now());
            self.add(state, "SessionStart", json!({ "source": state.source, "model": model }));
        }
    }

    /// The model was told a result. Where no hook told of it, this is the call's end.
    pub(super) fn tool_seen(&self, tool_use_id: &str, is_error: bool, text: &str) {
        let mut state = self.state();
        let Some(open) = state.calls.remove(tool_use_id) else { return };
        let name = if is_error { "PostToolUseFailure" } else { "PostToolUse" };
        let told = shorten(text, 2_000);
        let key = if is_error { "error" } else { "tool_response" };
        let details = json!({
            "tool_name": &open.name, "tool_use_id": tool_use_id, "duration_ms": millis(open.since), key: told,
        });
        self.add(&state, name, details);
        self.trace_tool(&open, tool_use_id, is_error.then(|| shorten(&one_line(text), 200)));
    }

    fn trace_tool(&self, open: &Open, id: &str, error: Option<String>) {
        if let Some(trace) = &self.trace {
            trace.tool(&open.name, id, open.began, error);
        }
    }

    /// The place in the trace that the run's process gets, where there is a trace.
    pub(super) fn traceparent(&self) -> Option<String> {
        self.trace.as_ref().map(RunTrace::traceparent)
    }

    /// The process is done with the run, or gone: whatever is open is over.
    pub(super) fn session_ended(&self, reason: &str, usage: Usage) {
        let mut state = self.state();
        state.usage += usage;
        self.close(&mut state, reason);
    }

    /// The run is over.
    pub(super) fn ended(&self, report: &Report, timing: &Map<String, Value>) {
        let mut state = self.state();
        let outcome = match &report.outcome {
            Outcome::Answered(_) => "SUCCESS",
            Outcome::Failed(failure) => failure.code.as_str(),
        };
        let failure = match &report.outcome {
            Outcome::Answered(_) => None,
            Outcome::Failed(failure) => Some(failure),
        };
        let error = failure.map(Failure::sentence);
        // What was wrong with an answer cannot be understood without the answer.
        let wrong = failure.filter(|failure| !failure.errors.is_empty());
        let answer = wrong.and_then(|failure| failure.partial.as_deref());
        let denials = (!report.denials.is_empty()).then_some(&report.denials);
        let details = json!({
            "outcome": outcome, "duration_ms": report.duration_ms, "cost_usd": report.cost_usd,
            "turns": report.turns, "tokens": tokens(state.usage), "session_id": report.session_id,
            "error": error, "errors": wrong.map(|failure| &failure.errors),
            "last_answer": answer.map(|text| shorten(text, MOST_OF_AN_ANSWER)),
            "denials": denials, "timing_ms": timing,
        });
        self.finish(&mut state, outcome, details);
    }

    fn finish(&self, state: &mut State, reason: &str, details: Value) {
        if state.is_over {
            return;
        }
        self.close(state, reason);
        if let Some(trace) = &self.trace {
            trace.end(&state.subject, &details);
        }
        self.add(state, "RunEnded", details);
        state.is_over = true;
    }

    fn close(&self, state: &mut State, reason: &str) {
        for (id, call) in std::mem::take(&mut state.calls) {
            let details = json!({
                "tool_name": &call.name, "tool_use_id": &id, "duration_ms": millis(call.since),
                "error": "the run ended before the tool", "is_interrupt": true,
            });
            self.add(state, "PostToolUseFailure", details);
            self.trace_tool(&call, &id, Some("the run ended before the tool".to_owned()));
        }
        for (id, native) in std::mem::take(&mut state.natives) {
            let details = json!({
                "agent_id": id, "agent_type": native.name, "duration_ms": millis(native.since), "reason": reason,
                "transcript_path": state.subject.transcript,
            });
            self.add(state, "SubagentStop", details);
        }
        if let Some(since) = state.session.take() {
            self.add(
                state,
                "SessionEnd",
                json!({ "reason": reason, "duration_ms": millis(since) }),
            );
        }
    }

    fn add(&self, state: &State, name: &str, details: Value) {
        let payload = state.subject.payload(name, details);
        self.hooks.tell(name, &payload);
        self.log.append(&state.subject.hook_event(payload, &self.redactor));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fault of ours must not leave a run open in the record.
impl Drop for Recorder {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_over {
            let error = "a fault inside Adjutant ended the run";
            let details = json!({ "outcome": "INTERRUPTED", "error": error });
            self.finish(&mut state, "INTERRUPTED", details);
        }
    }
}

impl State {
    /// Which conversation it is, and where its transcript is; a native subagent inside speaks of the same.
    fn learn(&mut self, payload: &Map<String, Value>) {
        let text =
            |key: &str| payload.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(session) = text("session_id") {
            self.subject.session_id = Some(session.to_owned());
        }
        if let Some(path) = text("transcript_path") {
            self.subject.transcript = Some(PathBuf::from(path));
        }
    }

    /// The CLI names the conversation. One that could not be told which it should be has chosen itself.
    fn seen_in(&mut self, session_id: &str) {
        if self.subject.session_id.as_deref() != Some(session_id) && !session_id.is_empty() {
            let transcript = self.subject.transcript.take();
            self.subject.transcript =
                transcript.map(|path| path.with_file_name(format!("{session_id}.jsonl")));
            self.subject.session_id = Some(session_id.to_owned());
        }
    }

    /// Notes the beginning of a turn; at its end, when that was. Native subagents inside have none.
    fn turn_of(&mut self, event: &str, payload: &Map<String, Value>) -> Option<Instant> {
        let is_inside =
            payload.get("agent_id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        match event {
            "UserPromptSubmit" if !is_inside => {
                self.turn = Some(Instant::now());
                None
            }
            "Stop" if !is_inside => self.turn,
            _ => None,
        }
    }

    /// Notes a start; for an end, what had begun.
    fn pair(&mut self, event: &str, payload: &Map<String, Value>) -> Option<Open> {
        let text =
            |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let begun = |name: &str| Open { name: text(name), since: Instant::now(), began: now() };
        match event {
            "PreToolUse" => {
                self.calls.insert(text("tool_use_id"), begun("tool_name"));
                None
            }
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(&text("tool_use_id"))
            }
            "SubagentStart" => {
                self.natives.insert(text("agent_id"), begun("agent_type"));
                None
            }
            "SubagentStop" => self.natives.remove(&text("agent_id")),
            _ => None,
        }
    }
}

fn why_it_failed(event: &str, payload: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
    match event {
        "PostToolUse" => None,
        "PermissionDenied" => Some("denied".to_owned()),
        _ => Some(shorten(&one_line(text("error")), 200)),
    }
}

/// What a run has read and written; nothing where nothing was told.
fn tokens(usage: Usage) -> Option<Value> {
    (usage != Usage::default()).then(|| {
        json!({
            "input": usage.input_tokens, "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens, "cache_creation": usage.cache_creation_input_tokens,
        })
    })
}

fn millis(since: Instant) -> Value {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX).into()
}
