//! State of open Claude Code sessions, one file per session in `data/open-sessions/`.
//!
//! A hook process lives for a single event. The file tells it when the span that now ends was started, and which other
//! spans end with it. It also names the `claude` process, so that a killed session can be detected.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::claude_process::ClaudeProcess;
use crate::store::LiveDir;
use crate::util::Timestamp;

const OPEN_SESSIONS_DIR: &str = "open-sessions";
const FORMAT: u32 = 1;
/// Limit of open calls or subagents; further ones have no duration.
const MAX_OPEN_SPANS: usize = 512;
/// Reason given in an end that no event reported.
const UNREPORTED_REASON: &str = "nothing told how it ended: it was refused or interrupted";

/// The state of one session; the content of its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenSession {
    format: u32,
    /// Session id of Claude Code.
    pub(crate) session_id: String,
    /// The process that the session runs in.
    pub(crate) claude: Option<ClaudeProcess>,
    /// Time of the first logged event; the log has none of this session before.
    pub(crate) since: Option<Timestamp>,
    /// Time of the last logged event.
    pub(crate) last_seen: Option<Timestamp>,
    session: Option<Timestamp>,
    turn: Option<Timestamp>,
    calls: BTreeMap<String, StartedSpan>,
    natives: BTreeMap<String, StartedSpan>,
    /// The session was killed and its ends are logged; later events of orphaned subprocesses are ignored.
    pub(crate) was_killed: bool,
}

/// A span that has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StartedSpan {
    since: Timestamp,
    /// Fields that the end event must repeat.
    told: Map<String, Value>,
}

/// Consequences of an event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct EventEffects {
    /// Ends that must be written before the event.
    pub(crate) ends_before: Vec<Map<String, Value>>,
    /// Milliseconds since the start event.
    pub(crate) duration_ms: Option<u64>,
    /// True if the event ends the session.
    pub(crate) ends_session: bool,
}

impl OpenSession {
    pub(crate) fn new(session_id: &str) -> Self {
        Self { format: FORMAT, session_id: session_id.to_owned(), ..Self::default() }
    }

    /// Creates the state that is kept of a killed session.
    pub(crate) fn killed(session_id: &str, at: Timestamp) -> Self {
        Self { was_killed: true, last_seen: Some(at), ..Self::new(session_id) }
    }

    /// Applies an event and returns its consequences.
    pub(crate) fn apply(&mut self, payload: &Map<String, Value>, at: Timestamp) -> EventEffects {
        let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
        let (id, agent) = (text("tool_use_id"), text("agent_id"));
        self.since.get_or_insert(at);
        self.last_seen = Some(at);
        let mut taken = EventEffects::default();
        let began = match text("hook_event_name") {
            "SessionStart" => {
                // Claude Code sends `SessionStart` again after it compacted a session.
                self.session.get_or_insert(at);
                None
            }
            "UserPromptSubmit" => {
                self.turn = Some(at);
                None
            }
            "PreToolUse" => {
                start_span(&mut self.calls, id, payload, at);
                None
            }
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(id).map(|call| call.since)
            }
            "SubagentStart" => {
                start_span(&mut self.natives, agent, payload, at);
                None
            }
            "SubagentStop" => {
                taken.ends_before = self.end_calls(Some(agent), at);
                self.natives.remove(agent).map(|native| native.since)
            }
            "Stop" => {
                taken.ends_before = self.end_calls(Some(""), at);
                self.turn
            }
            "SessionEnd" => {
                taken.ends_before = self.end_calls(None, at);
                taken.ends_before.extend(self.end_native_subagents(at));
                taken.ends_session = true;
                self.session
            }
            _ => None,
        };
        taken.duration_ms = began.map(|began| millis(began, at));
        taken
    }

    /// Ends the calls of one agent, or of all for `None`; the main agent has an empty id.
    fn end_calls(&mut self, of: Option<&str>, at: Timestamp) -> Vec<Map<String, Value>> {
        let is_of = |call: &StartedSpan| {
            let agent = call.told.get("agent_id").and_then(Value::as_str).unwrap_or_default();
            of.is_none_or(|wanted| wanted == agent)
        };
        let ended = self.calls.extract_if(.., |_, call| is_of(call));
        ended
            .map(|(_, call)| call.into_end_event("PostToolUseFailure", at, UNREPORTED_REASON))
            .collect()
    }

    fn end_native_subagents(&mut self, at: Timestamp) -> Vec<Map<String, Value>> {
        let ended = std::mem::take(&mut self.natives);
        ended
            .into_values()
            .map(|native| native.into_end_event("SubagentStop", at, UNREPORTED_REASON))
            .collect()
    }
}

impl StartedSpan {
    pub(super) fn new(payload: &Map<String, Value>, since: Timestamp) -> Self {
        Self { since, told: identifying_fields(payload) }
    }

    /// Returns the payload of an end that no event reported.
    pub(super) fn into_end_event(self, name: &str, at: Timestamp, why: &str) -> Map<String, Value> {
        let mut payload = self.told;
        payload.insert("hook_event_name".to_owned(), name.into());
        payload.insert("duration_ms".to_owned(), millis(self.since, at).into());
        if name == "PostToolUseFailure" {
            payload.insert("error".to_owned(), why.into());
            payload.insert("is_interrupt".to_owned(), true.into());
        } else {
            payload.insert("reason".to_owned(), why.into());
        }
        payload
    }
}

fn start_span(
    open: &mut BTreeMap<String, StartedSpan>,
    id: &str,
    payload: &Map<String, Value>,
    at: Timestamp,
) {
    if !id.is_empty() && open.len() < MAX_OPEN_SPANS {
        open.insert(id.to_owned(), StartedSpan::new(payload, at));
    }
}

/// Copies the fields that identify agent, session and tool call.
fn identifying_fields(payload: &Map<String, Value>) -> Map<String, Value> {
    const KEPT: [&str; 10] = [
        "session_id",
        "transcript_path",
        "cwd",
        "agent_id",
        "agent_type",
        "agent_transcript_path",
        "parent_agent_id",
        "parent_agent_type",
        "tool_use_id",
        "tool_name",
    ];
    let told = KEPT.iter().filter_map(|key| Some(((*key).to_owned(), payload.get(*key)?.clone())));
    told.collect()
}

/// Returns the milliseconds between two times; 0 if the clock was set back.
pub(crate) fn millis(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

/// The files of all open sessions of one project. A session outlives the hook processes that write its file.
#[derive(Clone, Debug)]
pub(crate) struct OpenSessions {
    entries: LiveDir<OpenSession>,
}

impl OpenSessions {
    /// Returns the files beside an event log.
    pub(crate) fn beside_log(log: &Path) -> Self {
        Self { entries: LiveDir::new(log.with_file_name(OPEN_SESSIONS_DIR)) }
    }

    /// Reads the state of a session; `None` if there is no valid file. An I/O error is an error.
    pub(crate) fn read(&self, session: &str) -> io::Result<Option<OpenSession>> {
        if !is_file_name(session) {
            return Ok(None);
        }
        let card = self.entries.read(session)?;
        Ok(card.filter(|card| card.format == FORMAT && card.session_id == session))
    }

    pub(crate) fn write(&self, card: &OpenSession) -> io::Result<()> {
        match is_file_name(&card.session_id) {
            true => self.entries.write(&card.session_id, card),
            false => Ok(()),
        }
    }

    pub(crate) fn remove(&self, session: &str) -> io::Result<()> {
        if is_file_name(session) { self.entries.remove(session) } else { Ok(()) }
    }

    /// Returns the ids of all sessions with a file.
    pub(crate) fn session_ids(&self) -> io::Result<Vec<String>> {
        self.entries.names()
    }
}

/// Returns false for a session id that is unsafe as a file name. Real ids are UUIDs.
fn is_file_name(session: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !session.is_empty() && session.len() <= 100 && session.chars().all(plain)
}

#[cfg(test)]
#[path = "open_sessions_tests.rs"]
mod tests;
