//! Audit log `data/audit.jsonl`: one entry per request, hash-chained, written before the response is sent.
//!
//! Several processes share one file. An entry is written with one write and not fsynced: it survives a crash of
//! Adjutant; a crash of the machine may lose the newest entries, which `verify` reports. Writing blocks; the lock of
//! another process is waited for at most 5 s.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chain::{ChainHead, RemovedEntries, sha256_hex};
use super::entry::{ArgumentDetail, AuditEntry, EntryLink, TYPICAL_ENTRY_BYTES, encode_entry};
use crate::api::UtcTime;
use crate::store::{AppendLog, LineFormat, LockError, LockWait, LogOptions, TornLine};
use crate::util::{Mutex, now};

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// 64 MiB, about 150,000 entries.
const DEFAULT_ROTATE_BYTES: u64 = 64 << 20;
/// Options of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// True: a request is rejected if its entry cannot be written. False: the failure is only logged.
    pub fail_closed: bool,
    /// Size at which the file is rotated.
    pub rotate_bytes: u64,
    /// Detail of the logged arguments.
    pub arguments: ArgumentDetail,
    /// Rotated files older than this are removed; `None` keeps all.
    pub retention: Option<Duration>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            fail_closed: true,
            rotate_bytes: DEFAULT_ROTATE_BYTES,
            arguments: ArgumentDetail::Never,
            retention: None,
        }
    }
}

/// The audit log of one process. Thread-safe.
#[derive(Debug)]
pub struct AuditLog {
    log: AppendLog<AuditFormat>,
    options: AuditOptions,
    problem: Mutex<Option<String>>,
}

/// Error of a request that is rejected because its audit entry could not be written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the audit log `{}` cannot be written: {reason}; calls stop until it can", path.display())]
pub struct AuditUnavailable {
    pub path: PathBuf,
    pub reason: String,
}

impl AuditLog {
    /// Creates the log. The file is opened with the first entry, so that a server with an unwritable log can still
    /// start.
    pub fn open(path: &Path, options: AuditOptions) -> Self {
        let format = AuditFormat { arguments: options.arguments };
        let log_options = LogOptions {
            max_bytes: options.rotate_bytes,
            retention: options.retention,
            lock_timeout: LOCK_TIMEOUT,
        };
        let log = AppendLog::new(path.to_path_buf(), format, log_options);
        Self { log, options, problem: Mutex::new(None) }
    }

    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// Returns true if arguments are logged in any detail.
    pub fn logs_arguments(&self) -> bool {
        self.options.arguments != ArgumentDetail::Never
    }

    /// Returns the error of the last write, if it failed.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Writes one entry. Blocks; waits for the lock of another process at most 5 s.
    ///
    /// To be called before the response is sent; if this fails, the response must not be sent.
    pub fn write(&self, line: &AuditEntry) -> Result<(), AuditUnavailable> {
        self.report(self.log.append(std::slice::from_ref(line)))
    }

    /// Writes entries with one write, all or none; `None` if it would have to wait for the lock.
    pub(super) fn try_write(&self, entries: &[AuditEntry]) -> Option<Result<(), AuditUnavailable>> {
        let written = self.log.try_append(entries);
        let written = written.map(|is_written| is_written.then_some(())).map_err(LockError::Io);
        written.transpose().map(|written| self.report(written))
    }

    /// Waits for the lock, then writes the entries that `entries` returns, all or none.
    pub(super) fn write_locked<'e>(
        &self,
        entries: impl FnOnce() -> &'e [AuditEntry],
    ) -> Result<(), AuditUnavailable> {
        let wait = LockWait::AtMost(LOCK_TIMEOUT);
        self.report(self.log.with_lock(wait, |log| log.append(entries())))
    }

    /// Stores the outcome of a write, and turns it into the one for the request.
    pub(super) fn report(&self, written: Result<(), LockError>) -> Result<(), AuditUnavailable> {
        let reason = written.err().map(|error| error.to_string());
        let mut problem = self.problem.lock();
        if let (None, Some(reason)) = (&*problem, &reason) {
            tracing::error!(log = %self.path().display(), reason, "the audit log cannot be written");
        }
        problem.clone_from(&reason);
        match reason {
            Some(reason) if self.options.fail_closed => {
                Err(AuditUnavailable { path: self.path().to_path_buf(), reason })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The encoding of entries, and the entries of the log about itself.
#[derive(Debug)]
struct AuditFormat {
    arguments: ArgumentDetail,
}

impl LineFormat for AuditFormat {
    type Sequence = ChainHead;
    type Entry = AuditEntry;

    fn encode(
        &self,
        entries: &[AuditEntry],
        mut head: ChainHead,
        text: &mut Vec<u8>,
    ) -> io::Result<ChainHead> {
        let time = UtcTime::from(now()).to_string();
        text.reserve(entries.len() * TYPICAL_ENTRY_BYTES);
        for entry in entries {
            let (seq, begin) = (head.seq + 1, text.len());
            let link = EntryLink { seq, time: &time, prev: &head.hash };
            encode_entry(entry, &link, self.arguments, text)?;
            let hash = sha256_hex(text.get(begin..).unwrap_or_default());
            head = ChainHead { seq, hash, ..head };
            text.push(b'\n');
        }
        Ok(head)
    }

    /// The request of an unfinished entry was never answered, because responses are sent after the entry.
    fn torn_line(&self, bytes: usize) -> TornLine<AuditEntry> {
        let mut entry = AuditEntry::new("log_repaired");
        entry.reason =
            Some(format!("{bytes} bytes of a line that was never finished were removed"));
        TornLine::Replace(entry)
    }

    fn pruned_entry(&self, through: u64, last_line: &[u8]) -> Option<AuditEntry> {
        let mut entry = AuditEntry::new("log_pruned");
        entry.reason = Some(format!(
            "numbers up to {through} were older than `log_retention` allows and were removed"
        ));
        entry.removed = Some(RemovedEntries { through, hash: sha256_hex(last_line) });
        Some(entry)
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
