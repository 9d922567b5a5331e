//! What a run or a session has begun and not ended in the record, after whoever wrote it was killed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::event::{Event, RunSubject};
use super::event_reader::{RecordedEvent, read_about};
use super::events::EventLog;
use super::redaction::Redactor;
use super::session_card::{millis, untold, whose};
use crate::base::{RunId, Timestamp};

/// How long the log may be busy.
const PATIENCE: Duration = Duration::from_secs(2);
const WHY: &str = "the server ended while the run was going on";

/// A run that whoever did it can no longer end.
#[derive(Clone, Copy, Debug)]
pub struct LeftRun<'a> {
    /// The run.
    pub run: RunId,
    /// The agent's name.
    pub agent: &'a str,
    /// Where its transcript is, where the record does not know it yet.
    pub transcript: Option<&'a Path>,
}

impl EventLog {
    /// Ends in the record what a run has left open, `RunEnded` with these details as the last. Nothing is written where it
    /// has ended; and what is written is on its way to the disk when this returns.
    pub fn end_run(&self, left: LeftRun<'_>, details: Value) -> io::Result<()> {
        self.exclusively(PATIENCE, |write| write(&closing_events(self.file(), left, details)?))
    }
}

fn closing_events(path: &Path, left: LeftRun<'_>, details: Value) -> io::Result<Vec<Event>> {
    let mut open = Unclosed::default();
    read_about(path, None, &left.run.to_string(), |_, event| {
        if event.run() == Some(left.run) {
            open.take(&event);
        }
    })?;
    if open.is_over {
        return Ok(Vec::new());
    }
    let mut subject = RunSubject::new(left.run, left.agent, None);
    subject.session_id = open.session_id.take();
    let known = open.transcript.take().map(PathBuf::from);
    subject.transcript = known.or_else(|| left.transcript.map(Path::to_path_buf));
    Ok(open.close(&subject, details))
}

/// What has begun and not ended.
#[derive(Default)]
pub(super) struct Unclosed {
    queued: Option<Timestamp>,
    is_over: bool,
    session: Option<Started>,
    session_id: Option<String>,
    transcript: Option<String>,
    caller: Option<Value>,
    calls: BTreeMap<String, Started>,
    natives: BTreeMap<String, Started>,
    last_seen: Option<Timestamp>,
}

/// Something that began, with what its end must say.
struct Started {
    since: Timestamp,
    told: Map<String, Value>,
}

impl Unclosed {
    pub(super) fn take(&mut self, event: &RecordedEvent) {
        let text = |key| event.text(key).unwrap_or_default().to_owned();
        let started = || Started { since: event.time, told: whose(&event.fields) };
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
            "RunEnded" => self.is_over = true,
            "SessionStart" => drop(self.session.get_or_insert_with(started)),
            "SessionEnd" => self.session = None,
            "PreToolUse" => drop(self.calls.insert(text("tool_use_id"), started())),
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(&text("tool_use_id"));
            }
            "SubagentStart" => drop(self.natives.insert(text("agent_id"), started())),
            "SubagentStop" => drop(self.natives.remove(&text("agent_id"))),
            _ => {}
        }
    }

    /// When its last event was.
    pub(super) fn last_seen(&self) -> Option<Timestamp> {
        self.last_seen
    }

    /// The ends of everything that is open, as payloads; `reason` is the session's.
    pub(super) fn ends(
        &mut self,
        why: &str,
        reason: &str,
        until: Timestamp,
    ) -> Vec<Map<String, Value>> {
        let end = |name: &str, started: Started, why: &str| {
            let mut payload = started.told;
            payload.insert("hook_event_name".to_owned(), name.into());
            payload.insert("duration_ms".to_owned(), millis(started.since, until).into());
            payload.extend(untold(name, why));
            payload
        };
        let calls = std::mem::take(&mut self.calls).into_values();
        let natives = std::mem::take(&mut self.natives).into_values();
        let calls = calls.map(|call| end("PostToolUseFailure", call, why));
        let natives = natives.map(|native| end("SubagentStop", native, why));
        let session = self.session.take().map(|session| end("SessionEnd", session, reason));
        calls.chain(natives).chain(session).collect()
    }

    fn close(mut self, subject: &RunSubject, details: Value) -> Vec<Event> {
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
        // When the server was killed, nobody knows: its last word counts.
        let until = self.last_seen;
        if let Some(until) = until {
            for payload in self.ends(WHY, "interrupted", until) {
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
