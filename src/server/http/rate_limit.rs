//! How often a caller may ask, and how many runs it may have at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A caller may save up requests for this many seconds, so that a start with many clients is no misdeed.
const BURST_SECONDS: f64 = 5.0;

/// The limits of every caller. There are as many as there are names with tokens.
#[derive(Debug)]
pub(super) struct Paces {
    per_second: u32,
    runs_at_once: u32,
    callers: Mutex<HashMap<String, Pace>>,
}

#[derive(Debug)]
struct Pace {
    saved: f64,
    counted: Instant,
    runs: Arc<RunSlots>,
}

impl Paces {
    /// 0 is no limit.
    pub(super) fn new(per_second: u32, runs_at_once: u32) -> Self {
        Self { per_second, runs_at_once, callers: Mutex::default() }
    }

    /// Counts one request; the error is the milliseconds until the next is taken.
    pub(super) fn count(&self, caller: &str, at: Instant) -> Result<(), u64> {
        if self.per_second == 0 {
            return Ok(());
        }
        self.with(caller, at, |pace| pace.take(f64::from(self.per_second), at))
    }

    /// The caller's runs.
    pub(super) fn runs(&self, caller: &str) -> Arc<RunSlots> {
        self.with(caller, Instant::now(), |pace| Arc::clone(&pace.runs))
    }

    fn with<R>(&self, caller: &str, at: Instant, work: impl FnOnce(&mut Pace) -> R) -> R {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pace) = callers.get_mut(caller) {
            return work(pace);
        }
        let pace = Pace {
            saved: f64::from(self.per_second) * BURST_SECONDS,
            counted: at,
            runs: Arc::new(RunSlots { most: self.runs_at_once, taken: AtomicU32::new(0) }),
        };
        work(callers.entry(caller.to_owned()).or_insert(pace))
    }
}

impl Pace {
    fn take(&mut self, per_second: f64, at: Instant) -> Result<(), u64> {
        let passed = at.saturating_duration_since(self.counted).as_secs_f64();
        self.saved = (self.saved + passed * per_second).min(per_second * BURST_SECONDS);
        self.counted = at;
        if self.saved >= 1.0 {
            self.saved -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - self.saved) / per_second;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a second, and more than none"
        )]
        Err((seconds * 1000.0).ceil() as u64)
    }
}

/// The runs of one caller.
#[derive(Debug)]
pub(crate) struct RunSlots {
    most: u32,
    taken: AtomicU32,
}

impl RunSlots {
    /// A place for one more run, given back when dropped; the error is how many there are.
    pub(crate) fn take(self: &Arc<Self>) -> Result<RunSlot, u32> {
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        let slot = RunSlot(Arc::clone(self));
        if self.most > 0 && before >= self.most { Err(self.most) } else { Ok(slot) }
    }
}

/// A place among the runs of a caller.
#[derive(Debug)]
pub(crate) struct RunSlot(Arc<RunSlots>);

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_caller_that_asks_too_often_learns_when_it_may_again() {
        let (paces, start) = (Paces::new(10, 0), Instant::now());
        for _ in 0..50 {
            assert_eq!(paces.count("bot", start), Ok(()));
        }
        assert_eq!(paces.count("bot", start), Err(100));
        assert_eq!(paces.count("ci", start), Ok(()), "each has a pace of its own");
        assert_eq!(paces.count("bot", start + Duration::from_millis(100)), Ok(()));
        assert!(paces.count("bot", start + Duration::from_millis(150)).is_err());
        assert_eq!(Paces::new(0, 0).count("bot", start), Ok(()));
    }

    #[test]
    fn a_run_gives_its_place_back() {
        let runs = Paces::new(0, 2).runs("bot");
        let (first, _second) = (runs.take().unwrap(), runs.take().unwrap());
        assert_eq!(runs.take().unwrap_err(), 2);
        drop(first);
        assert!(runs.take().is_ok());
        let unlimited = Paces::new(0, 0).runs("bot");
        let all: Vec<_> = (0..100).map(|_| unlimited.take().unwrap()).collect();
        assert_eq!(all.len(), 100);
    }
}
