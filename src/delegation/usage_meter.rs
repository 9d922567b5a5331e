//! Usage meter of a run: turns, costs and API failures as they happen.
//!
//! The CLI was observed to hang at its own limits; the limits here are enforced without it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::budget::{RunBudget, run_budget_exceeded};
use crate::catalog::Agent;
use crate::claude::Observation;
use crate::outcome::{ApiFailure, Code, Failure};
use crate::util::{Mutex, run_blocking};

/// Time within which the CLI must end the run itself after the tools of the last allowed turn.
const MAX_TURNS_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 3_000 });
/// Limit of the wait for the end of a message; its tool call is decided after that, even if the cost is
/// unknown.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Rejected attempts before the run is stopped. The CLI refreshes its sign-in once after the first.
const MAX_REJECTED_ATTEMPTS: u64 = 2;

/// Usage of one run, over all its processes.
pub(crate) struct UsageMeter {
    agent: Arc<Agent>,
    tally: Mutex<UsageCounters>,
    cost: watch::Sender<MeteredCost>,
    /// Sequence number of the last cost that was posted and checked; `None` if no budget is shared with
    /// other runs.
    checked: Option<watch::Receiver<u64>>,
    exceeded: watch::Sender<Option<Failure>>,
}

#[derive(Default)]
struct UsageCounters {
    /// Cost of completed turns, in US dollars.
    previous_cost_usd: f64,
    previous_messages: u64,
    /// Messages of the current turn.
    messages: u64,
    running_tools: i64,
    tool_was_used: bool,
    /// Last error of the API, cleared by the next message.
    last_api_error: Option<String>,
    /// Number of the current turn; a timer of an earlier turn is ignored.
    turn: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct MeteredCost {
    cost_usd: f64,
    turn_continues: bool,
    sequence: u64,
    /// True while a message is being written and its cost is unknown.
    is_writing: bool,
}

impl UsageMeter {
    /// Starts metering.
    ///
    /// Costs are posted to `budget` in a background task, which also checks the shared budgets.
    pub(crate) fn start(agent: Arc<Agent>, budget: Arc<RunBudget>) -> Arc<Self> {
        let (cost, costs) = watch::channel(MeteredCost::default());
        let (exceeded, _) = watch::channel(None);
        let (posted, checked) = watch::channel(0);
        let checked = budget.has_shared_budget().then_some(checked);
        tokio::spawn(post_costs(budget, costs, posted, exceeded.clone()));
        Arc::new(Self { agent, tally: Mutex::default(), cost, checked, exceeded })
    }

    /// Waits until a limit is exceeded and returns the failure. Cancel-safe.
    pub(crate) async fn wait_exceeded(&self) -> Failure {
        let mut over = self.exceeded.subscribe();
        let passed = over.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match passed {
            Some(failure) => failure,
            // Unreachable: `self` owns the sender.
            None => std::future::pending().await,
        }
    }

    /// Returns the first exceeded limit, if any.
    pub(crate) fn over(&self) -> Option<Failure> {
        self.exceeded.borrow().clone()
    }

    /// Waits until all costs so far are checked against the budgets.
    ///
    /// The CLI asks about a tool while the message is still being written. Without this wait, a message that exceeds a
    /// budget could still run its tools. Waits at most 10 s for the message; returns at once if no budget applies.
    pub(crate) async fn settled(&self) {
        if self.checked.is_none() && self.agent.limits.max_budget_usd.is_none() {
            return;
        }
        let mut spent = self.cost.subscribe();
        let written = spent.wait_for(|spent| !spent.is_writing);
        // The senders live as long as the run: either the value arrives or the timeout expires.
        let _ = timeout(MESSAGE_TIMEOUT, written).await;
        let number = self.cost.borrow().sequence;
        if let Some(mut settled) = self.checked.clone() {
            let _ = settled.wait_for(|settled| *settled >= number).await;
        }
    }

    /// Returns `true` once a tool was requested. The tool may have run, so nothing is retried after that.
    pub(crate) fn tool_was_used(&self) -> bool {
        self.tally.lock().tool_was_used
    }

    /// Updates the counters with an observation of the output stream.
    pub(crate) fn observe(self: &Arc<Self>, observation: &Observation<'_>) {
        match observation {
            Observation::MessageStarted => self.cost.send_modify(|spent| spent.is_writing = true),
            Observation::MessageEnded { cost_usd, continues } => {
                let before = self.tally.lock().previous_cost_usd;
                self.publish_cost(before + cost_usd, *continues);
            }
            Observation::Turn { turns } => self.count_message(*turns),
            Observation::ToolStarted { .. } => self.tool_started(),
            Observation::ToolFinished { .. } => self.tool_finished(),
            Observation::TurnFinished { cost_usd, .. } => self.turn_finished(*cost_usd),
            Observation::ApiRetry { attempt, max_retries, status, error, .. } => {
                self.tally.lock().last_api_error =
                    Some(refusal(*attempt, *max_retries, *status, error));
                self.request_rejected(*attempt, *status, error);
            }
            Observation::SessionStarted(_)
            | Observation::Text(_)
            | Observation::PartialContent
            | Observation::PermissionDenied { .. }
            | Observation::StaleResult => {}
        }
    }

    /// Describes the last API error if no message followed it, for a run that ended while the CLI was
    /// retrying.
    pub(crate) fn last_api_error(&self) -> Option<String> {
        self.tally.lock().last_api_error.clone()
    }

    fn exceed(&self, failure: Failure) {
        stop(&self.exceeded, failure);
    }

    fn publish_cost(&self, cost_usd: f64, turn_continues: bool) {
        self.cost.send_modify(|spent| {
            let sequence = spent.sequence + 1;
            *spent = MeteredCost { cost_usd, turn_continues, sequence, is_writing: false };
        });
        if let Some(most) = self.agent.limits.max_budget_usd.filter(|most| cost_usd >= *most) {
            self.exceed(run_budget_exceeded(&self.agent, most, cost_usd));
        }
    }

    fn count_message(&self, messages: u64) {
        let all = {
            let mut tally = self.tally.lock();
            tally.messages = messages;
            tally.last_api_error = None;
            tally.previous_messages + messages
        };
        if self.agent.limits.max_turns.is_some_and(|most| all > u64::from(most)) {
            self.exceed(max_turns_exceeded(&self.agent));
        }
    }

    fn tool_started(&self) {
        let mut tally = self.tally.lock();
        tally.running_tools += 1;
        tally.tool_was_used = true;
    }

    /// Starts a timer after the tools of the last allowed turn: if the CLI does not end the run itself, it
    /// is stopped.
    fn tool_finished(self: &Arc<Self>) {
        let (turn, is_last) = {
            let mut tally = self.tally.lock();
            tally.tool_was_used = true;
            tally.running_tools -= 1;
            let all = tally.previous_messages + tally.messages;
            let used_up = self.agent.limits.max_turns.is_some_and(|most| all >= u64::from(most));
            (tally.turn, used_up && tally.running_tools <= 0)
        };
        if !is_last {
            return;
        }
        let meter = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(MAX_TURNS_TIMEOUT).await;
            if let Some(meter) = meter.upgrade()
                && meter.tally.lock().turn == turn
            {
                meter.exceed(max_turns_exceeded(&meter.agent));
            }
        });
    }

    /// Counts the cost of a turn that ended, with a result or without.
    pub(crate) fn turn_finished(&self, cost_usd: f64) {
        let cost_usd = {
            let mut tally = self.tally.lock();
            tally.previous_cost_usd += cost_usd;
            tally.previous_messages += tally.messages;
            tally.messages = 0;
            tally.running_tools = 0;
            tally.turn += 1;
            tally.previous_cost_usd
        };
        self.publish_cost(cost_usd, false);
    }

    /// Stops the run on the second rejection that retrying cannot fix; the CLI would retry ten times, over
    /// minutes.
    fn request_rejected(&self, attempt: u64, status: Option<u64>, error: &str) {
        let trouble = ApiFailure::classify(status, Some(error), "");
        if attempt < MAX_REJECTED_ATTEMPTS || !trouble.is_permanent() {
            return;
        }
        let status = status.map_or(String::new(), |status| format!(" (HTTP {status})"));
        let message =
            format!("the API refuses the requests of `{}`: {error}{status}", self.agent.name);
        self.exceed(Failure::new(Code::ClaudeFailed, message, trouble.help()));
    }
}

/// Records the first exceeded limit; later ones are ignored.
fn stop(over: &watch::Sender<Option<Failure>>, failure: Failure) {
    over.send_if_modified(|over| {
        let is_first = over.is_none();
        over.get_or_insert(failure);
        is_first
    });
}

/// Describes an API error that the CLI retries.
fn refusal(attempt: u64, most: u64, status: Option<u64>, error: &str) -> String {
    let said = match status {
        Some(status) => format!("did not take the request: {error} (HTTP {status})"),
        None => "could not be reached".to_owned(),
    };
    format!("The API {said}; attempt {attempt} of {most} was to follow.")
}

/// Failure of a run that used up `max_turns`.
pub(crate) fn max_turns_exceeded(agent: &Agent) -> Failure {
    let most = agent.limits.max_turns.map_or(String::new(), |turns| format!(" of {turns}"));
    let message = format!("`{}` used up its turns{most} before it had an answer", agent.name);
    let help = format!("raise `max_turns` in {}, or ask for less", agent.file.display());
    Failure::new(Code::MaxTurns, message, help)
}

/// Posts each cost to the ledger as it arrives, so that parallel runs see it and a crash does not lose
/// it.
async fn post_costs(
    budget: Arc<RunBudget>,
    mut news: watch::Receiver<MeteredCost>,
    settled: watch::Sender<u64>,
    over: watch::Sender<Option<Failure>>,
) {
    while news.changed().await.is_ok() {
        let MeteredCost { cost_usd, turn_continues, sequence, .. } = *news.borrow_and_update();
        if sequence == *settled.borrow() {
            continue;
        }
        let paying = Arc::clone(&budget);
        let checked = run_blocking(move || {
            paying.post(cost_usd);
            // A complete answer has been paid for; stop only a run that would cost more.
            if turn_continues { paying.check() } else { Ok(()) }
        });
        if let Some(Err(failure)) = checked.await {
            stop(&over, failure);
        }
        settled.send_replace(sequence);
    }
}

#[cfg(test)]
#[path = "usage_meter_tests.rs"]
mod tests;
