//! Writes missing end events of a run or session whose writer was killed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::event::{Event, RunSubject};
use super::log::{EventLog, LOCK_TIMEOUT};
use super::open_sessions::{StartedSpan, millis};
use super::reader::{RecordedEvent, read_containing};
use crate::util::{Redactor, RunId, Timestamp};

const SERVER_EXITED_REASON: &str = "the server ended while the run was going on";

/// A run whose server died before it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterruptedRun<'a> {
    pub run: RunId,
    /// Name of the agent.
    pub agent: &'a str,
    /// Path of the transcript, used if the log does not have it.
    pub transcript: Option<&'a Path>,
}

impl EventLog {
    /// Writes the ends of a run's open spans, and `RunEnded` with `details` as the last.
    ///
    /// Writes nothing if the run has ended. The events are written when this returns, but not fsynced.
    pub(crate) fn end_interrupted_run(
        &self,
        left: InterruptedRun<'_>,
        details: Value,
    ) -> io::Result<()> {
        self.with_lock(LOCK_TIMEOUT, |write| write(&closing_events(self.file(), left, details)?))
    }
}

fn closing_events(path: &Path, left: InterruptedRun<'_>, details: Value) -> io::Result<Vec<Event>> {
    let mut open = OpenSpans::default();
    // Format 1 has ids without hyphens: both forms end with the same 12 digits.
    let id = left.run.to_string();
    let word = id.rsplit('-').next().unwrap_or_default();
    read_containing(path, None, word, |_, event| {
        if event.run() == Some(left.run) {
            open.apply(&event);
        }
    })?;
    if open.has_ended {
        return Ok(Vec::new());
    }
    let mut subject = RunSubject::new(left.run, left.agent, None);
    subject.session_id = open.session_id.take();
    let known = open.transcript.take().map(PathBuf::from);
    subject.transcript = known.or_else(|| left.transcript.map(Path::to_path_buf));
    subject.keeps_transcript = subject.transcript.is_some();
    Ok(open.into_end_events(&subject, details))
}

/// Spans that have started and not ended.
#[derive(Default)]
pub(crate) struct OpenSpans {
    queued: Option<Timestamp>,
    has_ended: bool,
    session: Option<StartedSpan>,
    session_id: Option<String>,
    transcript: Option<String>,
    caller: Option<Value>,
    calls: BTreeMap<String, StartedSpan>,
    native_subagents: BTreeMap<String, StartedSpan>,
    last_seen: Option<Timestamp>,
}

impl OpenSpans {
    pub(crate) fn apply(&mut self, event: &RecordedEvent) {
        let text = |key| event.text(key).unwrap_or_default().to_owned();
        let started = || StartedSpan::new(&event.fields, event.time);
        self.last_seen = Some(event.time);
        if let Some(caller) = event.fields.get("caller") {
            self.caller = Some(caller.clone());
        }
        if let Some(session) = event.text("session_id") {
            self.session_id = Some(session.to_owned());
        }
        if let (Some(path), None) =
            (event.text("agent_transcript_path"), event.text("parent_agent_id"))
        {
            self.transcript = Some(path.to_owned());
        }
        match event.name() {
            "RunQueued" => self.queued = Some(event.time),
            "RunEnded" => self.has_ended = true,
            "SessionStart" => drop(self.session.get_or_insert_with(started)),
            "SessionEnd" => self.session = None,
            "PreToolUse" => drop(self.calls.insert(text("tool_use_id"), started())),
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(&text("tool_use_id"));
            }
            "SubagentStart" => drop(self.native_subagents.insert(text("agent_id"), started())),
            "SubagentStop" => drop(self.native_subagents.remove(&text("agent_id"))),
            _ => {}
        }
    }

    /// Returns the time of the last event.
    pub(crate) fn last_seen(&self) -> Option<Timestamp> {
        self.last_seen
    }

    /// Returns the ends of all open spans as payloads; `why` is the reason for calls and subagents, `reason` the
    /// session's.
    pub(crate) fn end_events(
        &mut self,
        why: &str,
        reason: &str,
        until: Timestamp,
    ) -> Vec<Map<String, Value>> {
        let calls = std::mem::take(&mut self.calls).into_values();
        let natives = std::mem::take(&mut self.native_subagents).into_values();
        let calls = calls.map(|call| call.into_end_event("PostToolUseFailure", until, why));
        let natives = natives.map(|native| native.into_end_event("SubagentStop", until, why));
        let session = self.session.take();
        let session = session.map(|session| session.into_end_event("SessionEnd", until, reason));
        calls.chain(natives).chain(session).collect()
    }

    fn into_end_events(mut self, subject: &RunSubject, details: Value) -> Vec<Event> {
        let caller = self.caller.take();
        let event = |name: &str, mut details: Map<String, Value>| {
            details.extend(caller.clone().map(|caller| ("caller".to_owned(), caller)));
            subject.event(name, Value::Object(details), &Redactor::default())
        };
        let mut events = Vec::new();
        if self.queued.is_none() {
            let note = json!({ "note": "recorded afterwards" });
            events.push(event("RunQueued", object(note)));
        }
        // The time at which the server was killed is unknown; the last event is used instead.
        let until = self.last_seen;
        if let Some(until) = until {
            for payload in self.end_events(SERVER_EXITED_REASON, "interrupted", until) {
                let name = payload.get("hook_event_name").and_then(Value::as_str);
                let name = name.unwrap_or_default().to_owned();
                events.push(event(&name, payload));
            }
        }
        let mut details = object(details);
        let took = self.queued.zip(until).map(|(queued, until)| millis(queued, until));
        details.extend(took.map(|took| ("duration_ms".to_owned(), took.into())));
        events.push(event("RunEnded", details));
        events
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
