//! Events of Claude Code's own agents: written by its hook, one process for each, and ended by whoever finds that the session
//! they belong to was killed.
//!
//! Both happen under the log's lock, together with the session's card: so every start has exactly one end.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

use super::claude_stamp::{ClaudeStamp, Life};
use super::event::Event;
use super::event_reader::read_about;
use super::events::EventLog;
use super::redaction::Redactor;
use super::session_card::{SessionCard, SessionCards};
use super::unclosed::Unclosed;
use crate::base::now;

/// How long the log may be busy for somebody who ends what others have left.
const PATIENCE: Duration = Duration::from_secs(2);
/// The card of a killed session is kept for so long, for what its orphans still report.
const AFTERLIFE: Duration = Duration::from_mins(1);
/// A session of a container that cannot be looked into is over when nothing came from it for so long.
const SILENCE: Duration = Duration::from_hours(7 * 24);
/// Why a session is over that nobody ended.
const KILLED: &str = "the claude process ended";

/// When it was found that a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// At once: durations go until now.
    AtOnce,
    /// Some time later: durations go until its last event.
    Later,
}

impl EventLog {
    /// Writes an event of Claude Code's own agents at once, with the time since its partner, and before it the ends of
    /// what ends with it. `claude` finds the process that it comes from; it is asked only where that is not known yet, for
    /// Claude Code waits meanwhile. Says whether the payload names an event.
    pub fn append_hook(
        &self,
        mut payload: Map<String, Value>,
        claude: impl FnOnce() -> Option<ClaudeStamp>,
        patience: Duration,
    ) -> io::Result<bool> {
        let redactor = Redactor::default();
        let cards = SessionCards::beside(self.file());
        let session = payload.get("session_id").and_then(Value::as_str).unwrap_or_default();
        let session = session.to_owned();
        self.exclusively(patience, |write| {
            let known = cards.read(&session);
            let begins = payload.get("hook_event_name").is_some_and(|name| name == "SessionStart");
            if known.as_ref().is_some_and(|card| card.was_killed) && !begins {
                return Ok(true);
            }
            let mut card =
                known.filter(|card| !card.was_killed).unwrap_or_else(|| SessionCard::new(&session));
            if begins || card.claude.is_none() {
                card.claude = claude();
            }
            let taken = card.take(&payload, now());
            if let Some(took) = taken.duration_ms {
                payload.insert("duration_ms".to_owned(), took.into());
            }
            let events = taken.before.into_iter().chain([payload]);
            let events: Option<Vec<Event>> =
                events.map(|payload| Event::of_hook(payload, &redactor)).collect();
            let Some(events) = events else { return Ok(false) };
            // The card before the line: a session whose start is written can always be found. An event is written
            // also where its card cannot be.
            let carded = cards.write(&card);
            write(&events)?;
            if taken.is_over {
                cards.remove(&session)?;
            }
            carded.map(|()| true)
        })
    }

    /// Whether a session of this process is open in the record.
    pub fn has_session_of(&self, claude: &ClaudeStamp) -> bool {
        let cards = SessionCards::beside(self.file());
        let all = cards.sessions().into_iter().filter_map(|session| cards.read(&session));
        all.into_iter().any(|card| card.claude.as_ref() == Some(claude))
    }

    /// Ends in the record what killed sessions of Claude Code have left open.
    pub fn end_killed_sessions(&self, noticed: Noticed) -> io::Result<()> {
        let cards = SessionCards::beside(self.file());
        for session in cards.sessions() {
            if cards.read(&session).is_some_and(|card| !is_over(&card)) {
                continue;
            }
            self.exclusively(PATIENCE, |write| {
                // Once more, now that nobody else can write: it may have been ended or begun again.
                match cards.read(&session) {
                    Some(card) if !is_over(&card) => Ok(()),
                    Some(card) if !card.was_killed => {
                        write(&self.ends_of(&card, noticed)?)?;
                        cards.write(&SessionCard::killed(&session, now()))
                    }
                    Some(_) | None => cards.remove(&session),
                }
            })?;
        }
        Ok(())
    }

    /// What a session has open by what stands in the log; its card may be a moment ahead of that.
    fn ends_of(&self, card: &SessionCard, noticed: Noticed) -> io::Result<Vec<Event>> {
        let mut open = Unclosed::default();
        read_about(self.file(), card.since, &card.session_id, |_, event| {
            if event.run().is_none() && event.text("session_id") == Some(&card.session_id) {
                open.take(&event);
            }
        })?;
        let until = match noticed {
            Noticed::AtOnce => now(),
            Noticed::Later => open.last_seen().unwrap_or_else(now),
        };
        let payloads = open.ends(KILLED, "killed", until);
        let redactor = Redactor::default();
        Ok(payloads.into_iter().filter_map(|it| Event::of_hook(it, &redactor)).collect())
    }
}

/// Whether a session goes on no longer; of a card that is only remembered, whether it can be forgotten.
fn is_over(card: &SessionCard) -> bool {
    let quiet = card.last_seen.map_or(Duration::MAX, |last| {
        Duration::try_from(now().duration_since(last)).unwrap_or_default()
    });
    if card.was_killed {
        return quiet > AFTERLIFE;
    }
    match card.claude.as_ref().map_or(Life::Unknown, ClaudeStamp::life) {
        Life::Lives => false,
        Life::Ended => true,
        Life::Unknown => quiet > SILENCE,
    }
}

#[cfg(test)]
#[path = "hook_events_tests.rs"]
mod tests;
