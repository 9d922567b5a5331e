//! What is recorded of a run: queued, started, ended; every start has its end.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::base::{RunId, now};
use crate::identity::Caller;
use crate::outcome::{Outcome, Report};
use crate::record::{Event, EventLog};
use crate::worker::RunCard;

/// The record of runs.
pub(super) struct History {
    events: EventLog,
}

impl History {
    pub(super) fn new(events: EventLog) -> Self {
        Self { events }
    }

    /// Where it is kept.
    pub(super) fn file(&self) -> &Path {
        self.events.file()
    }

    pub(super) fn queued(&self, run: RunId, agent: &str, caller: &Caller) {
        self.add(
            "RunQueued",
            run,
            agent,
            json!({
                "caller": caller.name, "known_by": caller.known_by,
                "caller_session_id": caller.session_id, "caller_agent_id": caller.agent_id,
                "caller_tool_use_id": caller.tool_use_id,
            }),
        );
    }

    pub(super) fn started(&self, run: RunId, agent: &str, pid: u32) {
        self.add("RunStarted", run, agent, json!({ "pid": pid }));
    }

    pub(super) fn ended(&self, report: &Report) {
        let outcome = match &report.outcome {
            Outcome::Answered(_) => "SUCCESS",
            Outcome::Failed(failure) => failure.code.as_str(),
        };
        let mut details = json!({
            "outcome": outcome, "duration_ms": report.duration_ms, "cost_usd": report.cost_usd,
            "turns": report.turns, "session_id": report.session_id,
        });
        if let (Outcome::Failed(failure), Some(details)) =
            (&report.outcome, details.as_object_mut())
        {
            details.insert("error".to_owned(), failure.sentence().into());
        }
        if let (false, Some(details)) = (report.denials.is_empty(), details.as_object_mut()) {
            details.insert("denials".to_owned(), json!(report.denials));
        }
        self.add("RunEnded", report.run_id, &report.agent, details);
    }

    /// A run whose server ended in the middle of it; found by the next one.
    pub(super) fn cut_off(&self, card: &RunCard) {
        let details = json!({
            "outcome": "INTERRUPTED", "cost_usd": card.progress.cost_usd, "turns": card.progress.turns,
            "error": "the server ended while the run was going on",
        });
        self.add("RunEnded", card.run, &card.agent, details);
    }

    fn add(&self, name: &'static str, run: RunId, agent: &str, details: Value) {
        let details = match details {
            Value::Object(details) => {
                details.into_iter().filter(|(_, value)| !value.is_null()).collect()
            }
            _ => Map::new(),
        };
        self.events.append(&Event { time: now(), name, run, agent, details });
    }
}
