use super::super::budget::Purse;
use super::*;
use crate::base::{FileLock, RunId};
use crate::catalog::{Orchestration, Snapshot};
use crate::config::Settings;
use crate::record::CostLedger;
use test_case::test_case;

fn agent(limits: &str) -> Arc<Agent> {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("agents/helper");
    std::fs::create_dir_all(&home).unwrap();
    let text = format!("---\nname: helper\ndescription: Helps\n{limits}---\nHelp.\n");
    std::fs::write(home.join("agent.md"), text).unwrap();
    let settings = Settings::resolve(Some(folder.path())).unwrap();
    let snapshot = Snapshot::load(&settings);
    Arc::clone(snapshot.get("helper").unwrap().agent().unwrap())
}

fn spent(cost_usd: f64) -> Observation<'static> {
    Observation::Spent { cost_usd, goes_on: true }
}

const RESULT: Observation<'static> =
    Observation::ToolFinished { tool_use_id: "t", is_error: false, text: "" };

#[tokio::test]
async fn the_budget_of_a_call_counts_all_its_turns() {
    let meter = Meter::start(agent("max_budget_usd: 0.01\n"), None);
    meter.observe(&spent(0.004));
    meter.observe(&spent(0.006));
    meter.observe(&Observation::TurnFinished { cost_usd: 0.007, turns: 2 });
    assert_eq!(meter.over(), None);
    meter.observe(&spent(0.004));
    let told = meter.overrun().await.sentence();
    assert!(told.starts_with("BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01"), "{told}");
}

/// Nobody goes on before the payment is held against the budget, however long the disk takes.
#[tokio::test]
async fn what_passes_a_shared_budget_is_known_before_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let purse = Purse::new(CostLedger::at(folder.path()));
    let limits = Orchestration { session_budget_usd: Some(0.01), ..Orchestration::default() };
    let tab = purse.open_tab(RunId::new(), "helper", Some("s"), &limits);
    let meter = Meter::start(agent(""), Some(tab));
    meter.settled().await;
    let busy = FileLock::acquire(&folder.path().join("costs.lock"), TURNS_PATIENCE).unwrap();
    meter.observe(&spent(0.011));
    let early = tokio::time::timeout(TURNS_PATIENCE, meter.settled()).await;
    assert!(early.is_err() && meter.over().is_none(), "it is not written yet");
    drop(busy);
    meter.settled().await;
    assert_eq!(meter.over().unwrap().code, Code::BudgetExceeded);
}

#[tokio::test]
async fn one_turn_too_many_is_not_waited_for() {
    let meter = Meter::start(agent("max_turns: 2\n"), None);
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&Observation::TurnFinished { cost_usd: 0.0, turns: 5 });
    meter.observe(&Observation::Turn { turns: 1 });
    assert_eq!(meter.over(), None);
    meter.observe(&Observation::Turn { turns: 2 });
    assert_eq!(meter.overrun().await.code, Code::MaxTurns);
}

#[tokio::test]
async fn a_cli_that_hangs_at_its_last_turn_is_ended() {
    let meter = Meter::start(agent("max_turns: 1\n"), None);
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&RESULT);
    assert!(meter.tool_was_used());
    assert_eq!(meter.overrun().await.code, Code::MaxTurns);
}

#[tokio::test]
async fn a_cli_that_says_so_itself_is_believed() {
    let meter = Meter::start(agent("max_turns: 1\n"), None);
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&RESULT);
    meter.observe(&Observation::TurnFinished { cost_usd: 0.0, turns: 1 });
    sleep(TURNS_PATIENCE * 2).await;
    assert_eq!(meter.over(), None);
}

#[test_case(1, 401 => false; "the sign in may be refreshed")]
#[test_case(2, 401 => true; "it is not")]
#[test_case(9, 529 => false; "an overload may pass")]
#[tokio::test]
async fn what_will_stay_is_said_at_once(attempt: u64, status: u64) -> bool {
    let meter = Meter::start(agent(""), None);
    let (status, error) = (Some(status), "authentication_failed");
    meter.observe(&Observation::ApiRetry { attempt, max_retries: 10, delay_ms: 1, status, error });
    meter.over().is_some()
}
