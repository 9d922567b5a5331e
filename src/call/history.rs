//! What is recorded of a run: queued, started, ended; every start has its end.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::recorder::{Outlets, Recorder};
use crate::record::{EventLog, LeftRun, RunSubject};
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

    /// Begins the record of a run.
    pub(super) fn queued(&self, subject: RunSubject, outlets: Outlets) -> Recorder {
        Recorder::queued(self.events.clone(), outlets, subject)
    }

    /// A run whose server ended in the middle of it; found by the next one. Everything it left open is closed.
    pub(super) fn cut_off(&self, card: &RunCard) -> io::Result<()> {
        let details = json!({
            "outcome": "INTERRUPTED", "cost_usd": card.progress.cost_usd, "turns": card.progress.turns,
            "error": "the server ended while the run was going on",
        });
        let transcript = card.transcript.as_deref();
        self.events.end_run(LeftRun { run: card.run, agent: &card.agent, transcript }, details)
    }
}
