//! Rate limiter with a fixed window.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Allows `most` events per window; the window starts with the first event after the previous one.
pub(crate) struct RateLimiter {
    max_events: u32,
    window: Duration,
    used: u32,
    /// End of the current window.
    window_end: Instant,
}

impl RateLimiter {
    pub(crate) fn new(max_events: u32, window: Duration) -> Self {
        Self { max_events, window, used: 0, window_end: Instant::now() }
    }

    /// Consumes one permit; returns false if none is left in this window.
    pub(crate) fn try_acquire(&mut self) -> bool {
        let now = Instant::now();
        if self.window_end <= now {
            (self.used, self.window_end) = (0, now + self.window);
        }
        let has_room = self.used < self.max_events;
        self.used += u32::from(has_room);
        has_room
    }

    /// Waits until a permit is available. Cancel-safe: consumes nothing.
    pub(crate) async fn wait_for_permit(&self) {
        if self.used >= self.max_events {
            sleep_until(self.window_end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_are_limited_per_window_and_renewed_in_the_next() {
        let mut pace = RateLimiter::new(3, Duration::from_millis(200));
        for _ in 0..2 {
            assert_eq!([(); 5].map(|()| pace.try_acquire()), [true, true, true, false, false]);
            pace.wait_for_permit().await;
        }
    }
}
