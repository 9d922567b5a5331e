//! What a session of Claude Code has begun and not ended, kept in a small file while the session lasts.
//!
//! Its hook is a process for one event alone: here it finds when the thing began that now ends, and what must be ended with it.
//! The file also names the `claude` process, so that a session that was killed can be told from one that goes on.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::claude_stamp::ClaudeStamp;
use crate::base::{Timestamp, create_private_dir, read_bounded, remove_file, write_volatile};

const FOLDER: &str = "open-sessions";
const FORMAT: u32 = 1;
const MOST_BYTES: u64 = 1 << 20;
/// More calls and subagents than are open at once; what is beyond has no duration.
const MOST_OPEN: usize = 512;
/// Why something is ended in the record that nothing told the end of.
const UNTOLD: &str = "nothing told how it ended: it was refused or interrupted";

/// The card of one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionCard {
    format: u32,
    /// The session, as Claude Code names it.
    pub(super) session_id: String,
    /// The process that the session lives in.
    pub(super) claude: Option<ClaudeStamp>,
    /// When the first event of it was recorded: nothing of it stands in the log before that.
    pub(super) since: Option<Timestamp>,
    /// When the last one was.
    pub(super) last_seen: Option<Timestamp>,
    session: Option<Timestamp>,
    turn: Option<Timestamp>,
    calls: BTreeMap<String, Open>,
    natives: BTreeMap<String, Open>,
    /// It was killed, and the record says so: what an orphan of it still reports comes too late.
    pub(super) was_killed: bool,
}

/// Something that began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    since: Timestamp,
    /// What its end must say: whose it is, and its name.
    told: Map<String, Value>,
}

/// What belongs to an event that is to be written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Taken {
    /// Events that come before it: ends of what ends with it.
    pub(super) before: Vec<Map<String, Value>>,
    /// Milliseconds since its partner.
    pub(super) duration_ms: Option<u64>,
    /// Whether the session is over.
    pub(super) is_over: bool,
}

impl SessionCard {
    pub(super) fn new(session_id: &str) -> Self {
        Self { format: FORMAT, session_id: session_id.to_owned(), ..Self::default() }
    }

    /// What is remembered of a session that was killed.
    pub(super) fn killed(session_id: &str, at: Timestamp) -> Self {
        Self { was_killed: true, last_seen: Some(at), ..Self::new(session_id) }
    }

    /// Notes an event; says what belongs to it.
    pub(super) fn take(&mut self, payload: &Map<String, Value>, at: Timestamp) -> Taken {
        let text = |key: &str| payload.get(key).and_then(Value::as_str).unwrap_or_default();
        let (id, agent) = (text("tool_use_id"), text("agent_id"));
        self.since.get_or_insert(at);
        self.last_seen = Some(at);
        let mut taken = Taken::default();
        let began = match text("hook_event_name") {
            "SessionStart" => {
                // A conversation that was shortened begins again within its session.
                self.session.get_or_insert(at);
                None
            }
            "UserPromptSubmit" => {
                self.turn = Some(at);
                None
            }
            "PreToolUse" => {
                begin(&mut self.calls, id, payload, at);
                None
            }
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => {
                self.calls.remove(id).map(|call| call.since)
            }
            "SubagentStart" => {
                begin(&mut self.natives, agent, payload, at);
                None
            }
            "SubagentStop" => {
                taken.before = self.end_calls(Some(agent), at);
                self.natives.remove(agent).map(|native| native.since)
            }
            "Stop" => {
                taken.before = self.end_calls(Some(""), at);
                self.turn
            }
            "SessionEnd" => {
                taken.before = self.end_calls(None, at);
                taken.before.extend(self.end_natives(at));
                taken.is_over = true;
                self.session
            }
            _ => None,
        };
        taken.duration_ms = began.map(|began| millis(began, at));
        taken
    }

    /// Ends the calls of one agent, or of all; the main agent has no id.
    fn end_calls(&mut self, of: Option<&str>, at: Timestamp) -> Vec<Map<String, Value>> {
        let is_of = |call: &Open| {
            let agent = call.told.get("agent_id").and_then(Value::as_str).unwrap_or_default();
            of.is_none_or(|wanted| wanted == agent)
        };
        let ended = self.calls.extract_if(.., |_, call| is_of(call));
        ended.map(|(_, call)| call.end("PostToolUseFailure", at)).collect()
    }

    fn end_natives(&mut self, at: Timestamp) -> Vec<Map<String, Value>> {
        let ended = std::mem::take(&mut self.natives);
        ended.into_values().map(|native| native.end("SubagentStop", at)).collect()
    }
}

impl Open {
    fn end(self, name: &str, at: Timestamp) -> Map<String, Value> {
        let mut payload = self.told;
        payload.insert("hook_event_name".to_owned(), name.into());
        payload.insert("duration_ms".to_owned(), millis(self.since, at).into());
        payload.extend(untold(name, UNTOLD));
        payload
    }
}

/// What an end says that nobody told.
pub(super) fn untold(name: &str, why: &str) -> Map<String, Value> {
    let said = match name {
        "PostToolUseFailure" => json!({ "error": why, "is_interrupt": true }),
        _ => json!({ "reason": why }),
    };
    said.as_object().cloned().unwrap_or_default()
}

fn begin(open: &mut BTreeMap<String, Open>, id: &str, payload: &Map<String, Value>, at: Timestamp) {
    if !id.is_empty() && open.len() < MOST_OPEN {
        open.insert(id.to_owned(), Open { since: at, told: whose(payload) });
    }
}

/// The members that say whose event it is, and about what.
pub(super) fn whose(payload: &Map<String, Value>) -> Map<String, Value> {
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

/// From one moment to another; a clock that was set back gives nothing.
pub(super) fn millis(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

/// The cards of one project.
#[derive(Clone, Debug)]
pub(super) struct SessionCards {
    folder: PathBuf,
}

impl SessionCards {
    /// Those beside a log of events.
    pub(super) fn beside(log: &Path) -> Self {
        Self { folder: log.with_file_name(FOLDER) }
    }

    /// The card of a session, if it has one that can be read.
    pub(super) fn read(&self, session: &str) -> Option<SessionCard> {
        let bytes = read_bounded(&self.file(session)?, MOST_BYTES).ok()?;
        let card: SessionCard = serde_json::from_slice(&bytes).ok()?;
        (card.format == FORMAT && card.session_id == session).then_some(card)
    }

    pub(super) fn write(&self, card: &SessionCard) -> io::Result<()> {
        let Some(file) = self.file(&card.session_id) else { return Ok(()) };
        create_private_dir(&self.folder)?;
        write_volatile(&file, &serde_json::to_vec(card)?)
    }

    pub(super) fn remove(&self, session: &str) -> io::Result<()> {
        self.file(session).map_or(Ok(()), |file| remove_file(&file))
    }

    /// The names of all sessions that have a card.
    pub(super) fn sessions(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect()
    }

    /// Names come from a payload: only what is surely a file's name is one. Real ones are UUIDs.
    fn file(&self, session: &str) -> Option<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = !session.is_empty() && session.len() <= 100 && session.chars().all(plain);
        is_name.then(|| self.folder.join(format!("{session}.json")))
    }
}

#[cfg(test)]
#[path = "open_sessions_tests.rs"]
mod tests;
