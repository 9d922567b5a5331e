//! When a broken server is tried again: at once, then less and less often.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(1);

/// Failures in a row, and when the next try is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    next: Option<Instant>,
}

impl Backoff {
    /// One more failure; the wait doubles.
    pub(super) fn failed(&mut self, now: Instant) {
        let doubled = FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        self.next = Some(now + doubled.min(LONGEST));
    }

    /// How long the breaker stays open; `None` where a try is due.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.next.and_then(|next| next.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..40)
            .map(|_| {
                backoff.failed(now);
                backoff.remaining(now).unwrap().as_millis()
            })
            .collect();
        assert_eq!(waits[..4], [500, 1_000, 2_000, 4_000]);
        assert_eq!(waits[39], 60_000);
        assert_eq!(backoff.remaining(now + LONGEST), None);
    }
}
