//! A few at a time through the door: starting up is all processor work, and many at once only get in each other's way.

use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// How many may start at a time for each core: some of a start is waiting, so one more than the cores can do at once.
const PER_CORE: usize = 2;
/// How long one waits for its turn. It is courtesy and no limit: a start that hangs must not hold up others.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where processes that are about to start take turns.
#[derive(Debug)]
pub struct Doorway {
    places: Semaphore,
}

impl Doorway {
    /// A doorway for this machine.
    pub fn new() -> Self {
        Self::wide(PER_CORE * thread::available_parallelism().map_or(1, usize::from))
    }

    fn wide(places: usize) -> Self {
        Self { places: Semaphore::new(places) }
    }

    /// Waits for a turn, in the order of asking. It is over when it is dropped. After a while one goes without: then something
    /// hangs, or the machine is so busy that turns do not help.
    pub async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PATIENCE, self.places.acquire()).await.ok()?.ok()
    }
}

impl Default for Doorway {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_one_enters_when_one_is_through() {
        let doorway = Doorway::wide(1);
        let first = doorway.enter().await.expect("there is room");
        let second = doorway.enter();
        tokio::pin!(second);
        let early = timeout(Duration::ZERO, &mut second).await;
        assert!(early.is_err(), "one at a time");
        drop(first);
        assert!(second.await.is_some(), "its turn");
    }
}
