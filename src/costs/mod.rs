//! The ledger: what runs have cost, per agent, day and session. Budgets are enforced in `delegation`.

mod ledger;
mod table;

pub use ledger::CostLedger;
pub use table::CostEntry;

pub(crate) use table::{CostAccount, day_of, process_session};
