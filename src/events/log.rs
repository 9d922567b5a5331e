//! Event log `data/events.jsonl`, written asynchronously.
//!
//! [`EventLog::append`] puts an event into a queue of at most 16 MiB and never blocks; a thread writes. If the disk is
//! slow or full, the queue fills and events are dropped; 4 MiB are reserved for events that start or end a span.
//! Dropped events are counted and reported by an `EventsLost` event after the next successful write. Not fsynced.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde_json::json;

use super::event::Event;
use super::log_format::EventFormat;
use super::result_files::ResultFiles;
use crate::store::{AppendLog, LockError, LockWait, LogOptions};

/// Limit of the queue; minutes of events of a busy server.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Part of the queue that is reserved for events that start or end a span.
const RESERVED_BYTES: usize = 4 << 20;
/// Pause after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Idle time after which the writer thread exits; the next event starts another.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait for the lock of another process.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventOptions {
    /// Size at which the file is rotated.
    pub rotate_bytes: u64,
    /// Age of the first line at which the file is rotated.
    pub rotate_after: Duration,
    /// Rotated files last written longer ago are removed; `None` keeps all.
    pub retention: Option<Duration>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { rotate_bytes: 64 << 20, rotate_after: Duration::from_hours(7 * 24), retention: None }
    }
}

/// The event log of one process. Clones share one queue.
#[derive(Clone, Debug)]
pub(crate) struct EventLog {
    shared: Arc<EventLogState>,
}

#[derive(Debug)]
struct EventLogState {
    file: AppendLog<EventFormat>,
    queue: Mutex<EventQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EventQueue {
    /// Encoded events without numbers.
    pending: VecDeque<String>,
    bytes: usize,
    lost: u64,
    lost_total: u64,
    /// Number of events in the batch that is being written.
    writing: usize,
    has_thread: bool,
    problem: Option<String>,
}

impl EventLog {
    /// Creates the log below a project's `data/`; the file is created with the first event.
    pub(crate) fn new(data_dir: &Path, options: EventOptions) -> Self {
        let format = EventFormat { options, results: ResultFiles::new(data_dir) };
        let options = LogOptions {
            max_bytes: options.rotate_bytes,
            retention: options.retention,
            lock_timeout: LOCK_TIMEOUT,
        };
        let file = AppendLog::new(event_path(data_dir), format, options);
        Self {
            shared: Arc::new(EventLogState {
                file,
                queue: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    pub(crate) fn file(&self) -> &Path {
        self.shared.file.path()
    }

    /// Queues an event. Never blocks; if the queue is full, the event is dropped and counted as lost.
    pub(crate) fn append(&self, event: &Event) {
        let body = event.encode_body();
        let reserved = if event.is_span_edge() { 0 } else { RESERVED_BYTES };
        let mut queue = self.shared.lock_queue();
        if queue.bytes + body.len() > MAX_QUEUED_BYTES - reserved {
            queue.lost += 1;
            queue.lost_total += 1;
            return;
        }
        queue.bytes += body.len();
        queue.pending.push_back(body);
        if !queue.has_thread {
            queue.has_thread = start_writer_thread(&self.shared);
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Runs `work` while holding the lock against other processes; `work` writes synchronously, bypassing the queue.
    ///
    /// Blocks; waits for the lock at most `timeout`.
    pub(crate) fn with_lock<R>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&mut dyn FnMut(&[Event]) -> io::Result<()>) -> io::Result<R>,
    ) -> io::Result<R> {
        let done = self.shared.file.with_lock(LockWait::AtMost(timeout), |log| {
            work(&mut |events| {
                log.append(&events.iter().map(Event::encode_body).collect::<Vec<_>>())
            })
        });
        done.map_err(|error| match error {
            LockError::Io(error) => error,
            held @ LockError::Held { .. } => {
                io::Error::new(io::ErrorKind::WouldBlock, held.to_string())
            }
        })
    }

    /// Waits until the queue is written, at most the given time.
    ///
    /// Returns the number of events that are not written or were lost before.
    pub(crate) fn flush(&self, patience: Duration) -> u64 {
        let until = Instant::now() + patience;
        let mut queue = self.shared.lock_queue();
        while !queue.pending.is_empty() || queue.writing > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = wait_at_most(&self.shared.changed, queue, left);
        }
        queue.lost_total + (queue.pending.len() + queue.writing) as u64
    }
}

/// Returns the path of a project's event log.
pub(crate) fn event_path(data_dir: &Path) -> PathBuf {
    data_dir.join("events.jsonl")
}

impl EventLogState {
    fn lock_queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes batches until the queue has been empty for 2 s.
    fn writer_loop(&self) {
        while let Some((batch, lost)) = self.next_batch() {
            match self.file.append(&batch) {
                Ok(()) => self.batch_written(&batch),
                Err(error) => self.requeue(batch, lost, &error),
            }
        }
    }

    /// Takes all queued events; `None` if none arrives within 2 s, after which the thread must exit.
    fn next_batch(&self) -> Option<(Vec<String>, u64)> {
        let mut queue = self.lock_queue();
        if queue.pending.is_empty() {
            queue = wait_at_most(&self.changed, queue, IDLE_TIMEOUT);
        }
        if queue.pending.is_empty() {
            queue.has_thread = false;
            return None;
        }
        let mut batch: Vec<String> = queue.pending.drain(..).collect();
        queue.writing = batch.len();
        let lost = std::mem::take(&mut queue.lost);
        if lost > 0 {
            batch.push(Event::internal("EventsLost", json!({ "lost": lost })).encode_body());
        }
        Some((batch, lost))
    }

    fn batch_written(&self, batch: &[String]) {
        let mut queue = self.lock_queue();
        queue.writing = 0;
        queue.problem = None;
        let bytes: usize = batch.iter().map(String::len).sum();
        queue.bytes = queue.bytes.saturating_sub(bytes);
        drop(queue);
        self.changed.notify_all();
    }

    /// Returns a failed batch to the queue in its order, then pauses for 200 ms.
    fn requeue(&self, mut batch: Vec<String>, lost: u64, error: &LockError) {
        let mut queue = self.lock_queue();
        if lost > 0 {
            batch.pop();
            queue.lost += lost;
        }
        let reason = error.to_string();
        if queue.problem.as_deref() != Some(&reason) {
            tracing::warn!(reason, file = %self.file.path().display(), "events cannot be recorded; runs go on");
            queue.problem = Some(reason);
        }
        for body in batch.into_iter().rev() {
            queue.pending.push_front(body);
        }
        queue.writing = 0;
        drop(queue);
        thread::sleep(RETRY_INTERVAL);
    }
}

fn start_writer_thread(shared: &Arc<EventLogState>) -> bool {
    let shared = Arc::clone(shared);
    let thread =
        thread::Builder::new().name("events".to_owned()).spawn(move || shared.writer_loop());
    if let Err(error) = &thread {
        tracing::warn!(%error, "events cannot be recorded for want of a thread");
    }
    thread.is_ok()
}

fn wait_at_most<'a>(
    changed: &Condvar,
    queue: MutexGuard<'a, EventQueue>,
    most: Duration,
) -> MutexGuard<'a, EventQueue> {
    match changed.wait_timeout(queue, most) {
        Ok((queue, _)) => queue,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
