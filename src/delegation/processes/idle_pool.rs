//! Pool of idle processes: *warm* ones that never saw a prompt, *live* ones bound to a session.
//!
//! Decides only which idle processes stay, by number, memory and time. It never starts a process, and it ends each
//! process that leaves it unused.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::process::memory;
use crate::util::Mutex;

/// Assumed memory of an idle `claude` if its resident size is unknown: the largest one measured.
const ASSUMED_PROCESS_BYTES: u64 = 280 << 20;

/// Limits of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    /// Number of idle processes.
    pub max_processes: u32,
    /// Resident bytes of all idle processes together.
    pub max_bytes: u64,
    /// Bytes; if less memory is available, the pool is emptied.
    pub memory_floor: u64,
}

/// A process that can be kept in an [`IdlePool`].
pub(crate) trait Poolable: Send + 'static {
    fn pid(&self) -> u32;
    /// Resolves when the process must leave the pool: it died, wrote unexpected output, or is needed elsewhere.
    fn invalidated(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Ends the process and its descendants; resolves when they are gone.
    fn end(self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The use for which an idle process is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolKey {
    /// Never saw a prompt; usable for any new session with this digest.
    Warm {
        /// Digest of everything the process was started with.
        digest: String,
    },
    /// Holds this session; usable only for its next turn.
    Live {
        /// Name of the session.
        session: String,
    },
}

/// The idle processes of one server. Clones share their state.
#[derive(Debug)]
pub(crate) struct IdlePool<T> {
    inner: Arc<IdlePoolInner<T>>,
}

#[derive(Debug)]
struct IdlePoolInner<T> {
    state: Mutex<IdlePoolState<T>>,
    end_tasks: TaskTracker,
}

#[derive(Debug)]
struct IdlePoolState<T> {
    limits: PoolLimits,
    /// Least recently used first.
    entries: Vec<PoolEntry<T>>,
    next_number: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct PoolEntry<T> {
    number: u64,
    agent: String,
    key: PoolKey,
    process: T,
    removed: CancellationToken,
}

impl<T> Clone for IdlePool<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Poolable> IdlePool<T> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let pool_state =
            IdlePoolState { limits, entries: Vec::new(), next_number: 0, is_closed: false };
        Self {
            inner: Arc::new(IdlePoolInner {
                state: Mutex::new(pool_state),
                end_tasks: TaskTracker::new(),
            }),
        }
    }

    /// Replaces the limits and ends processes that exceed them.
    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        let mut pool_state = self.inner.state.lock();
        pool_state.limits = limits;
        let surplus = pool_state.remove_surplus();
        drop(pool_state);
        self.end_all(surplus);
    }

    /// Adds a process for at most `time`. If limits are exceeded, the least recently used processes are ended.
    pub(crate) fn put(&self, agent: &str, place: PoolKey, waiter: T, time: Duration) {
        let until = Instant::now() + time;
        let unfit = waiter.invalidated();
        let left = CancellationToken::new();
        let mut pool_state = self.inner.state.lock();
        let number = pool_state.next_number;
        pool_state.next_number += 1;
        let agent = agent.to_owned();
        pool_state.entries.push(PoolEntry {
            number,
            agent,
            key: place,
            process: waiter,
            removed: left.clone(),
        });
        let surplus = pool_state.remove_surplus();
        drop(pool_state);
        self.end_all(surplus);
        let pool = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = left.cancelled() => return,
                () = unfit => {}
                () = sleep_until(until) => {}
            }
            let gone = pool.inner.state.lock().remove(|seat| seat.number == number);
            pool.end_all(gone);
        });
    }

    /// Returns the numbers of warm and live processes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let pool_state = self.inner.state.lock();
        let warm = pool_state
            .entries
            .iter()
            .filter(|seat| matches!(seat.key, PoolKey::Warm { .. }))
            .count();
        (warm, pool_state.entries.len() - warm)
    }

    /// Takes a process with this key, if any: the one used last, whose memory is least likely to be swapped out.
    pub(crate) fn take(&self, place: &PoolKey) -> Option<T> {
        let mut pool_state = self.inner.state.lock();
        let at = pool_state.entries.iter().rposition(|seat| seat.key == *place)?;
        let seat = pool_state.entries.remove(at);
        drop(pool_state);
        seat.removed.cancel();
        Some(seat.process)
    }

    /// Ends the warm processes of an agent with another digest than `contract`; all of them if `None`.
    pub(crate) fn end_outdated(&self, agent: &str, contract: Option<&str>) {
        let outdated = self.inner.state.lock().remove(|seat| match &seat.key {
            PoolKey::Warm { digest: has } => seat.agent == agent && contract != Some(has.as_str()),
            PoolKey::Live { .. } => false,
        });
        self.end_all(outdated);
    }

    /// Ends the warm processes of agents for which `is_wanted` returns false.
    pub(crate) fn end_unwanted(&self, is_wanted: impl Fn(&str) -> bool) {
        let unwanted = self
            .inner
            .state
            .lock()
            .remove(|seat| matches!(seat.key, PoolKey::Warm { .. }) && !is_wanted(&seat.agent));
        self.end_all(unwanted);
    }

    /// Returns the number of processes with this key.
    pub(crate) fn count(&self, place: &PoolKey) -> usize {
        self.inner.state.lock().entries.iter().filter(|seat| seat.key == *place).count()
    }

    /// Returns true if another process can be added without ending one.
    pub(crate) fn has_room(&self) -> bool {
        let pool_state = self.inner.state.lock();
        let limits = &pool_state.limits;
        let enough = memory::available_bytes().is_none_or(|free| free >= limits.memory_floor);
        !pool_state.is_closed
            && enough
            && pool_state.entries.len() < limits.max_processes as usize
            && pool_state.total_bytes().saturating_add(ASSUMED_PROCESS_BYTES) <= limits.max_bytes
    }

    /// Ends all processes, rejects new ones, and waits until the processes are gone.
    pub(crate) async fn close(&self) {
        let all = {
            let mut pool_state = self.inner.state.lock();
            pool_state.is_closed = true;
            pool_state.remove(|_| true)
        };
        self.end_all(all);
        self.inner.end_tasks.close();
        self.inner.end_tasks.wait().await;
    }

    fn end_all(&self, seats: Vec<PoolEntry<T>>) {
        for seat in seats {
            seat.removed.cancel();
            self.inner.end_tasks.spawn(seat.process.end());
        }
    }
}

impl<T: Poolable> IdlePoolState<T> {
    fn remove(&mut self, which: impl FnMut(&mut PoolEntry<T>) -> bool) -> Vec<PoolEntry<T>> {
        self.entries.extract_if(.., which).collect()
    }

    /// Removes processes until the limits hold, least recently used first.
    fn remove_surplus(&mut self) -> Vec<PoolEntry<T>> {
        let short =
            memory::available_bytes().is_some_and(|available| available < self.limits.memory_floor);
        if self.is_closed || short {
            return std::mem::take(&mut self.entries);
        }
        let mut surplus = Vec::new();
        while !self.entries.is_empty()
            && (self.entries.len() > self.limits.max_processes as usize
                || self.total_bytes() > self.limits.max_bytes)
        {
            surplus.push(self.entries.remove(0));
        }
        surplus
    }

    fn total_bytes(&self) -> u64 {
        let held = |seat: &PoolEntry<T>| {
            memory::resident_bytes(seat.process.pid()).unwrap_or(ASSUMED_PROCESS_BYTES)
        };
        self.entries.iter().map(held).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::Notify;

    /// A test double whose pid is that of the test.
    #[derive(Clone, Debug, Default)]
    struct FakeProcess {
        dies: Arc<Notify>,
        is_over: Arc<AtomicBool>,
    }

    impl FakeProcess {
        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }
    }

    impl Poolable for FakeProcess {
        fn pid(&self) -> u32 {
            std::process::id()
        }
        fn invalidated(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let dies = Arc::clone(&self.dies);
            Box::pin(async move { dies.notified().await })
        }
        fn end(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move { self.is_over.store(true, Ordering::SeqCst) })
        }
    }

    const LIMITS: PoolLimits =
        PoolLimits { max_processes: 2, max_bytes: u64::MAX, memory_floor: 0 };
    const LONG: Duration = Duration::from_hours(1);

    fn warm(contract: &str) -> PoolKey {
        PoolKey::Warm { digest: contract.to_owned() }
    }

    async fn until(is_true: impl Fn() -> bool) {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_entry_is_taken_once_and_only_with_its_key() {
        let pool = IdlePool::new(LIMITS);
        pool.put("a", warm("one"), FakeProcess::default(), LONG);
        assert!(pool.take(&warm("two")).is_none());
        assert!(pool.take(&PoolKey::Live { session: "one".into() }).is_none());
        assert!(pool.take(&warm("one")).is_some());
        assert!(pool.take(&warm("one")).is_none());
    }

    #[tokio::test]
    async fn the_least_recently_used_entry_is_evicted() {
        let pool = IdlePool::new(LIMITS);
        let stones: Vec<FakeProcess> = (0..3).map(|_| FakeProcess::default()).collect();
        for stone in &stones {
            pool.put("a", warm("one"), stone.clone(), LONG);
        }
        until(|| stones[0].is_over()).await;
        assert_eq!(pool.count(&warm("one")), 2);
        pool.set_limits(PoolLimits { max_processes: 1, ..LIMITS });
        until(|| stones[1].is_over()).await;
        assert!(!stones[2].is_over());
    }

    #[tokio::test]
    async fn entries_above_the_memory_limits_are_ended() {
        for limits in [
            PoolLimits { max_bytes: 1, ..LIMITS },
            PoolLimits { memory_floor: u64::MAX, ..LIMITS },
            PoolLimits { max_processes: 0, ..LIMITS },
        ] {
            let pool = IdlePool::new(limits);
            let stone = FakeProcess::default();
            pool.put("a", warm("one"), stone.clone(), LONG);
            assert!(!pool.has_room());
            until(|| stone.is_over()).await;
        }
    }

    #[tokio::test]
    async fn dead_and_expired_entries_are_removed() {
        let pool = IdlePool::new(LIMITS);
        let (dying, late) = (FakeProcess::default(), FakeProcess::default());
        pool.put("a", warm("one"), dying.clone(), LONG);
        pool.put("a", warm("two"), late.clone(), Duration::ZERO);
        dying.dies.notify_one();
        until(|| dying.is_over() && late.is_over()).await;
        assert!(pool.take(&warm("one")).is_none());
    }

    #[tokio::test]
    async fn a5_a_new_digest_ends_old_entries_and_close_ends_all() {
        let pool = IdlePool::new(LIMITS);
        let (old, new) = (FakeProcess::default(), FakeProcess::default());
        pool.put("a", warm("one"), old.clone(), LONG);
        pool.put("a", warm("two"), new.clone(), LONG);
        pool.end_outdated("a", Some("two"));
        until(|| old.is_over()).await;
        assert!(!new.is_over());
        pool.close().await;
        assert!(new.is_over());
        let late = FakeProcess::default();
        pool.put("a", warm("two"), late.clone(), LONG);
        until(|| late.is_over()).await;
    }
}
