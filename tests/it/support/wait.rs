//! Waiting for something that another process does.

use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Long, because the machine may be slow: a test that passes never waits for it.
const POLL_TIMEOUT: Duration = Duration::from_mins(1);

/// Polls every 20 ms until `look` returns a value. Panics after 1 min.
#[track_caller]
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(POLL_INTERVAL);
    }
}
