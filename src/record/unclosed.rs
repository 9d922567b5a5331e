//! What a run has begun and not ended in the record, after whoever wrote it was killed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::event::{Event, RunSubject};
use super::event_reader::{RecordedEvent, read_events};
use super::redaction::Redactor;
use crate::base::RunId;

const WHY: &str = "the server ended while the run was going on";

/// The events that end what a run has left open, `RunEnded` with these details as the last; none where it has ended.
pub fn closing_events(
    path: &Path,
    run: RunId,
    agent: &str,
    details: Value,
) -> io::Result<Vec<Event>> {
    let mut open = Unclosed::default();
    read_events(path, None, |_, event| {
        if event.run() == Some(run) {
            open.take(&event);
        }
    })?;
    if open.is_over {
        return Ok(Vec::new());
    }
    let mut subject = RunSubject::new(run, agent, None);
    subject.session_id = open.session.take();
    subject.transcript = open.transcript.take().map(Into::into);
    Ok(open.close(&subject, details))
}

#[derive(Default)]
struct Unclosed {
    is_queued: bool,
    is_over: bool,
    is_in_session: bool,
    session: Option<String>,
    transcript: Option<String>,
    caller: Option<Value>,
    calls: BTreeMap<String, String>,
    natives: BTreeMap<String, String>,
}

impl Unclosed {
    fn take(&mut self, event: &RecordedEvent) {
        let text = |key| event.text(key).unwrap_or_default().to_owned();
        if let Some(caller) = event.fields.get("caller") {
            self.caller = Some(caller.clone());
        }
        if let Some(session) = event.text("session_id") {
            self.session = Some(session.to_owned());
        }
        if let (Some(path), None) =
            (event.text("agent_transcript_path"), event.text("parent_agent_id"))
        {
            self.transcript = Some(path.to_owned());
        }
        match event.name() {
            "RunQueued" => self.is_queued = true,
            "RunEnded" => self.is_over = true,
            "SessionStart" => self.is_in_session = true,
            "SessionEnd" => self.is_in_session = false,
            "PreToolUse" => drop(self.calls.insert(text("tool_use_id"), text("tool_name"))),
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(&text("tool_use_id"));
            }
            "SubagentStart" => drop(self.natives.insert(text("agent_id"), text("agent_type"))),
            "SubagentStop" => drop(self.natives.remove(&text("agent_id"))),
            _ => {}
        }
    }

    fn close(self, subject: &RunSubject, details: Value) -> Vec<Event> {
        let caller = self.caller;
        let event = |name: &str, mut details: Value| {
            if let (Some(caller), Some(details)) = (&caller, details.as_object_mut()) {
                details.insert("caller".to_owned(), caller.clone());
            }
            subject.event(name, details, &Redactor::default())
        };
        let mut events = Vec::new();
        if !self.is_queued {
            events.push(event("RunQueued", json!({ "note": "recorded afterwards" })));
        }
        for (id, name) in self.calls {
            let details =
                json!({ "tool_use_id": id, "tool_name": name, "error": WHY, "is_interrupt": true });
            events.push(event("PostToolUseFailure", details));
        }
        for (id, name) in self.natives {
            let details = json!({
                "agent_id": id, "agent_type": name, "reason": WHY, "transcript_path": subject.transcript,
            });
            events.push(event("SubagentStop", details));
        }
        if self.is_in_session {
            events.push(event("SessionEnd", json!({ "reason": "interrupted" })));
        }
        events.push(event("RunEnded", details));
        events
    }
}
