//! Processes that outlive a call: warm ones for the next fresh call, live ones for the next turn of their conversation.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use uuid::Uuid;

use super::open::Open;
use crate::base::RunId;
use crate::catalog::Orchestration;
use crate::sessions::{ConversationName, Lease, Line};
use crate::worker::{Place, Pool, PoolLimits, Posting, Waiter};

/// How soon a conversation that is kept is given up for somebody else who wants it.
const LINE_LOOK: Duration = Duration::from_millis(100);
/// Queues of conversations that are remembered before idle ones are dropped.
const MOST_IDLE_QUEUES: usize = 64;

/// An open process that waits for a call.
pub(super) struct Kept {
    pub(super) open: Open,
    /// What it was started with.
    pub(super) contract: String,
    /// The id it was started under, for an agent with conversations.
    pub(super) session_id: Option<Uuid>,
    /// For a live one: the right to its conversation, and the run that used it last.
    pub(super) held: Option<(Lease, RunId)>,
    /// Its line in `adjutant runs list --all`.
    pub(super) posting: Option<Posting>,
}

impl Waiter for Kept {
    fn pid(&self) -> u32 {
        self.open.process.pid()
    }

    fn unfit(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (ended, odd) = (self.open.process.ended(), self.open.bridge.oddity());
        let stop = self.posting.as_ref().map(Posting::stop_request);
        let line = self.held.as_ref().and_then(|(lease, _)| lease.rest());
        Box::pin(async move {
            tokio::select! {
                () = ended => {}
                () = odd.cancelled() => {}
                () = or_never(stop) => {}
                () = or_never(line.map(wanted_elsewhere)) => {}
            }
        })
    }

    fn end(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.open.say_goodbye().await;
        })
    }
}

async fn or_never(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Returns when another process waits for the conversation; those of this one come to us first.
async fn wanted_elsewhere(line: Line) {
    loop {
        sleep(LINE_LOOK).await;
        let look = line.clone();
        if spawn_blocking(move || look.is_awaited()).await.unwrap_or(true) {
            return;
        }
    }
}

/// What is kept between calls. Off until somebody who stays says otherwise.
pub(super) struct Warmth {
    is_on: AtomicBool,
    pub(super) pool: Pool<Kept>,
    /// Told when a warm process was used, and its run is over.
    pub(super) used: Notify,
    queues: Mutex<HashMap<ConversationName, Arc<tokio::sync::Mutex<()>>>>,
}

impl Warmth {
    pub(super) fn new(orchestration: &Orchestration) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            pool: Pool::new(pool_limits(orchestration)),
            used: Notify::new(),
            queues: Mutex::default(),
        }
    }

    pub(super) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// A process that never saw a prompt and was started with exactly this contract.
    pub(super) fn take_warm(&self, contract: &str) -> Option<Kept> {
        self.pool.take(&Place::Warm { contract: contract.to_owned() })
    }

    /// The process that has this conversation, whatever its contract.
    pub(super) fn take_live(&self, name: &ConversationName) -> Option<Kept> {
        self.pool.take(&live(name))
    }

    /// The calls of this process for one conversation, one after the other: so that each finds the process of the one before.
    pub(super) fn queue(&self, name: &ConversationName) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= MOST_IDLE_QUEUES {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(name.clone()).or_default())
    }
}

pub(super) fn live(name: &ConversationName) -> Place {
    Place::Live { conversation: name.to_string() }
}

/// What may wait, as `defaults.yaml` has it.
pub(super) fn pool_limits(orchestration: &Orchestration) -> PoolLimits {
    PoolLimits {
        most: orchestration.max_warm,
        most_bytes: orchestration.max_warm_mb << 20,
        memory_floor: orchestration.min_free_memory_mb << 20,
    }
}
