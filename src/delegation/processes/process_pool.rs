//! Pool of running `claude` processes: warm ones without a session in use, live ones bound to a
//! session.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use uuid::Uuid;

use super::agent_process::AgentProcess;
use super::idle_pool::{IdlePool, PoolKey, PoolLimits, Poolable};
use crate::catalog::Orchestration;
use crate::runs::RunRegistration;
use crate::sessions::{QueueWatch, SessionLease, SessionName};
use crate::util::{Mutex, RunId};

/// Interval at which a live process checks whether another process waits for its session.
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of session queues above which unused ones are removed.
const MAX_IDLE_QUEUES: usize = 64;

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
        let (ended, odd) =
            (self.process.process.ended(), self.process.control.protocol_violation());
        let stop = self.registration.as_ref().map(RunRegistration::stop_future);
        let line = self.lease.as_ref().and_then(|(lease, _)| lease.mark_idle());
        Box::pin(async move {
            tokio::select! {
                () = ended => {}
                () = odd.cancelled() => {}
                () = or_pending(stop) => {}
                () = or_pending(line.map(wait_for_waiter)) => {}
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
        None => std::future::pending().await,
    }
}

/// Waits until another process queues for the session.
///
/// Runs of this process take the live process from the pool.
async fn wait_for_waiter(line: QueueWatch) {
    loop {
        sleep(QUEUE_CHECK_INTERVAL).await;
        let look = line.clone();
        // A queue that cannot be read can have a waiter: the process is given up.
        if spawn_blocking(move || look.has_waiters().unwrap_or(true)).await.unwrap_or(true) {
            return;
        }
    }
}

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

    /// Takes a process that has never had a prompt and was started with the same launch digest.
    pub(crate) fn take_warm(&self, contract: &str) -> Option<PooledProcess> {
        self.idle.take(&PoolKey::Warm { digest: contract.to_owned() })
    }

    /// Takes the live process of a session, whatever its launch digest.
    pub(crate) fn take_live(&self, name: &SessionName) -> Option<PooledProcess> {
        self.idle.take(&live_key(name))
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

pub(crate) fn live_key(name: &SessionName) -> PoolKey {
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
