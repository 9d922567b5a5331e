//! Audit lines of calls that end in the same moment, written together.
//!
//! Every call's line is in the file before its answer goes. Where many calls are on their way, many end at once: one lock
//! and one write then serve all of them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::error::GatewayError;
use crate::record::{AuditLine, AuditLog, AuditOptions};

/// The audit log, and whether it takes lines.
pub(super) struct SoundLog {
    log: AuditLog,
    /// Whether the last line could be written; nothing is executed before one could.
    sound: AtomicBool,
}

impl SoundLog {
    pub(super) fn open(path: &Path, options: AuditOptions) -> Self {
        Self { log: AuditLog::open(path, options), sound: AtomicBool::new(false) }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.sound.load(Ordering::Relaxed)
    }

    pub(super) fn wants_arguments(&self) -> bool {
        self.log.wants_arguments()
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.log.problem()
    }

    pub(super) fn write(&self, lines: &[AuditLine]) -> Result<(), GatewayError> {
        let written = self.log.record_all(lines);
        self.sound.store(written.is_ok(), Ordering::Relaxed);
        written.map_err(|error| GatewayError::AuditUnavailable { reason: error.reason })
    }
}

/// Lines that are about to be written.
pub(super) struct Batch(Arc<Shared>);

struct Shared {
    log: Arc<SoundLog>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<AuditLine>,
    /// For each line, what is done once it is written, or cannot be.
    then: Vec<Then>,
}

type Then = Box<dyn FnOnce(Result<(), GatewayError>) + Send>;

impl Batch {
    pub(super) fn new(log: Arc<SoundLog>) -> Self {
        Self(Arc::new(Shared { log, waiting: Mutex::default() }))
    }

    /// Takes a line now; what it returns is done when the line is written.
    pub(super) fn add(
        &self,
        line: AuditLine,
    ) -> impl Future<Output = Result<(), GatewayError>> + use<> {
        let (sender, written) = oneshot::channel();
        // Who is gone needs no answer; the line is there.
        self.add_then(line, Box::new(|outcome| drop(sender.send(outcome))));
        async move { written.await.unwrap_or_else(|_| Err(unavailable("a fault of ours"))) }
    }

    /// Takes a line now, and does `then` when it is written.
    pub(super) fn add_then(&self, line: AuditLine, then: Then) {
        let is_first = {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.lines.push(line);
            waiting.then.push(then);
            waiting.lines.len() == 1
        };
        if is_first {
            let shared = Arc::clone(&self.0);
            // A task of its own: a caller that goes away must not take the lines of others with it. It begins after those
            // that are ready now, which is how their lines gather.
            tokio::spawn(async move { shared.write_all() });
        }
    }
}

impl Shared {
    fn write_all(&self) {
        let Waiting { lines, then } =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let reason = match self.log.write(&lines) {
            Err(GatewayError::AuditUnavailable { reason }) => Some(reason),
            _ => None,
        };
        for then in then {
            then(reason.as_deref().map_or(Ok(()), |reason| Err(unavailable(reason))));
        }
    }
}

fn unavailable(reason: &str) -> GatewayError {
    GatewayError::AuditUnavailable { reason: reason.to_owned() }
}
