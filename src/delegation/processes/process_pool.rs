//! Pool of running `claude` processes, their reuse, and their return after a run: warm ones without a session in use,
//! live ones bound to a session.

use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use uuid::Uuid;

use super::super::launch::PreparedLaunch;
use super::super::turn::{RunEnd, TurnOutcome, run_turn};
use super::agent_process::AgentProcess;
use super::idle_pool::{IdlePool, PoolKey, PoolLimits, Poolable};
use super::process_control::ActiveRun;
use crate::catalog::{Agent, Orchestration};
use crate::runs::RunRegistration;
use crate::sessions::{
    LeaseRequest, QueueWatch, SessionError, SessionLease, SessionName, StartMode,
};
use crate::util::{Mutex, RunId};

/// Interval at which a live process checks whether another process waits for its session.
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of session queues above which unused ones are removed.
const MAX_IDLE_QUEUES: usize = 64;

/// Warm and live processes of all agents. Disabled until [`Self::enable`] is called.
pub(crate) struct ProcessPool {
    is_enabled: AtomicBool,
    pub(crate) idle: IdlePool<PooledProcess>,
    /// Notified when a run that used a warm process ends, so that the pool is refilled.
    pub(crate) warm_process_used: Notify,
    session_queues: Mutex<HashMap<SessionName, Arc<tokio::sync::Mutex<()>>>>,
}

impl ProcessPool {
    pub(crate) fn new(orchestration: &Orchestration) -> Self {
        Self {
            is_enabled: AtomicBool::new(false),
            idle: IdlePool::new(pool_limits(orchestration)),
            warm_process_used: Notify::new(),
            session_queues: Mutex::default(),
        }
    }

    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Release);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    /// Takes the live process of a session, whatever its launch digest.
    pub(crate) fn take_live(&self, name: &SessionName) -> Option<LiveProcess> {
        let pooled = self.idle.take(&live_key(name))?;
        let PooledProcess { process, launch_digest, lease, .. } = pooled;
        let (lease, last_run) = lease?;
        Some(LiveProcess { process, launch_digest, lease, last_run })
    }

    /// Returns the mutex that orders the runs of this server in one session, so that each finds the live
    /// process.
    pub(crate) fn session_queue(&self, name: &SessionName) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.session_queues.lock();
        if queues.len() >= MAX_IDLE_QUEUES {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(name.clone()).or_default())
    }
}

fn live_key(name: &SessionName) -> PoolKey {
    PoolKey::Live { session: name.to_string() }
}

/// Reads the pool limits from `defaults.yaml`.
pub(crate) fn pool_limits(orchestration: &Orchestration) -> PoolLimits {
    PoolLimits {
        max_processes: orchestration.max_warm,
        max_bytes: orchestration.max_warm_mb << 20,
        memory_floor: orchestration.min_free_memory_mb << 20,
    }
}

/// A running process that waits in the pool for a run.
pub(crate) struct PooledProcess {
    pub(crate) process: AgentProcess,
    pub(crate) launch_digest: String,
    /// Session id that the process was started with.
    pub(crate) session_id: Option<Uuid>,
    /// Lease of the session and id of its last run; only for a live process.
    pub(crate) lease: Option<(SessionLease, RunId)>,
    /// Entry in `adjutant runs list --all`.
    pub(crate) registration: Option<RunRegistration>,
}

impl Poolable for PooledProcess {
    fn pid(&self) -> u32 {
        self.process.process.pid()
    }

    fn invalidated(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let ended = self.process.process.ended();
        let violation = self.process.control.protocol_violation();
        let replaced = self.process.control.control_file_replaced();
        let stop = self.registration.as_ref().map(RunRegistration::stop_future);
        let queue = self.lease.as_ref().and_then(|(lease, _)| lease.mark_idle());
        Box::pin(async move {
            tokio::select! {
                () = ended => {}
                () = violation.cancelled() => {}
                _ = replaced => {}
                () = or_pending(stop) => {}
                () = or_pending(queue.map(wait_for_waiter)) => {}
            }
        })
    }

    fn end(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.process.shutdown_gracefully().await;
        })
    }
}

async fn or_pending(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Waits until another process queues for the session.
///
/// Runs of this process take the live process from the pool.
async fn wait_for_waiter(queue: QueueWatch) {
    loop {
        sleep(QUEUE_CHECK_INTERVAL).await;
        let watch = queue.clone();
        // A queue that cannot be read can have a waiter: the process is given up.
        if spawn_blocking(move || watch.has_waiters().unwrap_or(true)).await.unwrap_or(true) {
            return;
        }
    }
}

/// Takes a warm process with the same launch digest from the pool: it has never had a prompt.
///
/// Ends those of this agent with another digest.
pub(crate) fn take_warm_process(launch: &PreparedLaunch<'_>) -> Option<PooledProcess> {
    let idle = &launch.run.services.process_pool.idle;
    // A process with an outdated digest can never be used again.
    idle.end_outdated(launch.agent().name.as_str(), &launch.digest);
    let warm = idle.take(&PoolKey::Warm { digest: launch.digest.clone() })?;
    launch.run.draft().took_warm_process = true;
    Some(warm)
}

/// Runs the turn in a pooled process. `source` is `startup` or `resume`.
///
/// Returns `None` if the process violated the protocol and no tool was requested: the caller then repeats the turn
/// with a new process.
pub(crate) async fn run_in_pooled_process(
    launch: &PreparedLaunch<'_>,
    mut process: AgentProcess,
    source: &'static str,
) -> Option<TurnOutcome> {
    if !process.control.has_servers_connected() {
        let Ok(Some(servers)) = launch.connect_servers().await else {
            // The new process will hit the same error and report it.
            process.shutdown_gracefully().await;
            return None;
        };
        process.control.connect_servers(servers);
    }
    let run = launch.run.id;
    process.control.bind_run(run, ActiveRun::new(launch));
    launch.registered.process_started(&process.process, source);
    let mut outcome = run_turn(launch, process).await;
    if !violated_protocol(&outcome) || outcome.seen.tool_requested {
        return Some(outcome);
    }
    tracing::warn!(%run, agent = %launch.agent().name, "a process that had waited did not answer as it should; the call begins again with a new one");
    if let Some(mut process) = outcome.process.take() {
        process.stop().await;
    }
    None
}

/// Returns `true` if the result cannot be trusted: the stream broke, or a result came for which no turn
/// had begun.
fn violated_protocol(outcome: &TurnOutcome) -> bool {
    match &outcome.end {
        RunEnd::NoResult(..) => true,
        RunEnd::Result(_) => outcome.seen.stale_result,
        RunEnd::NotStarted(_)
        | RunEnd::NotSandboxed(_)
        | RunEnd::NotReady(..)
        | RunEnd::Interrupted(_)
        | RunEnd::Stopped(_) => false,
    }
}

/// Puts the process of a session into the pool with its lease, or retires it.
pub(crate) fn pool_or_retire(
    launch: &PreparedLaunch<'_>,
    outcome: &mut TurnOutcome,
    lease: SessionLease,
    name: &SessionName,
) {
    let (agent, services) = (launch.agent(), &launch.run.services);
    let Some(mut process) = outcome.process.take() else { return };
    process.total_cost_usd += outcome.progress.cost_usd;
    let stays = services.process_pool.is_on()
        && outcome.is_completed()
        && agent.keeps_process()
        && fits_pool(&process, agent, services.catalog.snapshot().orchestration());
    if !stays {
        return launch.retire(Some(process), lease);
    }
    process.control.unbind_run();
    let (agent_name, doing) = (agent.name.as_str(), format!("keeps the conversation `{name}`"));
    let registration =
        services.run_registry.register_idle(agent_name, &process.process, &doing).ok();
    let pooled = PooledProcess {
        process,
        launch_digest: launch.digest.clone(),
        session_id: Some(lease.session_id()),
        lease: Some((lease, launch.run.id)),
        registration,
    };
    services.process_pool.idle.put(agent_name, live_key(name), pooled, agent.keep_alive);
}

/// Returns `true` if the process is small, young and cheap enough for another run.
///
/// `claude` counts costs over the life of its process and was given twice the budget of one run.
fn fits_pool(process: &AgentProcess, agent: &Agent, limits: &Orchestration) -> bool {
    let max_bytes = limits.max_live_mb << 20;
    let is_small = process.process.resident_bytes().is_none_or(|bytes| bytes <= max_bytes);
    let budget = agent.limits.max_budget_usd;
    let has_money = budget.is_none_or(|budget| process.total_cost_usd <= budget);
    is_small && has_money && process.age() < limits.max_live_age
}

/// A live process with the lease of its session.
pub(crate) struct LiveProcess {
    process: AgentProcess,
    launch_digest: String,
    lease: SessionLease,
    last_run: RunId,
}

impl LiveProcess {
    /// Renews the lease for the next run.
    ///
    /// Returns the process if it can serve this run; otherwise it has been stopped.
    pub(crate) async fn renew(
        self,
        request: LeaseRequest,
        digest: &str,
    ) -> Result<(SessionLease, Option<AgentProcess>), SessionError> {
        let Self { mut process, launch_digest, lease, last_run } = self;
        let session_id = lease.session_id();
        let renewed = lease.renew(request).await;
        // The same launch, and no run elsewhere in between whose messages the process has not seen.
        let fits = renewed.as_ref().is_ok_and(|lease| {
            launch_digest == digest
                && lease.start_mode() == StartMode::Resume
                && lease.session_id() == session_id
                && lease.last_run() == Some(last_run)
                && !process.control.protocol_violation().is_cancelled()
        });
        if fits {
            return renewed.map(|lease| (lease, Some(process)));
        }
        process.shutdown_gracefully().await;
        renewed.map(|lease| (lease, None))
    }
}
