//! A mutex without poisoning, and blocking file I/O outside of the async runtime's threads.

use std::sync::{self, MutexGuard, PoisonError};

/// A `std::sync::Mutex` whose `lock` succeeds after a panic of another holder: no guarded value is left half changed.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock. Blocks the thread.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` on a blocking thread; `None` if it panics. Not cancelled when the future is dropped.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
