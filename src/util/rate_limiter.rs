//! How much of something there may be in a while.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// So many, and then no more until the while is over.
pub(super) struct Pace {
    most: u32,
    within: Duration,
    taken: u32,
    /// When the count begins anew.
    until: Instant,
}

impl Pace {
    pub(super) fn new(most: u32, within: Duration) -> Self {
        Self { most, within, taken: 0, until: Instant::now() }
    }

    /// Takes one; `false` where there were too many.
    pub(super) fn take(&mut self) -> bool {
        let now = Instant::now();
        if self.until <= now {
            (self.taken, self.until) = (0, now + self.within);
        }
        let has_room = self.taken < self.most;
        self.taken += u32::from(has_room);
        has_room
    }

    /// Waits where there are no more to take. Nothing is lost if the wait is given up.
    pub(super) async fn keep(&self) {
        if self.taken >= self.most {
            sleep_until(self.until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_are_so_many_in_a_while_and_as_many_in_the_next() {
        let mut pace = Pace::new(3, Duration::from_millis(200));
        for _ in 0..2 {
            assert_eq!([(); 5].map(|()| pace.take()), [true, true, true, false, false]);
            pace.keep().await;
        }
    }
}
