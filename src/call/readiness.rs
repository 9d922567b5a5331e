//! Whether calls could be taken now, for whoever must decide to send any.

use std::sync::Arc;

use super::orchestrator::Orchestrator;
use super::program::locate;
use crate::base::check_writable;
use crate::record::RunRow;
use crate::worker::Counts;

/// What a call needs, and whether it is there. Says no path and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Agents that can be called.
    pub sound_agents: usize,
    /// Agents whose files are wrong.
    pub broken_agents: usize,
    /// Whether conversations and records can be kept.
    pub store_writable: bool,
    /// Whether there is a `claude` to start.
    pub claude_found: bool,
}

impl Orchestrator {
    /// Looks at everything that a call needs. Touches the disk.
    pub fn readiness(self: &Arc<Self>) -> Readiness {
        let snapshot = self.catalog.snapshot();
        let sound = snapshot.entries().iter().filter(|entry| entry.agent().is_some()).count();
        Readiness {
            sound_agents: sound,
            broken_agents: snapshot.entries().len() - sound,
            store_writable: check_writable(&self.settings.data_dir()).is_ok(),
            claude_found: locate(&self.settings).is_ok(),
        }
    }

    /// How many runs are going on and wait.
    pub fn queue(&self) -> Counts {
        self.admission.counts()
    }

    /// How many processes wait for a call: warm ones, and live ones.
    pub fn waiting_processes(&self) -> (usize, usize) {
        self.warmth.pool.waiting()
    }

    /// The runs that have ended, by agent and outcome.
    pub fn run_rows(&self) -> Vec<RunRow> {
        self.metrics.rows()
    }
}
