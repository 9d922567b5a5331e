//! Events of Claude Code's own agents, written by its hooks, and ends for sessions that were killed.
//!
//! Both happen under the log's lock together with the update of the session's open-session file, so that every start
//! gets exactly one end.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

use super::claude_process::{ClaudeProcess, ProcessLiveness};
use super::close_interrupted::OpenSpans;
use super::event::Event;
use super::log::{EventLog, LOCK_TIMEOUT};
use super::open_sessions::{OpenSession, OpenSessions};
use super::reader::read_containing;
use crate::util::now;

/// Time for which the file of a killed session is kept, to ignore events of its orphaned subprocesses.
const KILLED_RETENTION: Duration = Duration::from_mins(1);
/// Silence after which a session in another pid namespace counts as ended.
const SILENCE_TIMEOUT: Duration = Duration::from_hours(7 * 24);
/// Reason given in the ends that are written for a killed session.
const KILLED_REASON: &str = "the claude process ended";

/// Time at which the end of a session was detected; determines the durations of its open spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndDetection {
    /// Detected when it happened: open spans end now.
    Immediate,
    /// Detected later: open spans end with the session's last event.
    Later,
}

impl EventLog {
    /// Writes an event of a hook synchronously, after the ends that it implies.
    ///
    /// Adds the time since the start event of the same span.
    ///
    /// Claude Code waits for the hook, so `claude` (which searches the process table) is called only if the process of
    /// the session is not known. Waits for the lock at most `timeout`. Returns false if the payload names no event.
    pub(crate) fn append_hook(
        &self,
        mut payload: Map<String, Value>,
        claude: impl FnOnce() -> Option<ClaudeProcess>,
        timeout: Duration,
    ) -> io::Result<bool> {
        let cards = OpenSessions::beside_log(self.file());
        let session = payload.get("session_id").and_then(Value::as_str).unwrap_or_default();
        let session = session.to_owned();
        self.with_lock(timeout, |write| {
            let read = cards.read(&session);
            let (known, readable) =
                read.map_or_else(|error| (None, Err(error)), |known| (known, Ok(())));
            let begins = payload.get("hook_event_name").is_some_and(|name| name == "SessionStart");
            if known.as_ref().is_some_and(|card| card.was_killed) && !begins {
                return Ok(true);
            }
            let mut card =
                known.filter(|card| !card.was_killed).unwrap_or_else(|| OpenSession::new(&session));
            if begins || card.claude.is_none() {
                card.claude = claude();
            }
            let taken = card.apply(&payload, now());
            if let Some(took) = taken.duration_ms {
                payload.insert("duration_ms".to_owned(), took.into());
            }
            let events = taken.ends_before.into_iter().chain([payload]);
            let events: Option<Vec<Event>> = events.map(Event::from_hook).collect();
            let Some(events) = events else { return Ok(false) };
            // The file is written before the event: a session whose start is logged can always be found. The event is
            // written even if the file cannot be. Nothing is written over a file that could not be read.
            let carded = readable.and_then(|()| cards.write(&card));
            write(&events)?;
            if taken.ends_session {
                cards.remove(&session)?;
            }
            carded.map(|()| true)
        })
    }

    /// Returns true if a session of this process is open.
    pub(crate) fn has_open_session_of(&self, claude: &ClaudeProcess) -> io::Result<bool> {
        let cards = OpenSessions::beside_log(self.file());
        for session in cards.session_ids()? {
            if cards.read(&session)?.is_some_and(|card| card.claude.as_ref() == Some(claude)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the ends of everything that killed sessions have left open.
    pub(crate) fn end_killed_sessions(&self, noticed: EndDetection) -> io::Result<()> {
        let cards = OpenSessions::beside_log(self.file());
        for session in cards.session_ids()? {
            if cards.read(&session)?.is_some_and(|card| !has_ended(&card)) {
                continue;
            }
            self.with_lock(LOCK_TIMEOUT, |write| {
                // Check again under the lock: the session may have ended or restarted.
                match cards.read(&session)? {
                    Some(card) if !has_ended(&card) => Ok(()),
                    Some(card) if !card.was_killed => {
                        write(&self.end_events_of(&card, noticed)?)?;
                        cards.write(&OpenSession::killed(&session, now()))
                    }
                    Some(_) | None => cards.remove(&session),
                }
            })?;
        }
        Ok(())
    }

    /// Returns the ends of the session's open spans according to the log; its file may be ahead of the log.
    fn end_events_of(&self, card: &OpenSession, noticed: EndDetection) -> io::Result<Vec<Event>> {
        let mut open = OpenSpans::default();
        read_containing(self.file(), card.since, &card.session_id, |_, event| {
            if event.run().is_none() && event.text("session_id") == Some(&card.session_id) {
                open.apply(&event);
            }
        })?;
        let until = match noticed {
            EndDetection::Immediate => now(),
            EndDetection::Later => open.last_seen().unwrap_or_else(now),
        };
        let payloads = open.end_events(KILLED_REASON, "killed", until);
        Ok(payloads.into_iter().filter_map(Event::from_hook).collect())
    }
}

/// Returns true if a session has ended; for a killed one, if its file can be removed.
fn has_ended(card: &OpenSession) -> bool {
    let quiet = card.last_seen.map_or(Duration::MAX, |last| {
        Duration::try_from(now().duration_since(last)).unwrap_or_default()
    });
    if card.was_killed {
        return quiet > KILLED_RETENTION;
    }
    match card.claude.as_ref().map_or(ProcessLiveness::Unknown, ClaudeProcess::liveness) {
        ProcessLiveness::Alive => false,
        ProcessLiveness::Ended => true,
        ProcessLiveness::Unknown => quiet > SILENCE_TIMEOUT,
    }
}

#[cfg(test)]
#[path = "hook_events_tests.rs"]
mod tests;
