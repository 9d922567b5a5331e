//! Limits concurrent process start-ups to two per core.
//!
//! Starting `claude` is CPU-bound, so more at once only makes all of them slower. A start waits at most 3 s for a
//! permit and then proceeds without one: a hung start must not block the others.

use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Start-ups per core; more than one, because part of a start is I/O.
const PERMITS_PER_CORE: usize = 2;
/// Wait for a permit; then the start proceeds without.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Semaphore for process start-ups.
#[derive(Debug)]
pub(crate) struct StartupLimiter {
    permits: Semaphore,
}

impl StartupLimiter {
    /// Creates the limiter with two permits per core of this machine.
    pub(crate) fn new() -> Self {
        Self::with_permits(
            PERMITS_PER_CORE * thread::available_parallelism().map_or(1, usize::from),
        )
    }

    fn with_permits(places: usize) -> Self {
        Self { permits: Semaphore::new(places) }
    }

    /// Waits for a permit, first in, first out, released when dropped.
    ///
    /// Returns `None` after 3 s: then a start hangs or the machine is overloaded.
    pub(crate) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PERMIT_TIMEOUT, self.permits.acquire()).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_released_permit_admits_the_next_start() {
        let limiter = StartupLimiter::with_permits(1);
        let first = limiter.acquire().await.expect("there is room");
        let second = limiter.acquire();
        tokio::pin!(second);
        let early = timeout(Duration::ZERO, &mut second).await;
        assert!(early.is_err(), "one at a time");
        drop(first);
        assert!(second.await.is_some(), "its turn");
    }
}
