//! The cost ledger: costs of every run, posted durably while the run is going on.
//!
//! An entry is one line in a journal (`data/costs-N.journal`), fsynced before the caller continues. After 1,000 lines
//! the journal is compacted into `data/costs.json`, which names the next journal. That single atomic write both includes
//! the old journal and retires it, so a crash at any time neither loses nor counts twice.

use std::path::Path;

use super::table::{CostAccount, CostEntry, CostTable};
use crate::store::{Journal, JournalError};

/// The cost ledger of one project. All methods block on disk and on the lock (at most 5 s).
#[derive(Debug)]
pub struct CostLedger {
    journal: Journal<CostTable>,
}

impl CostLedger {
    /// Creates the ledger below a project's `data/`; nothing is read yet.
    pub fn at(data: &Path) -> Self {
        Self { journal: Journal::open(data) }
    }

    /// Posts a cost durably. If writing fails, the entry is kept in memory and the failure is logged.
    pub fn post(&self, payment: CostEntry) {
        if let Err(error) = self.journal.append(vec![payment]) {
            tracing::warn!(%error, "what a run has cost could not be written to data/costs; it is kept in memory");
        }
    }

    /// Returns the costs of an agent on a day (`2026-11-16`).
    pub fn spent_on_day(&self, day: &str, agent: &str) -> Result<f64, JournalError> {
        self.journal.read(|table| table.cost_on_day(day, agent))
    }

    /// Returns the costs of everything that a session of the main agent has started.
    pub fn spent_by_session(&self, session: &str) -> Result<f64, JournalError> {
        self.journal.read(|table| table.cost_of_session(session))
    }

    /// Returns all accounts, by day, agent and session.
    pub fn accounts(&self) -> Result<Vec<CostAccount>, JournalError> {
        self.journal.read(CostTable::accounts)
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
