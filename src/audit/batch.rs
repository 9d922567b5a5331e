//! Group commit for the audit log.
//!
//! Entries that arrive while a write is pending share one lock and one write. A call is answered only after its entry
//! is in the file. If the lock is free, a batch is written by the runtime thread (a few microseconds). If another process
//! holds it, a thread of its own waits for it, at most 5 s, and entries that arrive meanwhile join that batch: only the
//! answers that need their entries wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::entry::AuditEntry;
use super::log::{AuditLog, AuditUnavailable};
use crate::util::Mutex;

/// Entries that may wait for the lock of another process; more than the calls and refusals of 5 s.
const MAX_WAITING_ENTRIES: usize = 65_536;

/// Writes the entries of concurrent requests in batches. No function blocks.
pub(crate) struct AuditBatcher(Arc<BatcherState>);

struct BatcherState {
    log: AuditLog,
    /// Set if the last write succeeded.
    /// Initially false: nothing is executed before a first write succeeds.
    is_writable: AtomicBool,
    queue: Mutex<EntryQueue>,
}

#[derive(Default)]
struct EntryQueue {
    waiting: EntryBatch,
    /// True while a task that will write the queue has not started.
    is_scheduled: bool,
    /// True while a [`BatchWriter`] exists.
    is_writing: bool,
}

impl EntryQueue {
    /// True if no entry waits or is being written.
    fn is_idle(&self) -> bool {
        self.waiting.callbacks.is_empty() && !self.is_scheduled && !self.is_writing
    }
}

#[derive(Default)]
struct EntryBatch {
    entries: Vec<AuditEntry>,
    /// Called with the outcome of the write.
    callbacks: Vec<OnWritten>,
}

type OnWritten = Box<dyn FnOnce(Result<(), AuditUnavailable>) + Send>;

impl AuditBatcher {
    pub(crate) fn new(log: AuditLog) -> Self {
        let (is_writable, queue) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(BatcherState { log, is_writable, queue }))
    }

    /// Returns true if the last write succeeded.
    pub(crate) fn is_writable(&self) -> bool {
        self.0.is_writable.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self) -> &AuditLog {
        &self.0.log
    }

    /// Queues an entry immediately; the returned future resolves when the entry is written.
    ///
    /// Dropping the future does not withdraw the entry.
    pub(crate) fn append(
        &self,
        entry: AuditEntry,
    ) -> impl Future<Output = Result<(), AuditUnavailable>> + use<> {
        let (sender, written) = oneshot::channel();
        // An error means that the caller has dropped the future; the entry is written anyway.
        self.append_then(entry, Box::new(|outcome| drop(sender.send(outcome))));
        let state = Arc::clone(&self.0);
        async move { written.await.unwrap_or_else(|_| state.not_written()) }
    }

    /// Queues an entry and calls `then` after the write.
    pub(crate) fn append_then(&self, entry: AuditEntry, then: OnWritten) {
        self.0.push(Some(entry), then);
        self.0.schedule();
    }

    /// Writes an entry for which no answer waits: now if the lock is free, otherwise as soon as it is.
    pub(crate) fn append_detached(&self, entry: AuditEntry) {
        self.0.push(Some(entry), Box::new(drop));
        self.0.write_waiting();
    }

    /// Waits until the entries that were queued before are written or have failed.
    pub(crate) async fn flush(&self) {
        if self.0.queue.lock().is_idle() {
            return;
        }
        let (sender, written) = oneshot::channel();
        self.0.push(None, Box::new(|_| sender.send(()).unwrap_or_default()));
        self.0.schedule();
        let _ = written.await;
    }
}

impl BatcherState {
    fn push(&self, entry: Option<AuditEntry>, then: OnWritten) {
        let mut queue = self.queue.lock();
        if queue.waiting.entries.len() < MAX_WAITING_ENTRIES {
            queue.waiting.entries.extend(entry);
            queue.waiting.callbacks.push(then);
            return;
        }
        drop(queue);
        then(self.log.report(Err(io::Error::other("too many entries wait to be written").into())));
    }

    /// Writes the queue in a task of its own, unless a writer is at work, which will do it.
    ///
    /// Cancelling one caller must not lose the entries of others. The task runs after the tasks that are ready now, so
    /// their entries join the batch.
    fn schedule(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        if queue.is_writing || queue.is_scheduled || queue.waiting.callbacks.is_empty() {
            return;
        }
        // Without a runtime, when the last tasks are dropped at exit, the queue is written here.
        let Ok(runtime) = Handle::try_current() else {
            drop(queue);
            return self.write_waiting();
        };
        queue.is_scheduled = true;
        drop(queue);
        let state = Arc::clone(self);
        runtime.spawn(async move { state.write_waiting() });
    }

    /// Writes the queue if the lock is free; otherwise a thread waits for it.
    fn write_waiting(self: &Arc<Self>) {
        let batch = {
            let mut queue = self.queue.lock();
            if queue.is_writing {
                return;
            }
            (queue.is_scheduled, queue.is_writing) = (false, true);
            std::mem::take(&mut queue.waiting)
        };
        BatchWriter { state: Arc::clone(self), batch }.write();
    }

    fn not_written(&self) -> Result<(), AuditUnavailable> {
        self.log.report(Err(io::Error::other("a fault of ours").into()))
    }
}

/// A batch that is being written. Its owner is the only writer of the queue.
struct BatchWriter {
    state: Arc<BatcherState>,
    batch: EntryBatch,
}

impl BatchWriter {
    fn write(self) {
        match self.state.log.try_write(&self.batch.entries) {
            Some(written) => self.finish(&written),
            None => self.wait_on_thread(),
        }
    }

    fn wait_on_thread(self) {
        let (state, runtime) = (Arc::clone(&self.state), Handle::try_current().ok());
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(move || {
            // The callbacks may start tasks.
            let _context = runtime.as_ref().map(Handle::enter);
            self.write_when_unlocked();
        });
        if let Err(error) = thread {
            // The entries are reported as not written when `self` is dropped.
            tracing::error!(%error, log = %state.log.path().display(), "no thread can wait for the audit log");
        }
    }

    fn write_when_unlocked(mut self) {
        let state = Arc::clone(&self.state);
        let batch = &mut self.batch;
        let written = state.log.write_locked(|| {
            let mut joined = std::mem::take(&mut state.queue.lock().waiting);
            batch.entries.append(&mut joined.entries);
            batch.callbacks.append(&mut joined.callbacks);
            &batch.entries
        });
        self.finish(&written);
    }

    fn finish(mut self, written: &Result<(), AuditUnavailable>) {
        self.state.is_writable.store(written.is_ok(), Ordering::Relaxed);
        let callbacks = std::mem::take(&mut self.batch).callbacks;
        // The next batch does not wait for the callbacks.
        drop(self);
        for then in callbacks {
            then(written.clone());
        }
    }
}

impl Drop for BatchWriter {
    /// Lets the next writer start, and reports a batch as not written that was not finished.
    fn drop(&mut self) {
        self.state.queue.lock().is_writing = false;
        self.state.schedule();
        for then in std::mem::take(&mut self.batch).callbacks {
            self.state.is_writable.store(false, Ordering::Relaxed);
            then(self.state.not_written());
        }
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
