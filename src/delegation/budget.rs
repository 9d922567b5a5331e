//! Money that is spent is spent: what an agent may cost in a day, and what everything one session starts may cost.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::{RunId, Timestamp, now};
use crate::catalog::{Agent, Orchestration};
use crate::outcome::{Code, Failure};
use crate::record::{CostLedger, Payment, day_of, session_of_process};

/// The money of all calls: the project's ledger, and whose calls they are where nobody says.
pub(super) struct Purse {
    ledger: Arc<CostLedger>,
    own_session: String,
}

impl Purse {
    pub(super) fn new(ledger: CostLedger) -> Self {
        Self { ledger: Arc::new(ledger), own_session: session_of_process() }
    }

    /// The tab of one run. `session` is the main agent's, where it is known.
    pub(super) fn open_tab(
        &self,
        run: RunId,
        agent: &str,
        session: Option<&str>,
        limits: &Orchestration,
    ) -> Arc<Tab> {
        Arc::new(Tab {
            ledger: Arc::clone(&self.ledger),
            run,
            agent: agent.to_owned(),
            session: session.unwrap_or(&self.own_session).to_owned(),
            per_day: limits.budgets.get(agent).map(|budget| budget.per_day_usd),
            per_session: limits.session_budget_usd,
            paid: Mutex::default(),
        })
    }
}

/// What one run owes, and the budgets that it shares with others. Everything here waits for the disk.
pub(super) struct Tab {
    ledger: Arc<CostLedger>,
    run: RunId,
    agent: String,
    session: String,
    per_day: Option<f64>,
    per_session: Option<f64>,
    paid: Mutex<Paid>,
}

#[derive(Default)]
struct Paid {
    so_far: f64,
    is_closed: bool,
}

impl Tab {
    /// Whether the run shares a budget with others.
    pub(super) fn has_shared_budget(&self) -> bool {
        self.per_day.is_some() || self.per_session.is_some()
    }

    /// Why there is no money left, if there is none: for this agent today, or for this session.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.check_session()?;
        self.check_day(now())
    }

    /// Writes down what the run has cost so far.
    pub(super) fn note(&self, cost_usd: f64) {
        self.pay(cost_usd, 0);
    }

    /// Writes down what the run has cost in the end. What is told after that is late news.
    pub(super) fn close(&self, cost_usd: f64) {
        self.pay(cost_usd, 1);
    }

    fn pay(&self, cost_usd: f64, ended: u64) {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let more = cost_usd.max(0.0) - paid.so_far;
        if paid.is_closed || (ended == 0 && more.abs() < f64::EPSILON) {
            return;
        }
        paid.so_far += more;
        paid.is_closed = ended > 0;
        self.ledger.pay(Payment {
            time: now(),
            run: self.run,
            agent: self.agent.clone(),
            session: self.session.clone(),
            cost_usd: more,
            ended,
        });
    }

    fn check_session(&self) -> Result<(), Failure> {
        let Some(most) = self.per_session else { return Ok(()) };
        let spent = self.ledger.spent_by_session(&self.session);
        if spent < most {
            return Ok(());
        }
        let message = format!(
            "everything that this session has started has cost {} of ${most} (`session_budget_usd`)",
            dollars(spent)
        );
        Err(exceeded(&message, "it resets with a new session of the main agent"))
    }

    fn check_day(&self, now: Timestamp) -> Result<(), Failure> {
        let Some(most) = self.per_day else { return Ok(()) };
        let spent = self.ledger.spent_on_day(&day_of(now), &self.agent);
        if spent < most {
            return Ok(());
        }
        let agent = &self.agent;
        let message = format!(
            "`{agent}` has cost {} of ${most} today (`budgets.{agent}.per_day_usd`)",
            dollars(spent)
        );
        Err(exceeded(&message, &format!("it resets at 00:00 UTC, in {}", until_midnight(now))))
    }
}

/// Why a run that has spent what one call may cost goes on no longer.
pub(super) fn call_exceeded(agent: &Agent, most: f64, spent: f64) -> Failure {
    let message = format!(
        "`{}` has cost {} of ${most} in this call (`max_budget_usd`)",
        agent.name,
        dollars(spent)
    );
    let help = format!(
        "it begins anew with the next call: ask for less, or raise it in {}",
        agent.file.display()
    );
    Failure::new(Code::BudgetExceeded, message, help)
}

fn exceeded(message: &str, resets: &str) -> Failure {
    Failure::new(
        Code::BudgetExceeded,
        message,
        format!("{resets}; or raise it in agents/defaults.yaml"),
    )
}

/// Cents where they say it, more digits where they do not.
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
    fn a_day_ends_in(now: &str) -> String {
        until_midnight(now.parse().unwrap())
    }

    #[test]
    fn what_is_told_twice_is_paid_once_and_corrected_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let purse = Purse::new(CostLedger::at(folder.path()));
        let limits = Orchestration { session_budget_usd: Some(0.3), ..Orchestration::default() };
        let tab = purse.open_tab(RunId::new(), "helper", Some("s"), &limits);
        tab.note(0.1);
        tab.note(0.1);
        assert_eq!(tab.check(), Ok(()));
        tab.note(0.4);
        let told = tab.check().unwrap_err().sentence();
        assert!(told.contains("has cost $0.40 of $0.3 (`session_budget_usd`)"), "{told}");
        tab.close(0.25);
        tab.note(0.4);
        assert_eq!(tab.check(), Ok(()));
        let other = purse.open_tab(RunId::new(), "helper", Some("s"), &limits);
        other.close(0.05);
        assert!(tab.check().is_err() && purse.ledger.spent_by_session("s") > 0.29);
    }
}
