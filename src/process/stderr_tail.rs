//! The last of what a process writes to stderr: always read, never more than a little kept.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

const KEPT: usize = 8 << 10;

/// Reads a stderr to its end in the background.
#[derive(Debug)]
pub(super) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    tap: Arc<OnceLock<Tap>>,
    done: watch::Receiver<bool>,
    reader: AbortHandle,
}

/// Somebody who listens to a stderr while it is written.
struct Tap(Listener);

/// Hears a stderr in pieces.
pub(super) type Listener = Box<dyn Fn(&[u8]) + Send + Sync>;

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl Tail {
    pub(super) fn of(stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::with_capacity(KEPT)));
        let (done, is_done) = watch::channel(false);
        let tap = Arc::new(OnceLock::new());
        let (target, listener) = (Arc::clone(&kept), Arc::clone(&tap));
        let reader = tokio::spawn(async move {
            keep_the_last(stderr, &target, &listener).await;
            let _ = done.send(true);
        });
        Self { kept, tap, done: is_done, reader: reader.abort_handle() }
    }

    /// Lets `listener` hear everything, what is kept already first; only the first listener counts.
    pub(super) fn tap(&self, listener: Listener) {
        // Under the lock: nothing is heard twice or missed between the two.
        let mut kept = lock(&self.kept);
        listener(kept.make_contiguous());
        let _ = self.tap.set(Tap(listener));
    }

    /// What is kept, without a character cut in half at its beginning.
    pub(super) fn text(&self) -> String {
        let bytes: Vec<u8> =
            lock(&self.kept).iter().copied().skip_while(|byte| byte & 0xC0 == 0x80).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the end of the stream, but not for long.
    pub(super) async fn settle(&mut self, patience: Duration) {
        let _ = timeout(patience, self.done.wait_for(|done| *done)).await;
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn keep_the_last(mut stderr: ChildStderr, kept: &Mutex<VecDeque<u8>>, tap: &OnceLock<Tap>) {
    let mut chunk = vec![0; KEPT];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        let mut kept = lock(kept);
        let room = KEPT.saturating_sub(count);
        let surplus = kept.len().saturating_sub(room);
        kept.drain(..surplus);
        kept.extend(chunk.iter().take(count));
        if let Some(Tap(listener)) = tap.get() {
            listener(chunk.get(..count).unwrap_or_default());
        }
    }
}

fn lock(kept: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
