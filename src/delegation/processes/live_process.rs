//! Reuse of pooled processes, and their return to the pool after a run.

use std::time::Instant;

use super::super::deliver::ReportDraft;
use super::super::judge::turn_was_completed;
use super::super::launch::PreparedLaunch;
use super::super::orchestrator::Orchestrator;
use super::super::phase_timings::RunPhase;
use super::super::pipeline::Run;
use super::super::turn::{RunEnd, TurnOutcome, run_turn};
use super::agent_process::AgentProcess;
use super::process_control::ActiveRun;
use super::process_pool::{PooledProcess, live_key};
use crate::catalog::{Agent, Orchestration};
use crate::sessions::{LeaseRequest, SessionError, SessionLease, SessionName, StartMode};
use crate::util::RunId;

/// Takes a warm process with the same launch digest from the pool.
///
/// Ends those of this agent with another digest.
pub(crate) fn take_warm_process(
    services: &Orchestrator,
    launch: &PreparedLaunch<'_>,
    draft: &mut ReportDraft,
) -> Option<PooledProcess> {
    let pool = &services.process_pool;
    // A process with an outdated digest can never be used again.
    pool.idle.end_outdated(launch.agent().name.as_str(), Some(&launch.digest));
    let warm = pool.take_warm(&launch.digest)?;
    draft.took_warm_process = true;
    Some(warm)
}

/// Runs the turn in a pooled process. `source` is `startup` or `resume`.
///
/// Returns `None` if the process violated the protocol and no tool was requested: the caller then repeats the turn
/// with a new process.
pub(crate) async fn run_in_pooled_process(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    mut process: AgentProcess,
    source: &'static str,
    draft: &mut ReportDraft,
) -> Option<TurnOutcome> {
    if !process.control.has_servers_connected() {
        let connecting = Instant::now();
        let Ok(Some(servers)) = launch.connect_servers(services, run, draft).await else {
            // The new process will hit the same error and report it.
            process.shutdown_gracefully().await;
            return None;
        };
        process.control.connect_servers(servers);
        draft.timing.add_since(RunPhase::Servers, connecting);
    }
    process.control.bind_run(run.id, ActiveRun::new(run, launch));
    launch.registered.process_started(&process.process, source);
    let mut outcome = run_turn(run, launch, process, draft).await;
    if !violated_protocol(&outcome) || outcome.seen.tool_requested {
        return Some(outcome);
    }
    tracing::warn!(run = %run.id, agent = %launch.agent().name, "a process that had waited did not answer as it should; the call begins again with a new one");
    if let Some(mut process) = outcome.process.take() {
        process.stop().await;
    }
    None
}

/// Puts the process of a session into the pool with its lease, or retires it.
pub(crate) fn pool_or_retire(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    outcome: &mut TurnOutcome,
    lease: SessionLease,
    name: &SessionName,
) {
    if let Some(process) = &mut outcome.process {
        process.total_cost_usd += outcome.progress.cost_usd;
    }
    let agent = launch.agent();
    let limits = services.catalog.snapshot();
    let stays = services.process_pool.is_on()
        && turn_was_completed(outcome)
        && agent.keeps_process()
        && outcome
            .process
            .as_ref()
            .is_some_and(|process| fits_pool(process, agent, limits.orchestration()));
    let Some(process) = outcome.process.take_if(|_| stays) else {
        return launch.retire(services, outcome.process.take(), lease);
    };
    process.control.unbind_run();
    let doing = format!("keeps the conversation `{name}`");
    let registration =
        services.run_registry.register_idle(agent.name.as_str(), &process.process, &doing).ok();
    let pooled = PooledProcess {
        process,
        launch_digest: launch.digest.clone(),
        session_id: Some(lease.session_id()),
        lease: Some((lease, run.id)),
        registration,
    };
    services.process_pool.idle.put(agent.name.as_str(), live_key(name), pooled, agent.keep_alive);
}

/// A live process with the lease of its session.
pub(crate) struct LiveProcess {
    process: AgentProcess,
    launch_digest: String,
    lease: SessionLease,
    last_run: RunId,
}

impl LiveProcess {
    pub(crate) fn from_pooled(kept: PooledProcess) -> Option<Self> {
        let PooledProcess { process: open, launch_digest: contract, lease: held, .. } = kept;
        let (lease, last_run) = held?;
        Some(Self { process: open, launch_digest: contract, lease, last_run })
    }

    /// Renews the lease for the next run.
    ///
    /// Returns the process if it can serve this run; otherwise it has been stopped.
    pub(crate) async fn renew(
        self,
        request: LeaseRequest,
        contract: &str,
    ) -> Result<(SessionLease, Option<AgentProcess>), SessionError> {
        let Self { process: mut open, launch_digest: has, lease, last_run } = self;
        let session_id = lease.session_id();
        let lease = match lease.renew(request).await {
            Ok(lease) => lease,
            Err(error) => {
                open.shutdown_gracefully().await;
                return Err(error);
            }
        };
        // The same launch, and no run elsewhere in between whose messages the process has not seen.
        let fits = has == contract
            && lease.start_mode() == StartMode::Resume
            && lease.session_id() == session_id
            && lease.last_run() == Some(last_run)
            && !open.control.protocol_violation().is_cancelled();
        if fits {
            return Ok((lease, Some(open)));
        }
        open.shutdown_gracefully().await;
        Ok((lease, None))
    }
}

/// Returns `true` if the result cannot be trusted: the stream broke, or a result came for which no turn
/// had begun.
fn violated_protocol(outcome: &TurnOutcome) -> bool {
    match &outcome.end {
        RunEnd::NoResult(..) => true,
        RunEnd::Result(_) => outcome.seen.stale_result,
        RunEnd::NotStarted(_)
        | RunEnd::NotReady(..)
        | RunEnd::Interrupted(_)
        | RunEnd::Stopped(_) => false,
    }
}

/// Returns `true` if the process is small, young and cheap enough for another run.
///
/// `claude` counts costs over the life of its process and was given twice the budget of one run.
fn fits_pool(open: &AgentProcess, agent: &Agent, limits: &Orchestration) -> bool {
    let small = open.process.resident_bytes().is_none_or(|bytes| bytes <= limits.max_live_mb << 20);
    let has_money = agent.limits.max_budget_usd.is_none_or(|budget| open.total_cost_usd <= budget);
    small && has_money && open.age() < limits.max_live_age
}
