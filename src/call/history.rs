//! What is recorded of a run: queued, started, ended; every start has its end.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::RunId;
use crate::identity::Caller;
use crate::outcome::{Outcome, Report};
use crate::record::{EventLog, Redactor, RunSubject};
use crate::worker::RunCard;

/// How long the end of everything waits for the disk.
const SETTLE: Duration = Duration::from_secs(2);

/// The record of runs.
#[derive(Clone)]
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

    /// Waits until what is recorded can be read; a disk that does not take it is not waited for long.
    pub(super) fn settle(&self) {
        let missing = self.events.flush(SETTLE);
        if missing > 0 {
            tracing::warn!(missing, file = %self.file().display(), "events could not be recorded");
        }
    }

    pub(super) fn queued(&self, run: RunId, agent: &str, caller: &Caller) {
        let subject = RunSubject::new(run, agent, Some(caller.clone()));
        self.add(&subject, "RunQueued", json!({}));
    }

    pub(super) fn started(&self, run: RunId, agent: &str, pid: u32) {
        self.add(&RunSubject::new(run, agent, None), "RunStarted", json!({ "pid": pid }));
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
        self.add(&RunSubject::new(report.run_id, &report.agent, None), "RunEnded", details);
    }

    /// A run whose server ended in the middle of it; found by the next one.
    pub(super) fn cut_off(&self, card: &RunCard) {
        let details = json!({
            "outcome": "INTERRUPTED", "cost_usd": card.progress.cost_usd, "turns": card.progress.turns,
            "error": "the server ended while the run was going on",
        });
        self.add(&RunSubject::new(card.run, &card.agent, None), "RunEnded", details);
    }

    fn add(&self, subject: &RunSubject, name: &str, details: Value) {
        self.events.append(&subject.event(name, details, &Redactor::default()));
    }
}
