//! The last of what a process writes to stderr: always read, never more than a little kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    done: watch::Receiver<bool>,
    reader: AbortHandle,
}

impl Tail {
    pub(super) fn of(stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::with_capacity(KEPT)));
        let (done, is_done) = watch::channel(false);
        let target = Arc::clone(&kept);
        let reader = tokio::spawn(async move {
            keep_the_last(stderr, &target).await;
            let _ = done.send(true);
        });
        Self { kept, done: is_done, reader: reader.abort_handle() }
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

async fn keep_the_last(mut stderr: ChildStderr, kept: &Mutex<VecDeque<u8>>) {
    let mut chunk = vec![0; KEPT];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        let mut kept = lock(kept);
        let room = KEPT.saturating_sub(count);
        let surplus = kept.len().saturating_sub(room);
        kept.drain(..surplus);
        kept.extend(chunk.iter().take(count));
    }
}

fn lock(kept: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
