//! Lines on their way out: whoever has one leaves it here and goes on, and what has gathered meanwhile goes out in one
//! write.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Beyond this, whoever can wait is asked to.
const ROOM: usize = 1 << 20;
/// How long an answer is looked for before the thread goes to sleep.
const ALERT: Duration = Duration::from_micros(200);
/// A buffer is given back once it grew beyond this.
const KEPT_BUFFER: usize = 256 << 10;

/// Lines that wait to be written; clones share one queue.
#[derive(Clone, Default)]
pub struct Outbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Somebody left something, or closed it.
    filled: Notify,
    /// The queue was taken, or nobody writes any more.
    emptied: Notify,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// What is being written now.
    leaving: usize,
    is_closed: bool,
    /// Set when nothing more can be written.
    broken: Option<io::ErrorKind>,
}

impl Queue {
    fn has_room(&self) -> bool {
        self.bytes.len() + self.leaving < ROOM
    }
}

impl Outbox {
    /// Leaves whole lines, each with its line feed. They go out together, or not at all.
    pub fn push(&self, lines: &[u8]) -> io::Result<()> {
        let mut queue = self.queue();
        if let Some(kind) = queue.broken {
            return Err(kind.into());
        }
        if queue.is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let was_empty = queue.bytes.is_empty();
        queue.bytes.extend_from_slice(lines);
        drop(queue);
        if was_empty {
            self.0.filled.notify_one();
        }
        Ok(())
    }

    /// Whether there is room, for those who can do without.
    pub fn has_room(&self) -> bool {
        self.queue().has_room()
    }

    /// Returns once there is room: who waits for it never makes the queue long.
    pub async fn room(&self) -> io::Result<()> {
        self.until(Queue::has_room).await
    }

    /// Returns once everything is written.
    pub async fn flushed(&self) -> io::Result<()> {
        self.until(|queue| queue.bytes.is_empty() && queue.leaving == 0).await
    }

    async fn until(&self, enough: impl Fn(&Queue) -> bool) -> io::Result<()> {
        loop {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            {
                let queue = self.queue();
                if let Some(kind) = queue.broken {
                    return Err(kind.into());
                }
                if enough(&queue) {
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    /// Takes nothing more; what is there still goes out, then the far end is closed.
    pub fn close(&self) {
        self.queue().is_closed = true;
        self.0.filled.notify_one();
    }

    /// Writes until it is closed, the far end is gone, or it takes nothing for `patience`.
    pub async fn drain(self, mut sink: impl AsyncWrite + Unpin, patience: Duration) {
        let mut leaving = Vec::new();
        while self.next(&mut leaving, Alert::begin()).await {
            let error = within(patience, async {
                sink.write_all(&leaving).await?;
                sink.flush().await
            })
            .await
            .err();
            leaving.clear();
            if leaving.capacity() > KEPT_BUFFER {
                leaving = Vec::new();
            }
            let mut queue = self.queue();
            queue.leaving = 0;
            queue.broken = error.map(|error| error.kind());
            let is_broken = queue.broken.is_some();
            drop(queue);
            self.0.emptied.notify_waiters();
            if is_broken {
                return;
            }
        }
        let _ = sink.shutdown().await;
    }

    /// Takes what has gathered; `false` when nothing is left and nothing will come.
    async fn next(&self, leaving: &mut Vec<u8>, alert: Alert) -> bool {
        loop {
            {
                let mut queue = self.queue();
                if !queue.bytes.is_empty() {
                    std::mem::swap(&mut queue.bytes, leaving);
                    queue.leaving = leaving.len();
                    return true;
                }
                if queue.is_closed {
                    return false;
                }
            }
            if !alert.look_again().await {
                self.0.filled.notified().await;
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most writes are done at once; only one that is not needs a clock.
async fn within(
    patience: Duration,
    writing: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let mut writing = std::pin::pin!(writing);
    if let Poll::Ready(written) =
        poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await
    {
        return written;
    }
    timeout(patience, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The moment after something was sent, in which an answer is likely to come: looking again is then cheaper than going to
/// sleep and being woken, which takes longer than many a call. Where one thread does everything, this keeps it awake; whoever
/// else wants the core goes first, every time.
struct Alert(Option<Instant>);

impl Alert {
    fn begin() -> Self {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self((alone && has_other_cores()).then(|| Instant::now() + ALERT))
    }

    /// Lets everybody else go first; `false` once the moment is over.
    async fn look_again(&self) -> bool {
        let goes_on = self.0.is_some_and(|end| Instant::now() < end);
        if goes_on {
            thread::yield_now();
            yield_now().await;
        }
        goes_on
    }
}

/// On a single core whoever looks again keeps the one it waits for from working.
fn has_other_cores() -> bool {
    static CORES: OnceLock<bool> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().is_ok_and(|cores| cores.get() > 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_was_left_goes_out_whole_and_in_order_also_after_the_end() {
        let (near, mut far) = tokio::io::duplex(16);
        let outbox = Outbox::default();
        let draining = tokio::spawn(outbox.clone().drain(near, Duration::from_secs(5)));
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}\n")).collect();
        for line in &lines {
            outbox.push(line.as_bytes()).unwrap();
        }
        outbox.close();
        assert!(outbox.push(b"too late\n").is_err());
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, lines.concat());
        draining.await.unwrap();
    }

    #[tokio::test]
    async fn who_does_not_read_is_given_up_and_nobody_waits_for_room_any_more() {
        let (near, _far) = tokio::io::duplex(16);
        let outbox = Outbox::default();
        tokio::spawn(outbox.clone().drain(near, Duration::from_millis(20)));
        outbox.push(&vec![b'x'; 2 * ROOM]).unwrap();
        assert_eq!(outbox.room().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(outbox.push(b"more\n").is_err());
    }
}
