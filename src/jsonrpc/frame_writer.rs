//! Writer task of one byte stream: queued frames are written together in one write.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{io, thread};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::frame::Frame;
use super::rpc_client::{FrameKind, FrameSink, SendError};
use crate::util::Mutex;

/// Soft limit of the queue in bytes; [`FrameWriter::wait_for_room`] waits above it.
const QUEUE_SOFT_LIMIT: usize = 1 << 20;
/// Limit of the queue in bytes above which requests are rejected: room for 32 in flight of 1 MiB each.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Limit of unwritten answers in bytes: 64 answers with ids of 4 KB, or 6,000 with short ids.
///
/// A server that sent requests and did not read its stdin made the gateway keep every answer: 195 MB in 10 s.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Time for which the writer polls for new frames before it sleeps.
const SPIN_TIMEOUT: Duration = Duration::from_micros(200);
/// A larger buffer is freed after use.
const MAX_KEPT_BUFFER: usize = 256 << 10;

/// Queue of frames for one stream; clones share the queue.
#[derive(Clone, Default)]
pub(crate) struct FrameWriter(Arc<WriterState>);

#[derive(Default)]
struct WriterState {
    queue: Mutex<FrameQueue>,
    /// Notified when a frame is queued or the queue is closed.
    queued: Notify,
    /// Notified when a write has finished or failed.
    written: Notify,
}

#[derive(Default)]
struct FrameQueue {
    bytes: Vec<u8>,
    /// Bytes that are being written.
    writing: usize,
    /// Bytes of answers among those queued, and among those being written.
    answers: usize,
    writing_answers: usize,
    is_closed: bool,
    /// Error of the write that ended the writer.
    write_error: Option<io::ErrorKind>,
}

impl FrameQueue {
    fn has_room(&self) -> bool {
        self.size() < QUEUE_SOFT_LIMIT
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.writing
    }

    fn has_answer_room(&self) -> bool {
        self.answers + self.writing_answers < MAX_ANSWER_BYTES
    }

    /// Appends a frame; returns true if the queue was empty.
    fn append(&mut self, frame: &Frame) -> io::Result<bool> {
        if let Some(kind) = self.write_error {
            return Err(kind.into());
        }
        if self.is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let was_empty = self.bytes.is_empty();
        self.bytes.extend_from_slice(frame.as_bytes());
        Ok(was_empty)
    }
}

impl FrameWriter {
    /// Queues a frame without waiting. Fails if the queue is closed or a write has failed.
    pub(crate) fn push(&self, line: &Frame) -> io::Result<()> {
        self.push_with(line, |_| Ok(()))
    }

    /// Checks or counts the frame with `admit`, then queues it.
    fn push_with(
        &self,
        line: &Frame,
        admit: impl FnOnce(&mut FrameQueue) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut queue = self.0.queue.lock();
        admit(&mut queue)?;
        let was_empty = queue.append(line)?;
        drop(queue);
        if was_empty {
            self.0.queued.notify_one();
        }
        Ok(())
    }

    /// Returns true below the limit of 1 MiB, for senders that can drop a message.
    pub(crate) fn has_room(&self) -> bool {
        self.0.queue.lock().has_room()
    }

    /// Waits until the queue is below the limit of 1 MiB.
    pub(crate) async fn wait_for_room(&self) -> io::Result<()> {
        self.wait_until(FrameQueue::has_room).await
    }

    /// Waits until everything queued is written.
    pub(crate) async fn wait_until_flushed(&self) -> io::Result<()> {
        self.wait_until(|queue| queue.size() == 0).await
    }

    async fn wait_until(&self, enough: impl Fn(&FrameQueue) -> bool) -> io::Result<()> {
        loop {
            let mut emptied = std::pin::pin!(self.0.written.notified());
            emptied.as_mut().enable();
            {
                let queue = self.0.queue.lock();
                if let Some(kind) = queue.write_error {
                    return Err(kind.into());
                }
                if enough(&queue) {
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    /// Rejects new frames; queued frames are still written, then the stream is shut down.
    pub(crate) fn close(&self) {
        self.0.queue.lock().is_closed = true;
        self.0.queued.notify_one();
    }

    /// Writes frames until the queue is closed or a write fails or takes longer than `patience`.
    pub(crate) async fn run_writer(self, mut sink: impl AsyncWrite + Unpin, patience: Duration) {
        let mut leaving = Vec::new();
        while self.take_queued(&mut leaving, SpinWait::start()).await {
            let error = with_timeout(patience, async {
                sink.write_all(&leaving).await?;
                sink.flush().await
            })
            .await
            .err();
            leaving.clear();
            if leaving.capacity() > MAX_KEPT_BUFFER {
                leaving = Vec::new();
            }
            let mut queue = self.0.queue.lock();
            (queue.writing, queue.writing_answers) = (0, 0);
            queue.write_error = error.map(|error| error.kind());
            let is_broken = queue.write_error.is_some();
            drop(queue);
            self.0.written.notify_waiters();
            if is_broken {
                return;
            }
        }
        let _ = sink.shutdown().await;
    }

    /// Takes the queued bytes; returns false if the queue is closed and empty.
    async fn take_queued(&self, leaving: &mut Vec<u8>, alert: SpinWait) -> bool {
        loop {
            {
                let mut queue = self.0.queue.lock();
                if !queue.bytes.is_empty() {
                    std::mem::swap(&mut queue.bytes, leaving);
                    queue.writing = leaving.len();
                    queue.writing_answers = std::mem::take(&mut queue.answers);
                    return true;
                }
                if queue.is_closed {
                    return false;
                }
            }
            if !alert.spin_once().await {
                self.0.queued.notified().await;
            }
        }
    }
}

impl FrameSink for FrameWriter {
    fn send(&self, frame: Frame, kind: FrameKind) -> Result<(), SendError> {
        let sent = self.push_with(&frame, |queue| match kind {
            FrameKind::Request if queue.size() >= MAX_QUEUED_BYTES => {
                Err(io::ErrorKind::QuotaExceeded.into())
            }
            FrameKind::Answer => {
                queue.answers += frame.as_bytes().len();
                Ok(())
            }
            FrameKind::Request | FrameKind::Notification => Ok(()),
        });
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::QuotaExceeded => SendError::Full,
            _ => SendError::Closed,
        })
    }

    fn has_answer_room(&self) -> bool {
        self.0.queue.lock().has_answer_room()
    }

    fn wait_for_answer_room(&self) -> BoxFuture<'_, Result<(), SendError>> {
        let room = self.wait_until(FrameQueue::has_answer_room);
        Box::pin(async { room.await.map_err(|_| SendError::Closed) })
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// Polls once before setting a timer: most writes complete immediately.
async fn with_timeout(
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

/// Short busy wait of the writer after a write, at most 200 µs, instead of sleeping.
///
/// A response usually follows shortly, and waking a thread takes longer than many calls. Only on a single-threaded
/// runtime and only if the machine has more than one core; other tasks and threads run first in every iteration.
struct SpinWait(Option<Instant>);

impl SpinWait {
    fn start() -> Self {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self((alone && has_other_cores()).then(|| Instant::now() + SPIN_TIMEOUT))
    }

    /// Yields to other threads and tasks; returns false when the time is over.
    async fn spin_once(&self) -> bool {
        let continues = self.0.is_some_and(|end| Instant::now() < end);
        if continues {
            thread::yield_now();
            yield_now().await;
        }
        continues
    }
}

/// On a single core the busy wait would delay the process it waits for.
fn has_other_cores() -> bool {
    static CORES: OnceLock<bool> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().is_ok_and(|cores| cores.get() > 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn queued_frames_are_written_in_order_even_after_close() {
        let (near, mut far) = tokio::io::duplex(16);
        let writer = FrameWriter::default();
        let draining = tokio::spawn(writer.clone().run_writer(near, Duration::from_secs(5)));
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}\n")).collect();
        for line in &lines {
            writer.push(&Frame::seal(line.clone().into_bytes())).unwrap();
        }
        writer.close();
        assert!(writer.push(&Frame::seal(b"too late".to_vec())).is_err());
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, lines.concat());
        draining.await.unwrap();
    }

    #[tokio::test]
    async fn a_stream_that_is_not_read_times_out_and_releases_waiting_senders() {
        let (near, _far) = tokio::io::duplex(16);
        let writer = FrameWriter::default();
        tokio::spawn(writer.clone().run_writer(near, Duration::from_millis(20)));
        writer.push(&Frame::seal(vec![b'x'; 2 * QUEUE_SOFT_LIMIT])).unwrap();
        assert_eq!(writer.wait_for_room().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(writer.push(&Frame::seal(b"more".to_vec())).is_err());
    }

    #[tokio::test]
    async fn requests_and_unwritten_answers_are_limited_in_bytes() {
        let (near, _far) = tokio::io::duplex(16);
        let writer = FrameWriter::default();
        let answer = || Frame::seal(vec![b'x'; 4096]);
        let answers = std::iter::from_fn(|| writer.has_answer_room().then(answer));
        let answers = answers.map(|answer| writer.send(answer, FrameKind::Answer).unwrap()).count();
        assert_eq!(answers, MAX_ANSWER_BYTES / 4096);
        let request = |kind| writer.send(Frame::seal(vec![b'x'; 8 << 20]), kind);
        let sent = std::iter::from_fn(|| request(FrameKind::Request).ok()).count();
        assert_eq!(sent, 4);
        assert_eq!(request(FrameKind::Request), Err(SendError::Full));
        tokio::spawn(writer.clone().run_writer(near, Duration::from_millis(20)));
        assert_eq!(writer.wait_for_answer_room().await, Err(SendError::Closed), "it is not read");
        assert_eq!(request(FrameKind::Notification), Err(SendError::Closed));
    }

    #[tokio::test]
    async fn answers_that_are_written_make_room() {
        let (near, mut far) = tokio::io::duplex(16);
        let writer = FrameWriter::default();
        writer.send(Frame::seal(vec![b'x'; MAX_ANSWER_BYTES]), FrameKind::Answer).unwrap();
        assert!(!writer.has_answer_room());
        tokio::spawn(writer.clone().run_writer(near, Duration::from_secs(5)));
        tokio::spawn(async move { tokio::io::copy(&mut far, &mut tokio::io::sink()).await });
        assert_eq!(writer.wait_for_answer_room().await, Ok(()));
    }
}
