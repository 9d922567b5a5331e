//! The shape of an event: Claude Code's hook payload, with the agent on every event of a subagent.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::line::escape_controls;
use super::redaction::Redactor;
use crate::base::{RunId, Timestamp, now, shorten};
use crate::identity::Caller;

/// The format of the lines; a reader of a newer one does not guess.
pub const EVENT_FORMAT: u32 = 1;

/// A line that would be longer has only its first members.
const MAX_LINE: usize = 64 * 1024;
/// The fields that stand first, in this order, and are never left out.
const HEAD: [&str; 8] = [
    "hook_event_name",
    "session_id",
    "agent_id",
    "agent_type",
    "agent_transcript_path",
    "run_id",
    "tool_use_id",
    "tool_name",
];

/// One thing that happened, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub time: Timestamp,
    /// Everything else, in the order it is written.
    fields: Map<String, Value>,
}

/// Where an event belongs in a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It begins or ends something: kept where others are lost.
    Pair,
    /// It only tells.
    Telling,
}

impl Event {
    /// An event of Claude Code's own agents, from the payload its hook got. Nothing where the payload names no event.
    ///
    /// A native subagent's payload has `agent_id` and `agent_type`; the path of its transcript follows from the
    /// main agent's. The main agent's has none of the three, and stays without.
    pub fn of_hook(mut payload: Map<String, Value>, redactor: &Redactor) -> Option<Self> {
        payload.get("hook_event_name")?.as_str().filter(|name| !name.is_empty())?;
        match text(&payload, "agent_id") {
            Some(id) => complete_native(&mut payload, &id),
            None => AGENT_FIELDS.iter().for_each(|field| drop(payload.shift_remove(*field))),
        }
        Some(Self::new(payload, redactor))
    }

    fn new(payload: Map<String, Value>, redactor: &Redactor) -> Self {
        let Value::Object(mut rest) = redactor.clean(Value::Object(payload)) else {
            return Self { time: now(), fields: Map::new() };
        };
        let mut fields = Map::new();
        for name in HEAD {
            if let Some(value) = rest.shift_remove(name) {
                fields.insert(name.to_owned(), value);
            }
        }
        fields.extend(rest);
        Self { time: now(), fields }
    }

    /// What happened, for example `RunStarted`.
    pub fn name(&self) -> &str {
        self.fields.get("hook_event_name").and_then(Value::as_str).unwrap_or_default()
    }

    /// What it says under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key)
    }

    /// Whether it begins or ends something.
    pub fn weight(&self) -> Weight {
        match self.name() {
            "SessionStart" | "SessionEnd" | "SubagentStart" | "SubagentStop" | "RunQueued"
            | "RunStarted" | "RunEnded" => Weight::Pair,
            _ => Weight::Telling,
        }
    }

    /// As a hook of the user gets it, or a reader sees it.
    pub fn into_payload(self) -> Map<String, Value> {
        self.fields
    }

    /// An event of ours that belongs to no run.
    pub(super) fn ours(name: &str, details: Value) -> Self {
        let mut payload = Map::from_iter([("hook_event_name".to_owned(), name.into())]);
        if let Value::Object(details) = details {
            payload.extend(details);
        }
        Self::new(payload, &Redactor::default())
    }

    /// One line without its line feed, and without its number: [`number`] puts that in when it is known.
    pub(super) fn body(&self) -> String {
        let whole = self.encode(&self.fields);
        if whole.len() <= MAX_LINE {
            return whole;
        }
        let mut short: Map<String, Value> = self
            .fields
            .iter()
            .filter(|(name, _)| HEAD.contains(&name.as_str()))
            .map(cut_member)
            .collect();
        short.insert("left_out_bytes".to_owned(), whole.len().into());
        self.encode(&short)
    }

    fn encode(&self, fields: &Map<String, Value>) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), self.time.to_string().into());
        let own =
            fields.iter().filter(|(name, _)| !matches!(name.as_str(), "format" | "seq" | "time"));
        line.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        escape_controls(Value::Object(line).to_string())
    }
}

/// A body with its number.
pub(super) fn number(seq: u64, body: &str) -> String {
    let rest = body.strip_prefix('{').unwrap_or(body);
    format!("{{\"format\":{EVENT_FORMAT},\"seq\":{seq},{rest}")
}

const AGENT_FIELDS: [&str; 3] = ["agent_id", "agent_type", "agent_transcript_path"];

fn cut_member((name, value): (&String, &Value)) -> (String, Value) {
    let value = value.as_str().map_or_else(|| value.clone(), |text| shorten(text, 500).into());
    (name.clone(), value)
}

fn complete_native(payload: &mut Map<String, Value>, id: &str) {
    if text(payload, "agent_transcript_path").is_none() {
        let path = text(payload, "transcript_path").map(|main| native_transcript(&main, id));
        payload.insert("agent_transcript_path".to_owned(), json!(path));
    }
    payload.entry("agent_type").or_insert(Value::Null);
}

/// `<transcript without .jsonl>/subagents/agent-<agent_id>.jsonl`.
fn native_transcript(main: &str, id: &str) -> String {
    let folder = main.strip_suffix(".jsonl").unwrap_or(main);
    format!("{folder}/subagents/agent-{id}.jsonl")
}

fn text(payload: &Map<String, Value>, key: &str) -> Option<String> {
    payload.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Whose events they are: one run of one of our subagents.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSubject {
    /// The run: this instance of the agent.
    pub run: RunId,
    /// The agent's name.
    pub agent: String,
    /// Who called it, where that is still known.
    pub caller: Option<Caller>,
    /// Its conversation, as soon as the CLI named it.
    pub session_id: Option<String>,
    /// Its transcript, as soon as the CLI named it; an agent without `session: true` leaves none.
    pub transcript: Option<PathBuf>,
}

impl RunSubject {
    /// A run of which nothing more is known yet.
    pub fn new(run: RunId, agent: &str, caller: Option<Caller>) -> Self {
        Self { run, agent: agent.to_owned(), caller, session_id: None, transcript: None }
    }

    /// An event of our own, or one that the stream shows.
    pub fn event(&self, name: &str, details: Value, redactor: &Redactor) -> Event {
        Event::new(self.payload(name, details), redactor)
    }

    /// The same as a hook of the user gets it: nothing is left out or replaced.
    pub fn payload(&self, name: &str, details: Value) -> Map<String, Value> {
        let mut payload = match details {
            Value::Object(details) => {
                details.into_iter().filter(|(_, value)| !value.is_null()).collect()
            }
            _ => Map::new(),
        };
        payload.insert("hook_event_name".to_owned(), name.into());
        self.complete(payload)
    }

    /// An event that came over the run's pipe as a hook's payload.
    pub fn hook_event(&self, payload: Map<String, Value>, redactor: &Redactor) -> Event {
        Event::new(self.complete(payload), redactor)
    }

    /// The payload with the agent, the run and its caller.
    pub fn complete(&self, mut payload: Map<String, Value>) -> Map<String, Value> {
        let own = self.run.to_string();
        match text(&payload, "agent_id") {
            // A native subagent inside of ours.
            Some(id) if id != own => {
                complete_native(&mut payload, &id);
                payload.insert("parent_agent_id".to_owned(), own.clone().into());
                payload.insert("parent_agent_type".to_owned(), self.agent.clone().into());
            }
            Some(_) | None => {
                payload.insert("agent_id".to_owned(), own.clone().into());
                payload.insert("agent_type".to_owned(), self.agent.clone().into());
                payload.insert("agent_transcript_path".to_owned(), self.transcript_of(&payload));
            }
        }
        payload.insert("run_id".to_owned(), own.into());
        if let (None, Some(session)) = (text(&payload, "session_id"), &self.session_id) {
            payload.insert("session_id".to_owned(), session.clone().into());
        }
        if let Some(caller) = &self.caller {
            payload.insert("caller".to_owned(), json!(caller));
        }
        payload
    }

    fn transcript_of(&self, payload: &Map<String, Value>) -> Value {
        let known = self.transcript.as_deref().and_then(Path::to_str).map(str::to_owned);
        json!(known.or_else(|| text(payload, "transcript_path")))
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
