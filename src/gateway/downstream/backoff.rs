//! Exponential backoff between attempts to start a broken server: 500 ms, doubling, at most 1 min.

use std::time::Duration;

use tokio::time::Instant;

const INITIAL_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Failures in a row and the earliest time of the next attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    next_attempt: Option<Instant>,
}

impl Backoff {
    /// Counts a failure and doubles the delay.
    pub(crate) fn record_failure(&mut self, now: Instant) {
        let doubled =
            INITIAL_DELAY.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        self.next_attempt = Some(now + doubled.min(MAX_DELAY));
    }

    /// Counts the end of a connection that worked and lasted for `lived`.
    ///
    /// A connection that lasted for [`MAX_DELAY`] was not part of a crash loop, so the count restarts.
    pub(crate) fn record_disconnect(&mut self, lived: Duration, now: Instant) {
        if lived >= MAX_DELAY {
            *self = Self::default();
        }
        self.record_failure(now);
    }

    /// Returns the time until the next attempt; `None` if an attempt is due.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.next_attempt
            .and_then(|next| next.checked_duration_since(now))
            .filter(|wait| !wait.is_zero())
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_one_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..40)
            .map(|_| {
                backoff.record_failure(now);
                backoff.remaining(now).unwrap().as_millis()
            })
            .collect();
        assert_eq!(waits[..4], [500, 1_000, 2_000, 4_000]);
        assert_eq!(waits[39], 60_000);
        assert_eq!(backoff.remaining(now + MAX_DELAY), None);
    }

    #[test]
    fn a_connection_that_lasted_one_minute_resets_the_delay() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let mut wait_after = |lived: Duration| {
            backoff.record_disconnect(lived, now);
            backoff.remaining(now).unwrap().as_millis()
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            [second, second, MAX_DELAY, second].map(&mut wait_after),
            [500, 1_000, 500, 1_000]
        );
    }
}
