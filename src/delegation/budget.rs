//! Budgets in US dollars: per agent and day, and per main session.
//!
//! Costs are posted to the ledger while a run is going on, so that parallel runs see each other's. A run is stopped
//! when the posted sum reaches its budget; costs posted by then are not refunded, whatever the outcome.

use std::sync::Arc;

use super::authorize::{Allowed, Authorized};
use super::pipeline::Run;
use crate::catalog::{Agent, Orchestration};
use crate::costs::{CostEntry, CostLedger, day_of, process_session};
use crate::outcome::{Code, Failure};
use crate::store::JournalError;
use crate::util::{Mutex, RunId, Timestamp, now, run_blocking};

/// All budgets of the project.
///
/// Runs whose caller has no session share the budget of this server process.
pub(crate) struct Budgets {
    ledger: Arc<CostLedger>,
    process_session: String,
}

impl Budgets {
    pub(crate) fn new(ledger: CostLedger) -> Self {
        Self { ledger: Arc::new(ledger), process_session: process_session() }
    }

    /// Returns the budget of one run. `session` is the id of the main session, if known.
    pub(crate) fn open(
        &self,
        run: RunId,
        agent: &str,
        session: Option<&str>,
        limits: &Orchestration,
    ) -> Arc<RunBudget> {
        Arc::new(RunBudget {
            ledger: Arc::clone(&self.ledger),
            run,
            agent: agent.to_owned(),
            session: session.unwrap_or(&self.process_session).to_owned(),
            daily_limit: limits.budgets.get(agent).map(|budget| budget.per_day_usd),
            session_limit: limits.session_budget_usd,
            posted: Mutex::default(),
        })
    }
}

/// Budget of one run: its posted costs and the limits it shares with other runs.
///
/// All methods block on file I/O.
pub(crate) struct RunBudget {
    ledger: Arc<CostLedger>,
    run: RunId,
    agent: String,
    session: String,
    daily_limit: Option<f64>,
    session_limit: Option<f64>,
    posted: Mutex<PostedCost>,
}

#[derive(Default)]
struct PostedCost {
    cost_usd: f64,
    is_closed: bool,
}

impl RunBudget {
    /// Returns `true` if a daily or session budget applies.
    pub(crate) fn has_shared_budget(&self) -> bool {
        self.daily_limit.is_some() || self.session_limit.is_some()
    }

    /// Fails with `BUDGET_EXCEEDED` if the session's budget or the agent's daily budget is used up.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_session()?;
        self.check_day(now())
    }

    /// Posts the costs so far.
    pub(crate) fn post(&self, cost_usd: f64) {
        self.post_difference(cost_usd, 0);
    }

    /// Posts the final costs. Later calls of [`Self::post`] are ignored.
    pub(crate) fn close(&self, cost_usd: f64) {
        self.post_difference(cost_usd, 1);
    }

    fn post_difference(&self, cost_usd: f64, ended: u64) {
        let mut paid = self.posted.lock();
        let more = cost_usd.max(0.0) - paid.cost_usd;
        if paid.is_closed || (ended == 0 && more.abs() < f64::EPSILON) {
            return;
        }
        paid.cost_usd += more;
        paid.is_closed = ended > 0;
        self.ledger.post(CostEntry {
            time: now(),
            run: self.run,
            agent: self.agent.clone(),
            session: self.session.clone(),
            cost_usd: more,
            ended,
        });
    }

    fn check_session(&self) -> Result<(), Failure> {
        let Some(most) = self.session_limit else { return Ok(()) };
        let spent = self
            .ledger
            .spent_by_session(&self.session)
            .map_err(|error| ledger_unreadable(&error))?;
        if spent < most {
            return Ok(());
        }
        let spent = dollars(spent);
        let message = format!(
            "everything that this session has started has cost {spent} of ${most} (`session_budget_usd`)"
        );
        Err(budget_exceeded(message, "it resets with a new session of the main agent"))
    }

    fn check_day(&self, now: Timestamp) -> Result<(), Failure> {
        let Some(most) = self.daily_limit else { return Ok(()) };
        let agent = &self.agent;
        let spent = self
            .ledger
            .spent_on_day(&day_of(now), agent)
            .map_err(|error| ledger_unreadable(&error))?;
        if spent < most {
            return Ok(());
        }
        let spent = dollars(spent);
        let message =
            format!("`{agent}` has cost {spent} of ${most} today (`budgets.{agent}.per_day_usd`)");
        Err(budget_exceeded(
            message,
            &format!("it resets at 00:00 UTC, in {}", until_midnight(now)),
        ))
    }
}

/// Opens the budget of a run and checks the budgets that it shares with others.
///
/// # Errors
///
/// `BUDGET_EXCEEDED`, or `STORE_UNAVAILABLE` if a budget applies and the costs cannot be read.
pub(crate) async fn open_budget(run: &Run, allowed: Allowed) -> Result<Authorized, Failure> {
    let Allowed { agent, verdict, snapshot } = allowed;
    let session = run.caller.session_id.as_deref();
    let limits = snapshot.orchestration();
    let budget = run.services.budgets.open(run.id, agent.name.as_str(), session, limits);
    let checked = Arc::clone(&budget);
    run_blocking(move || checked.check()).await.unwrap_or(Ok(()))?;
    Ok(Authorized { agent, budget, verdict })
}

/// Failure of a run that reached `max_budget_usd`.
pub(crate) fn run_budget_exceeded(agent: &Agent, most: f64, spent: f64) -> Failure {
    let (name, file, spent) = (&agent.name, agent.file.display(), dollars(spent));
    let message = format!("`{name}` has cost {spent} of ${most} in this call (`max_budget_usd`)");
    let help = format!("it begins anew with the next call: ask for less, or raise it in {file}");
    Failure::new(Code::BudgetExceeded, message, help)
}

fn budget_exceeded(message: String, resets: &str) -> Failure {
    let help = format!("{resets}; or raise it in agents/defaults.yaml");
    Failure::new(Code::BudgetExceeded, message, help)
}

/// Failure if the ledger cannot be read: without the sum no run may start.
fn ledger_unreadable(error: &JournalError) -> Failure {
    let help = "a person must make the file readable; a file that cannot be mended can be moved away, and what it says no longer counts";
    Failure::new(Code::StoreUnavailable, format!("{error}, and a budget depends on it"), help)
}

/// Formats an amount with two decimals from $0.10, with four below.
fn dollars(amount: f64) -> String {
    if amount >= 0.1 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}

fn until_midnight(now: Timestamp) -> String {
    let minutes = (86_400 - now.as_second().rem_euclid(86_400) + 59) / 60;
    match minutes / 60 {
        0 => format!("{minutes} min"),
        hours => format!("{hours} h {} min", minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("2026-11-16T21:44:01Z" => "2 h 16 min")]
    #[test_case("2026-11-16T23:59:59Z" => "1 min")]
    #[test_case("2026-11-16T00:00:00Z" => "24 h 0 min")]
    fn time_until_midnight_is_formatted(now: &str) -> String {
        until_midnight(now.parse().unwrap())
    }

    #[test]
    fn a_cost_posted_twice_counts_once_and_is_corrected_by_the_final_cost() {
        let folder = tempfile::tempdir().unwrap();
        let budgets = Budgets::new(CostLedger::at(folder.path()));
        let limits = Orchestration { session_budget_usd: Some(0.3), ..Orchestration::default() };
        let budget = budgets.open(RunId::new(), "helper", Some("s"), &limits);
        budget.post(0.1);
        budget.post(0.1);
        assert_eq!(budget.check(), Ok(()));
        budget.post(0.4);
        let told = budget.check().unwrap_err().full_message();
        assert!(told.contains("has cost $0.40 of $0.3 (`session_budget_usd`)"), "{told}");
        budget.close(0.25);
        budget.post(0.4);
        assert_eq!(budget.check(), Ok(()));
        let other = budgets.open(RunId::new(), "helper", Some("s"), &limits);
        other.close(0.05);
        assert!(budget.check().is_err() && budgets.ledger.spent_by_session("s").unwrap() > 0.29);
    }
}
