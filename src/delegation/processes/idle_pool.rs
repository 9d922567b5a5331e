//! Pool of idle processes: *warm* ones that never saw a prompt, *live* ones bound to a session.
//!
//! Decides only which idle processes stay, by number, memory and time. It never starts a process, and it ends each
//! process that leaves it unused.

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
    state: Arc<Mutex<IdlePoolState<T>>>,
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

impl<T> PoolEntry<T> {
    fn is_warm(&self) -> bool {
        matches!(self.key, PoolKey::Warm { .. })
    }
}

impl<T> Clone for IdlePool<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), end_tasks: self.end_tasks.clone() }
    }
}

impl<T: Poolable> IdlePool<T> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let state = IdlePoolState { limits, entries: Vec::new(), next_number: 0, is_closed: false };
        Self { state: Arc::new(Mutex::new(state)), end_tasks: TaskTracker::new() }
    }

    /// Replaces the limits and ends processes that exceed them.
    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        let mut state = self.state.lock();
        state.limits = limits;
        let surplus = state.remove_surplus();
        drop(state);
        self.end_all(surplus);
    }

    /// Adds a process for at most `time`. If limits are exceeded, the least recently used processes are ended.
    pub(crate) fn put(&self, agent: &str, key: PoolKey, process: T, time: Duration) {
        let until = Instant::now() + time;
        let invalidated = process.invalidated();
        let removed = CancellationToken::new();
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        let (agent, token) = (agent.to_owned(), removed.clone());
        state.entries.push(PoolEntry { number, agent, key, process, removed: token });
        let surplus = state.remove_surplus();
        drop(state);
        self.end_all(surplus);
        let pool = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = removed.cancelled() => {}
                () = invalidated => pool.end_each(|entry| entry.number == number),
                () = sleep_until(until) => pool.end_each(|entry| entry.number == number),
            }
        });
    }

    /// Returns the numbers of warm and live processes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let warm = state.entries.iter().filter(|entry| entry.is_warm()).count();
        (warm, state.entries.len() - warm)
    }

    /// Takes a process with this key, if any: the one used last, whose memory is least likely to be swapped out.
    pub(crate) fn take(&self, key: &PoolKey) -> Option<T> {
        let mut state = self.state.lock();
        let at = state.entries.iter().rposition(|entry| entry.key == *key)?;
        let entry = state.entries.remove(at);
        entry.removed.cancel();
        Some(entry.process)
    }

    /// Ends the warm processes of an agent with another digest.
    pub(crate) fn end_outdated(&self, agent: &str, digest: &str) {
        self.end_each(|entry| match &entry.key {
            PoolKey::Warm { digest: has } => entry.agent == agent && has != digest,
            PoolKey::Live { .. } => false,
        });
    }

    /// Ends the warm processes of agents for which `is_wanted` returns false.
    pub(crate) fn end_unwanted(&self, is_wanted: impl Fn(&str) -> bool) {
        self.end_each(|entry| entry.is_warm() && !is_wanted(&entry.agent));
    }

    /// Returns the number of processes with this key.
    pub(crate) fn count(&self, key: &PoolKey) -> usize {
        self.state.lock().entries.iter().filter(|entry| entry.key == *key).count()
    }

    /// Returns true if another process can be added without ending one.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        let limits = &state.limits;
        !state.is_closed
            && !limits.is_memory_short()
            && state.entries.len() < limits.max_processes as usize
            && state.total_bytes().saturating_add(ASSUMED_PROCESS_BYTES) <= limits.max_bytes
    }

    /// Ends all processes, rejects new ones, and waits until the processes are gone.
    pub(crate) async fn close(&self) {
        self.state.lock().is_closed = true;
        self.end_each(|_| true);
        self.end_tasks.close();
        self.end_tasks.wait().await;
    }

    fn end_each(&self, which: impl FnMut(&mut PoolEntry<T>) -> bool) {
        let removed = self.state.lock().entries.extract_if(.., which).collect();
        self.end_all(removed);
    }

    fn end_all(&self, entries: Vec<PoolEntry<T>>) {
        for entry in entries {
            entry.removed.cancel();
            self.end_tasks.spawn(entry.process.end());
        }
    }
}

impl PoolLimits {
    fn is_memory_short(&self) -> bool {
        memory::available_bytes().is_some_and(|available| available < self.memory_floor)
    }
}

impl<T: Poolable> IdlePoolState<T> {
    /// Removes processes until the limits hold, least recently used first.
    fn remove_surplus(&mut self) -> Vec<PoolEntry<T>> {
        if self.is_closed || self.limits.is_memory_short() {
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
        let held = |entry: &PoolEntry<T>| {
            memory::resident_bytes(entry.process.pid()).unwrap_or(ASSUMED_PROCESS_BYTES)
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
        pool.end_outdated("a", "two");
        until(|| old.is_over()).await;
        assert!(!new.is_over());
        pool.close().await;
        assert!(new.is_over());
        let late = FakeProcess::default();
        pool.put("a", warm("two"), late.clone(), LONG);
        until(|| late.is_over()).await;
    }
}
