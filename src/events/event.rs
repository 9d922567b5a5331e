//! Events: the payload of a Claude Code hook, with the agent on every event of a subagent.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::api::{EVENT_MEMBERS, UtcTime};
use crate::audit::escape_controls;
use crate::identity::Caller;
use crate::util::{Redactor, RunId, Timestamp, now, shorten};

/// Version of the line format of `events.jsonl`.
pub(crate) const EVENT_FORMAT: u32 = 2;

/// Size limit of a line; a longer event is reduced to its leading fields.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Fields that come first, in this order, and are never omitted.
const LEADING_FIELDS: [&str; 8] = [
    "hook_event_name",
    "session_id",
    "agent_id",
    "agent_type",
    "agent_transcript_path",
    "run_id",
    "tool_use_id",
    "tool_name",
];

/// An event, redacted and ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub time: Timestamp,
    /// All fields except the time, in the order of the line.
    fields: Map<String, Value>,
}

impl Event {
    /// Creates an event of Claude Code's own agents from the payload of a hook; `None` without an event name.
    ///
    /// The payload of a native subagent has `agent_id` and `agent_type`; the path of its transcript is derived from the
    /// main agent's. The main agent has none of these fields.
    pub(crate) fn from_hook(mut payload: Map<String, Value>) -> Option<Self> {
        payload.get("hook_event_name")?.as_str().filter(|name| !name.is_empty())?;
        match text_field(&payload, "agent_id") {
            Some(id) => add_native_fields(&mut payload, &id),
            None => AGENT_FIELDS.iter().for_each(|field| drop(payload.shift_remove(*field))),
        }
        Some(Self::new(payload, &Redactor::default()))
    }

    fn new(payload: Map<String, Value>, redactor: &Redactor) -> Self {
        let Value::Object(payload) = redactor.redact_event(Value::Object(payload)) else {
            return Self { time: now(), fields: Map::new() };
        };
        Self { time: now(), fields: arrange_members(payload) }
    }

    /// Returns the event name, for example `RunStarted`.
    pub(crate) fn name(&self) -> &str {
        self.fields.get("hook_event_name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns true for starts and ends of sessions, native subagents and runs.
    pub(crate) fn is_span_edge(&self) -> bool {
        matches!(
            self.name(),
            "SessionStart"
                | "SessionEnd"
                | "SubagentStart"
                | "SubagentStop"
                | "RunQueued"
                | "RunStarted"
                | "RunEnded"
        )
    }

    #[cfg(test)]
    fn into_payload(self) -> Map<String, Value> {
        self.fields
    }

    /// Creates an event of Adjutant that belongs to no run.
    pub(crate) fn internal(name: &str, details: Value) -> Self {
        let mut payload = Map::from_iter([("hook_event_name".to_owned(), name.into())]);
        if let Value::Object(details) = details {
            payload.extend(details);
        }
        Self::new(payload, &Redactor::default())
    }

    /// Encodes the event as one line without line feed and sequence number.
    pub(crate) fn encode_body(&self) -> String {
        let whole = self.encode(&self.fields);
        if whole.len() <= MAX_LINE_BYTES {
            return whole;
        }
        let mut short: Map<String, Value> = self
            .fields
            .iter()
            .filter(|(name, _)| LEADING_FIELDS.contains(&name.as_str()))
            .map(shorten_member)
            .collect();
        short.insert("left_out_bytes".to_owned(), whole.len().into());
        self.encode(&short)
    }

    fn encode(&self, fields: &Map<String, Value>) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), UtcTime::from(self.time).to_string().into());
        let own =
            fields.iter().filter(|(name, _)| !matches!(name.as_str(), "format" | "seq" | "time"));
        line.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        escape_controls(Value::Object(line).to_string())
    }
}

/// Arranges the members of an event: leading fields first, without `null`, unknown members of hooks in `other`.
pub(super) fn arrange_members(mut members: Map<String, Value>) -> Map<String, Value> {
    members.retain(|_, value| !value.is_null());
    let mut fields = Map::new();
    for name in LEADING_FIELDS {
        if let Some(value) = members.shift_remove(name) {
            fields.insert(name.to_owned(), value);
        }
    }
    let (known, other): (Map<_, _>, Map<_, _>) =
        members.into_iter().partition(|(name, _)| EVENT_MEMBERS.contains(name));
    fields.extend(known);
    if !other.is_empty() {
        fields.insert("other".to_owned(), other.into());
    }
    fields
}

/// Inserts the format and the sequence number into an encoded event.
pub(crate) fn with_sequence_number(seq: u64, body: &str) -> String {
    let rest = body.strip_prefix('{').unwrap_or(body);
    format!("{{\"format\":{EVENT_FORMAT},\"seq\":{seq},{rest}")
}

const AGENT_FIELDS: [&str; 3] = ["agent_id", "agent_type", "agent_transcript_path"];

fn shorten_member((name, value): (&String, &Value)) -> (String, Value) {
    let value = value.as_str().map_or_else(|| value.clone(), |text| shorten(text, 500).into());
    (name.clone(), value)
}

fn add_native_fields(payload: &mut Map<String, Value>, id: &str) {
    if text_field(payload, "agent_transcript_path").is_none() {
        let path = text_field(payload, "transcript_path").map(|main| native_transcript(&main, id));
        insert_text(payload, "agent_transcript_path", path);
    }
}

/// Sets a member, or removes it if there is no text.
fn insert_text(payload: &mut Map<String, Value>, key: &str, text: Option<String>) {
    match text {
        Some(text) => drop(payload.insert(key.to_owned(), text.into())),
        None => drop(payload.shift_remove(key)),
    }
}

/// Returns `<transcript without .jsonl>/subagents/agent-<agent_id>.jsonl`.
fn native_transcript(main: &str, id: &str) -> String {
    let folder = main.strip_suffix(".jsonl").unwrap_or(main);
    format!("{folder}/subagents/agent-{id}.jsonl")
}

fn text_field(payload: &Map<String, Value>, key: &str) -> Option<String> {
    payload.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The run whose events are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunSubject {
    /// Used as `agent_id` of the events.
    pub run: RunId,
    /// Name of the agent.
    pub agent: String,
    /// The caller, if still known.
    pub caller: Option<Caller>,
    /// Session id, once reported by the CLI.
    pub session_id: Option<String>,
    /// Path of the transcript, once reported by the CLI.
    pub transcript: Option<PathBuf>,
    /// False for agents without `session: true`.
    pub keeps_transcript: bool,
}

impl RunSubject {
    pub(crate) fn new(run: RunId, agent: &str, caller: Option<Caller>) -> Self {
        Self {
            run,
            agent: agent.to_owned(),
            caller,
            session_id: None,
            transcript: None,
            keeps_transcript: true,
        }
    }

    /// Creates an event of Adjutant, or one derived from the output stream.
    pub(crate) fn event(&self, name: &str, details: Value, redactor: &Redactor) -> Event {
        Event::new(self.payload(name, details), redactor)
    }

    /// Creates the payload for user hooks: like [`Self::event`], without redaction and truncation.
    pub(crate) fn payload(&self, name: &str, details: Value) -> Map<String, Value> {
        let mut payload = match details {
            Value::Object(details) => {
                details.into_iter().filter(|(_, value)| !value.is_null()).collect()
            }
            _ => Map::new(),
        };
        payload.insert("hook_event_name".to_owned(), name.into());
        self.add_run_fields(payload)
    }

    /// Creates an event from a hook payload that the run's process sent.
    pub(crate) fn hook_event(&self, payload: Map<String, Value>, redactor: &Redactor) -> Event {
        Event::new(self.add_run_fields(payload), redactor)
    }

    /// Adds the fields of agent, run and caller to a payload.
    pub(crate) fn add_run_fields(&self, mut payload: Map<String, Value>) -> Map<String, Value> {
        let own = self.run.to_string();
        match text_field(&payload, "agent_id") {
            // A native subagent inside this run.
            Some(id) if id.parse() != Ok(self.run) => {
                if self.keeps_transcript {
                    add_native_fields(&mut payload, &id);
                } else {
                    payload.shift_remove("agent_transcript_path");
                }
                payload.insert("parent_agent_id".to_owned(), own.clone().into());
                payload.insert("parent_agent_type".to_owned(), self.agent.clone().into());
            }
            Some(_) | None => {
                payload.insert("agent_id".to_owned(), own.clone().into());
                payload.insert("agent_type".to_owned(), self.agent.clone().into());
                let transcript = self.transcript_of(&payload);
                insert_text(&mut payload, "agent_transcript_path", transcript);
            }
        }
        payload.insert("run_id".to_owned(), own.into());
        if let (None, Some(session)) = (text_field(&payload, "session_id"), &self.session_id) {
            payload.insert("session_id".to_owned(), session.clone().into());
        }
        if let Some(caller) = &self.caller {
            payload.insert("caller".to_owned(), json!(caller));
        }
        payload
    }

    fn transcript_of(&self, payload: &Map<String, Value>) -> Option<String> {
        let known = self.transcript.as_deref().and_then(Path::to_str).map(str::to_owned);
        let known = known.or_else(|| text_field(payload, "transcript_path"));
        known.filter(|_| self.keeps_transcript)
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
