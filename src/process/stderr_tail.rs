//! The last 8 KiB of a process's stderr, drained in the background.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::util::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

const TAIL_BYTES: usize = 8 << 10;

/// Reads a stderr to its end and keeps the last 8 KiB. Reading stops when dropped.
#[derive(Debug)]
pub(crate) struct StderrTail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    tap: Arc<OnceLock<StderrTap>>,
    done: watch::Receiver<bool>,
    reader: AbortHandle,
}

/// The function that is called for each chunk.
struct StderrTap(OnStderr);

pub(crate) type OnStderr = Box<dyn Fn(&[u8]) + Send + Sync>;

impl fmt::Debug for StderrTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl StderrTail {
    pub(crate) fn drain(stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::with_capacity(TAIL_BYTES)));
        let (done, is_done) = watch::channel(false);
        let tap = Arc::new(OnceLock::new());
        let (target, listener) = (Arc::clone(&kept), Arc::clone(&tap));
        let reader = tokio::spawn(async move {
            keep_tail(stderr, &target, &listener).await;
            let _ = done.send(true);
        });
        Self { kept, tap, done: is_done, reader: reader.abort_handle() }
    }

    /// Calls `listener` with the retained tail and then with each chunk. Only the first listener is kept.
    pub(crate) fn tap(&self, listener: OnStderr) {
        // The lock is held, so that no chunk is missed or reported twice.
        let mut kept = self.kept.lock();
        listener(kept.make_contiguous());
        let _ = self.tap.set(StderrTap(listener));
    }

    /// Returns the retained text, without a partial character at its start.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> =
            self.kept.lock().iter().copied().skip_while(|byte| byte & 0xC0 == 0x80).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the end of the stream, at most the given time.
    pub(crate) async fn wait_for_end(&mut self, max_wait: Duration) {
        let _ = timeout(max_wait, self.done.wait_for(|done| *done)).await;
    }
}

impl Drop for StderrTail {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn keep_tail(mut stderr: ChildStderr, kept: &Mutex<VecDeque<u8>>, tap: &OnceLock<StderrTap>) {
    let mut chunk = vec![0; TAIL_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        let mut kept = kept.lock();
        let room = TAIL_BYTES.saturating_sub(count);
        let surplus = kept.len().saturating_sub(room);
        kept.drain(..surplus);
        kept.extend(chunk.iter().take(count));
        if let Some(StderrTap(listener)) = tap.get() {
            listener(chunk.get(..count).unwrap_or_default());
        }
    }
}
