//! Processes that wait for a call: warm ones that never saw a prompt, live ones whose conversation goes on.
//!
//! The pool decides who may stay: it never starts anything, and whoever leaves it unused is ended. What a process
//! carries with it is the business of whoever puts it here.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::memory;

/// What an idle `claude` was seen to hold at most, where the system does not say.
const ASSUMED_BYTES: u64 = 280 << 20;

/// How many may wait, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Processes in all.
    pub most: u32,
    /// What they hold together.
    pub most_bytes: u64,
    /// Nothing is kept while less memory than this is available.
    pub memory_floor: u64,
}

/// A process that can wait in a [`Pool`].
pub trait Waiter: Send + 'static {
    /// Its pid.
    fn pid(&self) -> u32;
    /// Resolves when it must not wait any longer: it has died, or said something unasked, or is wanted elsewhere.
    fn unfit(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// Ends it and waits until nothing of it is left.
    fn end(self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What a waiting process is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It never saw a prompt; any fresh call with this contract may have it.
    Warm {
        /// The digest of everything it was started with.
        contract: String,
    },
    /// It holds this conversation; only its next call may have it.
    Live {
        /// The conversation's name.
        conversation: String,
    },
}

/// The processes of one server that wait. Clones are the same pool.
#[derive(Debug)]
pub struct Pool<T> {
    inner: Arc<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    shelf: Mutex<Shelf<T>>,
    ending: TaskTracker,
}

#[derive(Debug)]
struct Shelf<T> {
    limits: PoolLimits,
    /// The least recently used first.
    seats: Vec<Seat<T>>,
    next: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Seat<T> {
    number: u64,
    agent: String,
    place: Place,
    waiter: T,
    left: CancellationToken,
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Waiter> Pool<T> {
    /// An empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        let shelf = Shelf { limits, seats: Vec::new(), next: 0, is_closed: false };
        Self { inner: Arc::new(Inner { shelf: Mutex::new(shelf), ending: TaskTracker::new() }) }
    }

    /// Changes the limits; who no longer fits is ended.
    pub fn set_limits(&self, limits: PoolLimits) {
        let mut shelf = self.shelf();
        shelf.limits = limits;
        let surplus = shelf.surplus();
        drop(shelf);
        self.end_all(surplus);
    }

    /// Keeps a process for as long as `time`, if there is room. The least recently used ones make room for it.
    pub fn keep(&self, agent: &str, place: Place, waiter: T, time: Duration) {
        let until = Instant::now() + time;
        let unfit = waiter.unfit();
        let left = CancellationToken::new();
        let mut shelf = self.shelf();
        let number = shelf.next;
        shelf.next += 1;
        let agent = agent.to_owned();
        shelf.seats.push(Seat { number, agent, place, waiter, left: left.clone() });
        let surplus = shelf.surplus();
        drop(shelf);
        self.end_all(surplus);
        let pool = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = left.cancelled() => return,
                () = unfit => {}
                () = sleep_until(until) => {}
            }
            let gone = pool.shelf().remove(|seat| seat.number == number);
            pool.end_all(gone);
        });
    }

    /// How many wait: warm ones, and live ones.
    pub fn waiting(&self) -> (usize, usize) {
        let shelf = self.shelf();
        let warm =
            shelf.seats.iter().filter(|seat| matches!(seat.place, Place::Warm { .. })).count();
        (warm, shelf.seats.len() - warm)
    }

    /// The process for this place, if one waits; the one used last, whose memory is still at hand.
    pub fn take(&self, place: &Place) -> Option<T> {
        let mut shelf = self.shelf();
        let at = shelf.seats.iter().rposition(|seat| seat.place == *place)?;
        let seat = shelf.seats.remove(at);
        drop(shelf);
        seat.left.cancel();
        Some(seat.waiter)
    }

    /// Ends the warm processes of an agent that have another contract than `contract`; all of them for `None`.
    pub fn end_outdated(&self, agent: &str, contract: Option<&str>) {
        let outdated = self.shelf().remove(|seat| match &seat.place {
            Place::Warm { contract: has } => seat.agent == agent && contract != Some(has.as_str()),
            Place::Live { .. } => false,
        });
        self.end_all(outdated);
    }

    /// Ends the warm processes of agents that `is_wanted` does not want.
    pub fn end_unwanted(&self, is_wanted: impl Fn(&str) -> bool) {
        let unwanted = self
            .shelf()
            .remove(|seat| matches!(seat.place, Place::Warm { .. }) && !is_wanted(&seat.agent));
        self.end_all(unwanted);
    }

    /// How many wait at this place.
    pub fn count(&self, place: &Place) -> usize {
        self.shelf().seats.iter().filter(|seat| seat.place == *place).count()
    }

    /// Whether one more could stay without another having to go.
    pub fn has_room(&self) -> bool {
        let shelf = self.shelf();
        let limits = &shelf.limits;
        let enough = memory::available().is_none_or(|free| free >= limits.memory_floor);
        !shelf.is_closed
            && enough
            && shelf.seats.len() < limits.most as usize
            && shelf.held().saturating_add(ASSUMED_BYTES) <= limits.most_bytes
    }

    /// Ends all of them, keeps nothing from now on, and waits until nothing is left.
    pub async fn close(&self) {
        let all = {
            let mut shelf = self.shelf();
            shelf.is_closed = true;
            shelf.remove(|_| true)
        };
        self.end_all(all);
        self.inner.ending.close();
        self.inner.ending.wait().await;
    }

    fn end_all(&self, seats: Vec<Seat<T>>) {
        for seat in seats {
            seat.left.cancel();
            self.inner.ending.spawn(seat.waiter.end());
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf<T>> {
        self.inner.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Waiter> Shelf<T> {
    fn remove(&mut self, which: impl FnMut(&mut Seat<T>) -> bool) -> Vec<Seat<T>> {
        self.seats.extract_if(.., which).collect()
    }

    /// Takes out who does not fit the limits, the least recently used first.
    fn surplus(&mut self) -> Vec<Seat<T>> {
        let short =
            memory::available().is_some_and(|available| available < self.limits.memory_floor);
        if self.is_closed || short {
            return std::mem::take(&mut self.seats);
        }
        let mut surplus = Vec::new();
        while !self.seats.is_empty()
            && (self.seats.len() > self.limits.most as usize
                || self.held() > self.limits.most_bytes)
        {
            surplus.push(self.seats.remove(0));
        }
        surplus
    }

    fn held(&self) -> u64 {
        let held = |seat: &Seat<T>| memory::resident(seat.waiter.pid()).unwrap_or(ASSUMED_BYTES);
        self.seats.iter().map(held).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::Notify;

    /// Something that waits and has a pid: this test's own.
    #[derive(Clone, Debug, Default)]
    struct Stone {
        dies: Arc<Notify>,
        is_over: Arc<AtomicBool>,
    }

    impl Stone {
        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }
    }

    impl Waiter for Stone {
        fn pid(&self) -> u32 {
            std::process::id()
        }
        fn unfit(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let dies = Arc::clone(&self.dies);
            Box::pin(async move { dies.notified().await })
        }
        fn end(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move { self.is_over.store(true, Ordering::SeqCst) })
        }
    }

    const LIMITS: PoolLimits = PoolLimits { most: 2, most_bytes: u64::MAX, memory_floor: 0 };
    const LONG: Duration = Duration::from_hours(1);

    fn warm(contract: &str) -> Place {
        Place::Warm { contract: contract.to_owned() }
    }

    async fn until(is_true: impl Fn() -> bool) {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_is_given_once_and_only_for_its_own_contract() {
        let pool = Pool::new(LIMITS);
        pool.keep("a", warm("one"), Stone::default(), LONG);
        assert!(pool.take(&warm("two")).is_none());
        assert!(pool.take(&Place::Live { conversation: "one".into() }).is_none());
        assert!(pool.take(&warm("one")).is_some());
        assert!(pool.take(&warm("one")).is_none());
    }

    #[tokio::test]
    async fn the_least_recently_used_makes_room() {
        let pool = Pool::new(LIMITS);
        let stones: Vec<Stone> = (0..3).map(|_| Stone::default()).collect();
        for stone in &stones {
            pool.keep("a", warm("one"), stone.clone(), LONG);
        }
        until(|| stones[0].is_over()).await;
        assert_eq!(pool.count(&warm("one")), 2);
        pool.set_limits(PoolLimits { most: 1, ..LIMITS });
        until(|| stones[1].is_over()).await;
        assert!(!stones[2].is_over());
    }

    #[tokio::test]
    async fn nothing_stays_over_the_memory_that_is_allowed_or_there() {
        for limits in [
            PoolLimits { most_bytes: 1, ..LIMITS },
            PoolLimits { memory_floor: u64::MAX, ..LIMITS },
            PoolLimits { most: 0, ..LIMITS },
        ] {
            let pool = Pool::new(limits);
            let stone = Stone::default();
            pool.keep("a", warm("one"), stone.clone(), LONG);
            assert!(!pool.has_room());
            until(|| stone.is_over()).await;
        }
    }

    #[tokio::test]
    async fn one_that_dies_or_waits_too_long_is_gone() {
        let pool = Pool::new(LIMITS);
        let (dying, late) = (Stone::default(), Stone::default());
        pool.keep("a", warm("one"), dying.clone(), LONG);
        pool.keep("a", warm("two"), late.clone(), Duration::ZERO);
        dying.dies.notify_one();
        until(|| dying.is_over() && late.is_over()).await;
        assert!(pool.take(&warm("one")).is_none());
    }

    #[tokio::test]
    async fn a5_another_contract_ends_the_old_ones_and_the_end_ends_all() {
        let pool = Pool::new(LIMITS);
        let (old, new) = (Stone::default(), Stone::default());
        pool.keep("a", warm("one"), old.clone(), LONG);
        pool.keep("a", warm("two"), new.clone(), LONG);
        pool.end_outdated("a", Some("two"));
        until(|| old.is_over()).await;
        assert!(!new.is_over());
        pool.close().await;
        assert!(new.is_over());
        let late = Stone::default();
        pool.keep("a", warm("two"), late.clone(), LONG);
        until(|| late.is_over()).await;
    }
}
