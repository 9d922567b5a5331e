//! Watches what a run uses while it uses it. The CLI has limits of its own and was seen to hang at them: these hold without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::budget::{Tab, call_exceeded};
use super::on_disk::on_disk;
use crate::catalog::Agent;
use crate::claude::Observation;
use crate::outcome::{Code, Failure, Trouble};

/// How long the CLI may take to say that the turns are used up.
const TURNS_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 3_000 });
/// How long a message may go on after it has asked for a tool, before the tool is no longer held back.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(10);
/// An attempt that is refused may be cured by a fresh sign-in, which the CLI tries once by itself.
const ATTEMPTS: u64 = 2;

/// The meter of one run, whichever processes it has.
pub(super) struct Meter {
    agent: Arc<Agent>,
    tally: Mutex<Tally>,
    spent: watch::Sender<Spent>,
    /// The number of the last payment that others can see; absent where no budget is shared with them.
    settled: Option<watch::Receiver<u64>>,
    over: watch::Sender<Option<Failure>>,
}

#[derive(Default)]
struct Tally {
    /// Of turns that are over.
    cost_before: f64,
    messages_before: u64,
    /// Of the turn that is going on.
    messages: u64,
    tools_at_work: i64,
    tool_was_used: bool,
    /// What the API said last, as long as nothing came of it.
    refusal: Option<String>,
    /// Which turn it is, so that a late alarm is not for the next.
    turn: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Spent {
    cost_usd: f64,
    goes_on: bool,
    number: u64,
    /// A message is being written, and what it costs not known yet.
    is_writing: bool,
}

impl Meter {
    /// Begins to count. What is spent goes to the `tab` at once, and comes back if others have spent the rest.
    pub(super) fn start(agent: Arc<Agent>, tab: Option<Arc<Tab>>) -> Arc<Self> {
        let (spent, news) = watch::channel(Spent::default());
        let (over, _) = watch::channel(None);
        let settled = tab.and_then(|tab| {
            let (paid, settled) = watch::channel(0);
            let is_shared = tab.has_shared_budget();
            tokio::spawn(pay_as_it_goes(tab, news, paid, over.clone()));
            is_shared.then_some(settled)
        });
        Arc::new(Self { agent, tally: Mutex::default(), spent, settled, over })
    }

    /// Waits until the run must end, and says why.
    pub(super) async fn overrun(&self) -> Failure {
        let mut over = self.over.subscribe();
        let passed = over.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match passed {
            Some(failure) => failure,
            // The sender is here: this does not happen.
            None => std::future::pending().await,
        }
    }

    /// Why the run has used too much, if it has.
    pub(super) fn over(&self) -> Option<Failure> {
        self.over.borrow().clone()
    }

    /// Waits until everything spent so far is held against the budgets, so that what the message that passes one of them asks
    /// for is not done: the CLI asks about tools while the message is still being written, and other runs pay too.
    pub(super) async fn settled(&self) {
        if self.settled.is_none() && self.agent.limits.max_budget_usd.is_none() {
            return;
        }
        let mut spent = self.spent.subscribe();
        let written = spent.wait_for(|spent| !spent.is_writing);
        // The senders live as long as the run, so what is waited for comes, or the time is over.
        let _ = timeout(MESSAGE_PATIENCE, written).await;
        let number = self.spent.borrow().number;
        if let Some(mut settled) = self.settled.clone() {
            let _ = settled.wait_for(|settled| *settled >= number).await;
        }
    }

    /// Whether a tool was asked for, which may have run: from then on nothing is tried twice.
    pub(super) fn tool_was_used(&self) -> bool {
        self.tally().tool_was_used
    }

    /// Counts what is seen.
    pub(super) fn observe(self: &Arc<Self>, observation: &Observation<'_>) {
        match observation {
            Observation::MessageStarted => self.spent.send_modify(|spent| spent.is_writing = true),
            Observation::Spent { cost_usd, goes_on } => self.spend(*cost_usd, *goes_on),
            Observation::Turn { turns } => self.count_message(*turns),
            Observation::ToolStarted { .. } => self.tool_started(),
            Observation::ToolFinished { .. } => self.tool_finished(),
            Observation::TurnFinished { cost_usd, .. } => self.turn_finished(*cost_usd),
            Observation::ApiRetry { attempt, max_retries, status, error, .. } => {
                self.tally().refusal = Some(refusal(*attempt, *max_retries, *status, error));
                self.refused(*attempt, *status, error);
            }
            Observation::SessionStarted(_)
            | Observation::Text(_)
            | Observation::Writing
            | Observation::PermissionDenied { .. }
            | Observation::StaleResult => {}
        }
    }

    /// What the API said last, where the run has waited for it since: for a run that ends by waiting.
    pub(super) fn refusal(&self) -> Option<String> {
        self.tally().refusal.clone()
    }

    /// The turn ended without a result: what it had cost by then was spent all the same.
    pub(super) fn turn_broke_off(&self, cost_usd: f64) {
        self.turn_finished(cost_usd);
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self, failure: Failure) {
        self.over.send_if_modified(|over| {
            let first = over.is_none();
            if first {
                *over = Some(failure);
            }
            first
        });
    }

    fn spend(&self, of_this_turn: f64, goes_on: bool) {
        let cost_usd = self.tally().cost_before + of_this_turn;
        self.tell(cost_usd, goes_on);
    }

    fn tell(&self, cost_usd: f64, goes_on: bool) {
        self.spent.send_modify(|spent| {
            *spent = Spent { cost_usd, goes_on, number: spent.number + 1, is_writing: false };
        });
        if let Some(most) = self.agent.limits.max_budget_usd.filter(|most| cost_usd >= *most) {
            self.stop(call_exceeded(&self.agent, most, cost_usd));
        }
    }

    fn count_message(&self, messages: u64) {
        let all = {
            let mut tally = self.tally();
            tally.messages = messages;
            tally.refusal = None;
            tally.messages_before + messages
        };
        if self.agent.limits.max_turns.is_some_and(|most| all > u64::from(most)) {
            self.stop(turns_used_up(&self.agent));
        }
    }

    fn tool_started(&self) {
        let mut tally = self.tally();
        tally.tools_at_work += 1;
        tally.tool_was_used = true;
    }

    /// After the last turn's tools the CLI must say that the turns are used up; where it does not, we do.
    fn tool_finished(self: &Arc<Self>) {
        let (turn, is_last) = {
            let mut tally = self.tally();
            tally.tool_was_used = true;
            tally.tools_at_work -= 1;
            let all = tally.messages_before + tally.messages;
            let used_up = self.agent.limits.max_turns.is_some_and(|most| all >= u64::from(most));
            (tally.turn, used_up && tally.tools_at_work <= 0)
        };
        if !is_last {
            return;
        }
        let meter = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(TURNS_PATIENCE).await;
            let Some(meter) = meter.upgrade() else { return };
            let hangs = meter.tally().turn == turn;
            if hangs {
                meter.stop(turns_used_up(&meter.agent));
            }
        });
    }

    fn turn_finished(&self, cost_usd: f64) {
        let cost_usd = {
            let mut tally = self.tally();
            tally.cost_before += cost_usd;
            tally.messages_before += tally.messages;
            tally.messages = 0;
            tally.tools_at_work = 0;
            tally.turn += 1;
            tally.cost_before
        };
        self.tell(cost_usd, false);
    }

    /// The CLI asks a refusing API ten times, over minutes; what will stay is said at once.
    fn refused(&self, attempt: u64, status: Option<u64>, error: &str) {
        let trouble = Trouble::of(status, Some(error), "");
        if attempt < ATTEMPTS || !trouble.will_stay() {
            return;
        }
        let status = status.map_or(String::new(), |status| format!(" (HTTP {status})"));
        let message =
            format!("the API refuses the requests of `{}`: {error}{status}", self.agent.name);
        self.stop(Failure::new(Code::ClaudeFailed, message, trouble.help()));
    }
}

/// One sentence about an API that is asked again and again.
fn refusal(attempt: u64, most: u64, status: Option<u64>, error: &str) -> String {
    let said = match status {
        Some(status) => format!("did not take the request: {error} (HTTP {status})"),
        None => "could not be reached".to_owned(),
    };
    format!("The API {said}; attempt {attempt} of {most} was to follow.")
}

/// Why a run that has used its turns goes on no longer.
pub(super) fn turns_used_up(agent: &Agent) -> Failure {
    let most = agent.limits.max_turns.map_or(String::new(), |turns| format!(" of {turns}"));
    let message = format!("`{}` used up its turns{most} before it had an answer", agent.name);
    let help = format!("raise `max_turns` in {}, or ask for less", agent.file.display());
    Failure::new(Code::MaxTurns, message, help)
}

/// Writes every payment down as it comes, so that other runs see it and a crash does not lose it.
async fn pay_as_it_goes(
    tab: Arc<Tab>,
    mut news: watch::Receiver<Spent>,
    settled: watch::Sender<u64>,
    over: watch::Sender<Option<Failure>>,
) {
    while news.changed().await.is_ok() {
        let Spent { cost_usd, goes_on, number, .. } = *news.borrow_and_update();
        if number == *settled.borrow() {
            continue;
        }
        let paying = Arc::clone(&tab);
        let checked = on_disk(move || {
            paying.note(cost_usd);
            // An answer that is there has been paid for; only what would cost more is stopped.
            if goes_on { paying.check() } else { Ok(()) }
        });
        if let Some(Err(failure)) = checked.await {
            over.send_if_modified(|over| over.replace(failure).is_none());
        }
        settled.send_replace(number);
    }
}

#[cfg(test)]
#[path = "usage_meter_tests.rs"]
mod tests;
