//! `data/events.jsonl`: written beside the runs, never in their way.
//!
//! [`EventLog::append`] puts an event into a bounded queue and returns; a thread of its own writes. Where the disk is
//! slow or full the queue fills, and then events that only tell are lost before those that begin or end something. What
//! was lost is counted, and said by a line `EventsLost` as soon as there is room again.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::event::{Event, Weight};
use super::event_file::EventFile;

/// Some minutes of a busy server; a slow disk is slower than that only if something is wrong.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// What only events that begin or end something may use.
const RESERVED_BYTES: usize = 4 << 20;
/// Between two tries to write to a disk that refused.
const RETRY: Duration = Duration::from_millis(200);
/// A thread that had nothing to do for so long ends; the next event starts another.
const IDLE: Duration = Duration::from_secs(2);
/// How long the lock of another process is waited for, beside the runs.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// The size at which a new file is begun.
    pub rotate_bytes: u64,
    /// The age of a file's first line at which a new file is begun.
    pub rotate_after: Duration,
    /// Files that were finished longer ago are removed, if there is a limit.
    pub retention: Option<Duration>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { rotate_bytes: 64 << 20, rotate_after: Duration::from_hours(7 * 24), retention: None }
    }
}

/// The log of one process; clones share one queue.
#[derive(Clone, Debug)]
pub struct EventLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: EventFile,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Encoded, without their numbers.
    waiting: VecDeque<String>,
    bytes: usize,
    lost: u64,
    lost_in_all: u64,
    is_writing: bool,
    has_thread: bool,
    problem: Option<String>,
}

impl EventLog {
    /// The log below a project's `data/`; the file is made with the first event.
    pub fn new(data_dir: &Path, options: EventOptions) -> Self {
        let file = EventFile::new(event_path(data_dir), options);
        Self { shared: Arc::new(Shared { file, queue: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        self.shared.file.path()
    }

    /// Takes an event to be written soon. Never waits: where there is no room, the event is counted as lost.
    pub fn append(&self, event: &Event) {
        let body = event.body();
        let most = match event.weight() {
            Weight::Pair => MAX_QUEUED_BYTES,
            Weight::Telling => MAX_QUEUED_BYTES - RESERVED_BYTES,
        };
        let mut queue = self.shared.queue();
        if queue.bytes + body.len() > most {
            queue.lost += 1;
            queue.lost_in_all += 1;
            return;
        }
        queue.bytes += body.len();
        queue.waiting.push_back(body);
        if !queue.has_thread {
            queue.has_thread = start_thread(&self.shared);
        }
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Does something while no other process writes; what is written within is written at once.
    pub(super) fn exclusively<R>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut dyn FnMut(&[Event]) -> io::Result<()>) -> io::Result<R>,
    ) -> io::Result<R> {
        self.shared.file.exclusively(patience, |pen| {
            work(&mut |events| pen.write(&events.iter().map(Event::body).collect::<Vec<_>>()))
        })
    }

    /// Waits until everything is written, at most `patience`; how many events were not, or were lost before.
    pub fn flush(&self, patience: Duration) -> u64 {
        let until = Instant::now() + patience;
        let mut queue = self.shared.queue();
        while !queue.waiting.is_empty() || queue.is_writing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = wait(&self.shared.changed, queue, left);
        }
        queue.lost_in_all + queue.waiting.len() as u64
    }
}

/// Where a project's events are.
pub fn event_path(data_dir: &Path) -> PathBuf {
    data_dir.join("events.jsonl")
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until there has been nothing to write for a while.
    fn write_all(&self) {
        while let Some((batch, lost)) = self.next_batch() {
            match self.file.append(&batch, PATIENCE) {
                Ok(()) => self.written(&batch),
                Err(error) => self.put_back(batch, lost, &error),
            }
        }
    }

    /// All that waits; `None` where nothing came for a while, and then the thread is no more.
    fn next_batch(&self) -> Option<(Vec<String>, u64)> {
        let mut queue = self.queue();
        if queue.waiting.is_empty() {
            queue = wait(&self.changed, queue, IDLE);
        }
        if queue.waiting.is_empty() {
            queue.has_thread = false;
            return None;
        }
        let mut batch: Vec<String> = queue.waiting.drain(..).collect();
        let lost = std::mem::take(&mut queue.lost);
        if lost > 0 {
            batch.push(Event::ours("EventsLost", json!({ "lost": lost })).body());
        }
        queue.is_writing = true;
        Some((batch, lost))
    }

    fn written(&self, batch: &[String]) {
        let mut queue = self.queue();
        queue.is_writing = false;
        queue.problem = None;
        let bytes: usize = batch.iter().map(String::len).sum();
        queue.bytes = queue.bytes.saturating_sub(bytes);
        drop(queue);
        self.changed.notify_all();
    }

    /// Keeps what could not be written, in its order, and lets the disk rest for a moment.
    fn put_back(&self, mut batch: Vec<String>, lost: u64, error: &io::Error) {
        let mut queue = self.queue();
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
            queue.waiting.push_front(body);
        }
        queue.is_writing = false;
        drop(queue);
        thread::sleep(RETRY);
    }
}

fn start_thread(shared: &Arc<Shared>) -> bool {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("events".to_owned()).spawn(move || shared.write_all());
    if let Err(error) = &thread {
        tracing::warn!(%error, "events cannot be recorded for want of a thread");
    }
    thread.is_ok()
}

fn wait<'a>(
    changed: &Condvar,
    queue: MutexGuard<'a, Queue>,
    most: Duration,
) -> MutexGuard<'a, Queue> {
    match changed.wait_timeout(queue, most) {
        Ok((queue, _)) => queue,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
