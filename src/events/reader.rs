//! Reads events from all files of the log, oldest first. Lines that cannot be parsed are skipped.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::upgrade::upgrade;
use crate::store::open_log;
use crate::util::{RunId, Timestamp};

/// An event read from the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedEvent {
    pub time: Timestamp,
    /// All fields of the line, in format 2.
    pub fields: Map<String, Value>,
}

impl RecordedEvent {
    /// Parses a line; `None` if it is not an event.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let fields = upgrade(serde_json::from_str(line).ok()?);
        let time = fields.get("time")?.as_str()?.parse().ok()?;
        Some(Self { time, fields }).filter(|event| !event.name().is_empty())
    }

    /// Returns the event name.
    pub(crate) fn name(&self) -> &str {
        self.text("hook_event_name").unwrap_or_default()
    }

    /// Returns a field if it is a string.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// Returns a field if it is a number.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.fields.get(key)?.as_f64()
    }

    pub(crate) fn duration_ms(&self) -> Option<u64> {
        self.fields.get("duration_ms")?.as_u64()
    }

    /// Returns the run; `None` for events of Claude Code's own agents.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.text("run_id")?.parse().ok()
    }

    /// Returns the agent's name; `main` for events without one.
    pub(crate) fn agent(&self) -> &str {
        self.text("agent_type").unwrap_or("main")
    }
}

/// Calls `each` for every event since the given time, in the order of the log.
pub(crate) fn read_events(
    path: &Path,
    since: Option<Timestamp>,
    each: impl FnMut(&str, RecordedEvent),
) -> io::Result<()> {
    read_containing(path, since, "", each)
}

/// Reads events like [`read_events`], parsing only lines that contain `word`, which is faster.
pub(crate) fn read_containing(
    path: &Path,
    since: Option<Timestamp>,
    word: &str,
    mut each: impl FnMut(&str, RecordedEvent),
) -> io::Result<()> {
    // Events have milliseconds: one of the same millisecond is not older.
    let since =
        since.map(|since| Timestamp::from_millisecond(since.as_millisecond()).unwrap_or(since));
    let since_written = since.map(SystemTime::from);
    for segment in open_log(path)? {
        if since_written.is_some_and(|since| segment.modified.is_some_and(|at| at < since)) {
            continue;
        }
        segment.read_lines(|line| {
            let text = String::from_utf8_lossy(line.bytes);
            if line.is_complete
                && text.contains(word)
                && let Some(event) = RecordedEvent::parse(&text)
                && since.is_none_or(|since| event.time >= since)
            {
                each(&text, event);
            }
        })?;
    }
    Ok(())
}
