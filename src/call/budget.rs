//! Money that is spent is spent: what an agent may cost in a day, and what everything one caller starts may cost.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::base::{Timestamp, now};
use crate::catalog::{Agent, Orchestration};
use crate::outcome::{Code, Failure};

/// What the runs of this process have cost so far.
#[derive(Debug, Default)]
pub(super) struct Purse(Mutex<f64>);

impl Purse {
    pub(super) fn pay(&self, cost_usd: f64) {
        if let Ok(mut spent) = self.0.lock() {
            *spent += cost_usd.max(0.0);
        }
    }

    fn spent(&self) -> f64 {
        self.0.lock().map_or(f64::INFINITY, |spent| *spent)
    }
}

/// Refuses a call whose money is spent. `events` is the record of all runs of the project.
pub(super) fn check(
    agent: &Agent,
    limits: &Orchestration,
    purse: &Purse,
    events: &Path,
) -> Result<(), Failure> {
    if let Some(most) = limits.session_budget_usd.filter(|most| purse.spent() >= *most) {
        let message = format!(
            "everything this session has started has cost ${:.2} of ${most} (`session_budget_usd`)",
            purse.spent()
        );
        return Err(exceeded(&message, "it resets with a new session of the main agent"));
    }
    let Some(most) = limits.budgets.get(agent.name.as_str()).map(|budget| budget.per_day_usd)
    else {
        return Ok(());
    };
    let spent = spent_on(events, agent.name.as_str(), &today(now()));
    if spent < most {
        return Ok(());
    }
    let message = format!(
        "`{}` has cost ${spent:.2} of ${most} today (`budgets.{}.per_day_usd`)",
        agent.name, agent.name
    );
    Err(exceeded(&message, "it resets at 00:00 UTC"))
}

fn exceeded(message: &str, resets: &str) -> Failure {
    Failure::new(
        Code::BudgetExceeded,
        message,
        format!("{resets}; or raise it in agents/defaults.yaml"),
    )
}

/// `2026-11-16`, in UTC.
fn today(now: Timestamp) -> String {
    now.to_string().chars().take(10).collect()
}

/// The costs of an agent's runs that ended on that day.
fn spent_on(events: &Path, agent: &str, day: &str) -> f64 {
    let Ok(file) = File::open(events) else { return 0.0 };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines
        .filter(|line| line.contains("\"RunEnded\""))
        .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
        .filter(|event| {
            event.get("time").and_then(Value::as_str).is_some_and(|time| time.starts_with(day))
        })
        .filter(|event| event.get("agent_type").and_then(Value::as_str) == Some(agent))
        .filter_map(|event| event.get("cost_usd").and_then(Value::as_f64))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_agent_spent_on_that_day_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("events.jsonl");
        let line = |day: &str, name: &str, agent: &str, cost: f64| {
            format!(
                "{{\"time\":\"{day}T10:00:00Z\",\"hook_event_name\":\"{name}\",\"agent_type\":\"{agent}\",\"cost_usd\":{cost}}}\n"
            )
        };
        let text = line("2026-11-16", "RunEnded", "a", 0.5)
            + &line("2026-11-16", "RunEnded", "a", 0.25)
            + &line("2026-11-15", "RunEnded", "a", 8.0)
            + &line("2026-11-16", "RunStarted", "a", 8.0)
            + &line("2026-11-16", "RunEnded", "b", 8.0)
            + "torn";
        std::fs::write(&file, text).unwrap();
        assert!((spent_on(&file, "a", "2026-11-16") - 0.75).abs() < 1e-9);
        assert!(spent_on(&folder.path().join("missing"), "a", "2026-11-16").abs() < 1e-9);
    }
}
