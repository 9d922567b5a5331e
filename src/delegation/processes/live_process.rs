//! A call in a process that was there already; and, after a call, whether its process stays.

use std::time::Instant;

use super::bridge::Seen;
use super::converse::{Ended, Run};
use super::ground::Ground;
use super::judge::turn_was_completed;
use super::kept::{Kept, live};
use super::open::Open;
use super::orchestrator::Orchestrator;
use super::steps::Call;
use super::timing::Span;
use crate::base::RunId;
use crate::catalog::{Agent, Orchestration};
use crate::sessions::{Begin, ConversationName, Lease, Start};

impl Call {
    /// A warm process for a fresh call, if one waits that was started with exactly this contract.
    pub(super) fn warm_one(&mut self, shared: &Orchestrator, ground: &Ground) -> Option<Kept> {
        // Whatever waits with another contract will never be used again.
        shared.warmth.pool.end_outdated(ground.agent.name.as_str(), Some(&ground.contract));
        let kept = shared.warmth.take_warm(&ground.contract)?;
        self.used_warm = true;
        Some(kept)
    }

    /// The run in a process that waited for it. `None` where the process was not as it should be and nothing has been done yet:
    /// then the call begins again with a process of its own.
    pub(super) async fn reuse(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
        mut open: Open,
        source: &'static str,
    ) -> Option<Run> {
        if !open.bridge.is_connected() {
            let connecting = Instant::now();
            let Ok(Some(tunnel)) = self.tunnel(shared, &ground.agent, &ground.leash).await else {
                // A process of its own comes to the same, and says why.
                open.say_goodbye().await;
                return None;
            };
            open.bridge.connect(tunnel);
            self.timing.since(Span::Servers, connecting);
        }
        let errand = self.errand(ground);
        open.bridge.attend(self.run, &errand);
        self.has_started(&open.process, source);
        let began = Instant::now();
        let mut run = self.talk(ground, open).await;
        errand.seen().clock.count(began, &mut self.timing);
        self.count(&errand, &run);
        let seen = errand.seen();
        if !is_odd(&run, &seen) || seen.tool_ran {
            return Some(run);
        }
        tracing::warn!(run = %self.run, agent = %ground.agent.name, "a process that had waited did not answer as it should; the call begins again with a new one");
        if let Some(mut open) = run.open.take() {
            open.end().await;
        }
        None
    }

    /// Keeps the process of a conversation for its next turn, or lets it end behind the answer.
    pub(super) fn keep_or_part(
        &self,
        shared: &Orchestrator,
        ground: &Ground,
        run: &mut Run,
        lease: Lease,
        name: &ConversationName,
    ) {
        if let Some(open) = &mut run.open {
            open.spent += run.progress.cost_usd;
        }
        let limits = shared.catalog.snapshot();
        let stays = shared.warmth.is_on()
            && turn_was_completed(run)
            && ground.agent.may_stay()
            && run
                .open
                .as_ref()
                .is_some_and(|open| is_fit(open, &ground.agent, limits.orchestration()));
        let Some(open) = run.open.take_if(|_| stays) else {
            return self.part(shared, run.open.take(), lease);
        };
        open.bridge.rest();
        let agent = ground.agent.name.as_str();
        let doing = format!("keeps the conversation `{name}`");
        let posting = shared.runs.post_idle(agent, &open.process, &doing).ok();
        let kept = Kept {
            open,
            contract: ground.contract.clone(),
            session_id: Some(lease.session_id()),
            held: Some((lease, self.run)),
            posting,
        };
        shared.warmth.pool.keep(agent, live(name), kept, ground.agent.keep_alive);
    }
}

/// The process of a conversation that goes on, with the right to it.
pub(super) struct Live {
    open: Open,
    contract: String,
    lease: Lease,
    last_run: RunId,
}

impl Live {
    pub(super) fn of(kept: Kept) -> Option<Self> {
        let Kept { open, contract, held, .. } = kept;
        let (lease, last_run) = held?;
        Some(Self { open, contract, lease, last_run })
    }

    /// The conversation for its next call, and the process, if it can go on with exactly this one; if not, it is gone.
    pub(super) async fn go_on(self, begin: Begin, contract: &str) -> (Lease, Option<Open>) {
        let Self { mut open, contract: has, lease, last_run } = self;
        let session_id = lease.session_id();
        let lease = lease.again(begin).await;
        // The same contract, and nothing said that it has not heard.
        let fits = has == contract
            && lease.start() == Start::Resume
            && lease.session_id() == session_id
            && lease.last_run() == Some(last_run)
            && !open.bridge.oddity().is_cancelled();
        if fits {
            return (lease, Some(open));
        }
        open.say_goodbye().await;
        (lease, None)
    }
}

/// An answer that cannot be trusted to be this call's: the stream broke, or a result came that no turn had begun for.
fn is_odd(run: &Run, seen: &Seen) -> bool {
    match &run.ended {
        Ended::NoResult(..) => true,
        Ended::Result(_) => seen.stale,
        Ended::NotStarted(_) | Ended::NotOpened(..) | Ended::Interrupted(_) | Ended::Stopped(_) => {
            false
        }
    }
}

/// Whether a process is small and young enough for another call, and has money for a whole one: `claude` counts
/// dollars for the life of a process, and was told twice what a call may cost.
fn is_fit(open: &Open, agent: &Agent, limits: &Orchestration) -> bool {
    let small = open.process.resident().is_none_or(|bytes| bytes <= limits.max_live_mb << 20);
    let has_money = agent.limits.max_budget_usd.is_none_or(|budget| open.spent <= budget);
    small && has_money && open.age() < limits.max_live_age
}
