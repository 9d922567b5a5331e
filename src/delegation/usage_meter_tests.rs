use super::super::budget::Budgets;
use super::*;
use crate::catalog::{Orchestration, Snapshot};
use crate::config::Settings;
use crate::costs::CostLedger;
use crate::store::FileLock;
use crate::util::RunId;
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

/// A budget without limits.
fn budget() -> Arc<RunBudget> {
    let folder = tempfile::tempdir().unwrap();
    let budgets = Budgets::new(CostLedger::at(folder.path()));
    budgets.open(RunId::new(), "helper", None, &Orchestration::default())
}

fn spent(cost_usd: f64) -> Observation<'static> {
    Observation::MessageEnded { cost_usd, continues: true }
}

const RESULT: Observation<'static> =
    Observation::ToolFinished { tool_use_id: "t", is_error: false, text: "" };

#[tokio::test]
async fn a_run_budget_covers_all_turns() {
    let meter = UsageMeter::start(agent("max_budget_usd: 0.01\n"), budget());
    meter.observe(&spent(0.004));
    meter.observe(&spent(0.006));
    meter.observe(&Observation::TurnFinished { cost_usd: 0.007, turns: 2 });
    assert_eq!(meter.over(), None);
    meter.observe(&spent(0.004));
    let told = meter.wait_exceeded().await.full_message();
    assert!(told.starts_with("BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01"), "{told}");
}

/// No tool runs before the cost is checked against the budget, even if the disk is slow.
#[tokio::test]
async fn an_exceeded_shared_budget_is_known_before_the_next_tool() {
    let folder = tempfile::tempdir().unwrap();
    let budgets = Budgets::new(CostLedger::at(folder.path()));
    let limits = Orchestration { session_budget_usd: Some(0.01), ..Orchestration::default() };
    let budget = budgets.open(RunId::new(), "helper", Some("s"), &limits);
    let meter = UsageMeter::start(agent(""), budget);
    meter.settled().await;
    let busy = FileLock::acquire(&folder.path().join("costs.lock"), MAX_TURNS_TIMEOUT).unwrap();
    meter.observe(&spent(0.011));
    let early = tokio::time::timeout(MAX_TURNS_TIMEOUT, meter.settled()).await;
    assert!(early.is_err() && meter.over().is_none(), "it is not written yet");
    drop(busy);
    meter.settled().await;
    assert_eq!(meter.over().unwrap().code, Code::BudgetExceeded);
}

#[tokio::test]
async fn a_turn_above_max_turns_stops_the_run() {
    let meter = UsageMeter::start(agent("max_turns: 2\n"), budget());
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&Observation::TurnFinished { cost_usd: 0.0, turns: 5 });
    meter.observe(&Observation::Turn { turns: 1 });
    assert_eq!(meter.over(), None);
    meter.observe(&Observation::Turn { turns: 2 });
    assert_eq!(meter.wait_exceeded().await.code, Code::MaxTurns);
}

#[tokio::test]
async fn a_cli_that_hangs_after_its_last_turn_is_stopped() {
    let meter = UsageMeter::start(agent("max_turns: 1\n"), budget());
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&RESULT);
    assert!(meter.tool_was_used());
    assert_eq!(meter.wait_exceeded().await.code, Code::MaxTurns);
}

#[tokio::test]
async fn a_cli_that_ends_its_last_turn_is_not_stopped() {
    let meter = UsageMeter::start(agent("max_turns: 1\n"), budget());
    meter.observe(&Observation::Turn { turns: 1 });
    meter.observe(&RESULT);
    meter.observe(&Observation::TurnFinished { cost_usd: 0.0, turns: 1 });
    sleep(MAX_TURNS_TIMEOUT * 2).await;
    assert_eq!(meter.over(), None);
}

#[test_case(1, 401 => false; "the sign in may be refreshed")]
#[test_case(2, 401 => true; "it is not")]
#[test_case(9, 529 => false; "an overload may pass")]
#[tokio::test]
async fn permanent_api_errors_stop_the_run_at_the_second_attempt(
    attempt: u64,
    status: u64,
) -> bool {
    let meter = UsageMeter::start(agent(""), budget());
    let (status, error) = (Some(status), "authentication_failed");
    meter.observe(&Observation::ApiRetry { attempt, max_retries: 10, delay_ms: 1, status, error });
    meter.over().is_some()
}

/// A message that exceeds the budget of the call also exceeds that of the session, which is checked
/// later.
#[tokio::test]
async fn the_first_exceeded_limit_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let budgets = Budgets::new(CostLedger::at(folder.path()));
    let limits = Orchestration { session_budget_usd: Some(0.01), ..Orchestration::default() };
    let budget = budgets.open(RunId::new(), "helper", Some("s"), &limits);
    let meter = UsageMeter::start(agent("max_budget_usd: 0.01\n"), budget);
    meter.observe(&spent(0.011));
    meter.settled().await;
    let told = meter.over().unwrap().full_message();
    assert!(told.contains("(`max_budget_usd`)"), "{told}");
}
