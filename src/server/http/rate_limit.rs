//! Caller of an HTTP request, and limits per caller: requests per second and concurrent runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::http::request::Parts;
use rmcp::model::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::identity::Caller;
use crate::outcome::{Code, Failure};
use crate::util::Mutex;

/// Burst size in seconds of the rate, so that many clients of one caller can start together.
const BURST_SECONDS: f64 = 5.0;

/// Rate limits of all callers. The number of entries is bounded by the number of callers with tokens.
#[derive(Debug)]
pub(crate) struct RateLimits {
    per_second: u32,
    runs_at_once: u32,
    callers: Mutex<HashMap<String, RequestRate>>,
}

#[derive(Debug)]
struct RequestRate {
    tokens: f64,
    refilled_at: Instant,
    run_permits: RunPermits,
}

impl RateLimits {
    /// Creates the limits; 0 means no limit.
    pub(crate) fn new(per_second: u32, runs_at_once: u32) -> Self {
        Self { per_second, runs_at_once, callers: Mutex::default() }
    }

    /// Counts one request. The error is the number of milliseconds until the next request is accepted.
    pub(crate) fn take_request(&self, caller: &str, at: Instant) -> Result<(), u64> {
        if self.per_second == 0 {
            return Ok(());
        }
        self.with_caller(caller, at, |rate| rate.take_token(f64::from(self.per_second), at))
    }

    pub(crate) fn run_permits(&self, caller: &str) -> RunPermits {
        self.with_caller(caller, Instant::now(), |rate| rate.run_permits.clone())
    }

    fn with_caller<R>(
        &self,
        caller: &str,
        at: Instant,
        work: impl FnOnce(&mut RequestRate) -> R,
    ) -> R {
        let mut callers = self.callers.lock();
        if let Some(rate) = callers.get_mut(caller) {
            return work(rate);
        }
        let rate = RequestRate {
            tokens: f64::from(self.per_second) * BURST_SECONDS,
            refilled_at: at,
            run_permits: RunPermits::new(self.runs_at_once),
        };
        work(callers.entry(caller.to_owned()).or_insert(rate))
    }
}

impl RequestRate {
    fn take_token(&mut self, per_second: f64, at: Instant) -> Result<(), u64> {
        let passed = at.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * per_second).min(per_second * BURST_SECONDS);
        self.refilled_at = at;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - self.tokens) / per_second;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a second, and more than none"
        )]
        Err((seconds * 1000.0).ceil() as u64)
    }
}

/// Permits for the concurrent runs of one caller.
#[derive(Clone, Debug)]
pub(crate) struct RunPermits {
    limit: u32,
    permits: Arc<Semaphore>,
}

impl RunPermits {
    /// Creates `limit` permits; 0 means no limit.
    fn new(limit: u32) -> Self {
        let permits = usize::try_from(limit).ok().filter(|limit| *limit > 0);
        let permits = Semaphore::new(permits.unwrap_or(Semaphore::MAX_PERMITS));
        Self { limit, permits: Arc::new(permits) }
    }

    /// Takes a permit, which is released when dropped. The error is the limit.
    pub(crate) fn acquire(&self) -> Result<OwnedSemaphorePermit, u32> {
        Arc::clone(&self.permits).try_acquire_owned().map_err(|_| self.limit)
    }
}

/// The caller of an HTTP request and its run permits.
#[derive(Clone, Debug)]
pub(crate) struct HttpCaller {
    /// The caller that the token names; `None` if no token was required (`--insecure-local`).
    pub(crate) caller: Option<Caller>,
    /// Limit of concurrent runs of this caller.
    pub(crate) run_permits: RunPermits,
}

impl HttpCaller {
    /// Returns the HTTP caller of a request; `None` on stdio.
    fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Parts>()?.extensions.get::<Self>()
    }

    /// Returns the caller that the token of an HTTP request names; `None` without a token and on stdio.
    pub(crate) fn caller(extensions: &Extensions) -> Option<Caller> {
        Self::from_extensions(extensions)?.caller.clone()
    }

    /// Takes a run permit of the caller of a request; `Ok(None)` on stdio, which has no limit.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_RUNS` if all permits of the caller are in use.
    pub(crate) fn acquire_run_permit(
        extensions: &Extensions,
    ) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        let Some(http_caller) = Self::from_extensions(extensions) else { return Ok(None) };
        http_caller.run_permits.acquire().map(Some).map_err(too_many_runs)
    }
}

fn too_many_runs(most: u32) -> Failure {
    let runs = if most == 1 { "run" } else { "runs" };
    let message = format!("this caller has {most} {runs} going on, as many as it may have at once");
    Failure::new(Code::TooManyRuns, message, "try again as soon as one of them has answered")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_limited_caller_gets_the_wait_time() {
        let (limits, start) = (RateLimits::new(10, 0), Instant::now());
        for _ in 0..50 {
            assert_eq!(limits.take_request("bot", start), Ok(()));
        }
        assert_eq!(limits.take_request("bot", start), Err(100));
        assert_eq!(limits.take_request("ci", start), Ok(()), "each has a rate of its own");
        assert_eq!(limits.take_request("bot", start + Duration::from_millis(100)), Ok(()));
        assert!(limits.take_request("bot", start + Duration::from_millis(150)).is_err());
        assert_eq!(RateLimits::new(0, 0).take_request("bot", start), Ok(()));
    }

    #[test]
    fn a_dropped_permit_is_released() {
        let runs = RateLimits::new(0, 2).run_permits("bot");
        let (first, _second) = (runs.acquire().unwrap(), runs.acquire().unwrap());
        assert_eq!(runs.acquire().unwrap_err(), 2);
        drop(first);
        assert!(runs.acquire().is_ok());
        let unlimited = RateLimits::new(0, 0).run_permits("bot");
        let all: Vec<_> = (0..100).map(|_| unlimited.acquire().unwrap()).collect();
        assert_eq!(all.len(), 100);
    }
}
