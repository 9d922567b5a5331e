//! Append-only JSONL log shared by several processes: numbers, recovery, rotation, retention.
//!
//! A line is in the file when [`AppendLog::append`] returns. It is not fsynced: it survives a crash of the process, not
//! of the machine. `<file>.head` says where the log ends; bytes behind that are lines whose writer died before it wrote
//! the head, and the next writer takes them over. An unfinished last line is handled as the [`LineFormat`] says.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault_point::fault_point;
use super::fs::remove_file;
use super::lock::LockError;
use super::log_file::{LockWait, LockedLogFile, LogFile};
use super::log_reader::{last_line, rotated_files, rotated_path};
use crate::util::Mutex;

/// Bytes read for recovery behind the committed length. We write far less at once; more was written by others.
const MAX_RECOVERY_BYTES: u64 = 64 << 20;

/// State after the newest line of a log, stored as JSON in `<file>.head`. `default()` is the state before the first.
pub(crate) trait Sequence: Clone + Default + Serialize + DeserializeOwned {
    /// Number of the newest line; 0 before the first.
    fn number(&self) -> u64;
    /// Length of the file up to and including the newest line.
    fn bytes(&self) -> u64;
    /// Returns the same state for another length of the file; 0 for a new file.
    #[must_use]
    fn with_bytes(self, bytes: u64) -> Self;
    /// Returns the state after a line that is already in the file, given without its line feed.
    #[must_use]
    fn after(self, line: &[u8]) -> Self;
}

/// The lines of one log, and the lines that the log writes about itself.
pub(crate) trait LineFormat {
    type Sequence: Sequence;
    /// Content of a line without its place in the sequence.
    type Entry;

    /// Appends one line per entry to `text` and returns the state after them; the length is set by the log.
    fn encode(
        &self,
        entries: &[Self::Entry],
        sequence: Self::Sequence,
        text: &mut Vec<u8>,
    ) -> io::Result<Self::Sequence>;

    /// Returns true if the current file must be rotated whatever its size.
    fn is_file_complete(&self, _sequence: &Self::Sequence) -> bool {
        false
    }

    /// Returns how to go on behind an unfinished line of `bytes` bytes.
    fn torn_line(&self, bytes: usize) -> TornLine<Self::Entry>;

    /// Returns an entry to be written before all lines up to number `through` are removed; `last_line` is that line.
    fn pruned_entry(&self, _through: u64, _last_line: &[u8]) -> Option<Self::Entry> {
        None
    }

    /// Called after a rotation and after files were removed, if there is a retention; `oldest` is the first file left.
    fn retention_applied(&self, _oldest: &Path) {}
}

/// Handling of a last line that was never finished.
#[derive(Debug)]
pub(crate) enum TornLine<E> {
    /// End it with a line feed.
    Terminate,
    /// Remove it and write this entry instead.
    Replace(E),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Size at which the file is rotated.
    pub(crate) max_bytes: u64,
    /// Rotated files last written longer ago are removed; `None` keeps all.
    pub(crate) retention: Option<Duration>,
    /// Wait of [`AppendLog::append`] for the lock.
    pub(crate) lock_timeout: Duration,
}

/// A log that several processes append to. Thread-safe.
#[derive(Debug)]
pub(crate) struct AppendLog<F: LineFormat> {
    file: LogFile,
    format: F,
    options: LogOptions,
    state: Mutex<LogState<F::Sequence>>,
}

#[derive(Debug)]
struct LogState<S> {
    /// The head that this process wrote last, encoded and decoded.
    written: Option<(Vec<u8>, S)>,
    /// True once this process has removed expired files since the last rotation.
    is_pruned: bool,
}

impl<F: LineFormat> AppendLog<F> {
    /// Creates the handle; the files are opened with the first line.
    pub(crate) fn new(path: PathBuf, format: F, options: LogOptions) -> Self {
        let state = Mutex::new(LogState { written: None, is_pruned: false });
        Self { file: LogFile::new(path), format, options, state }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends lines with one lock and one write, all or none. Blocks; waits for the lock at most `lock_timeout`.
    pub(crate) fn append(&self, entries: &[F::Entry]) -> Result<(), LockError> {
        let wait = LockWait::AtMost(self.options.lock_timeout);
        self.with_lock(wait, |log| log.append(entries))
    }

    /// Appends lines like [`Self::append`]; returns false if it would have to wait for the lock.
    pub(crate) fn try_append(&self, entries: &[F::Entry]) -> io::Result<bool> {
        match self.with_lock(LockWait::Never, |log| log.append(entries)) {
            Ok(()) => Ok(true),
            Err(LockError::Held { .. }) => Ok(false),
            Err(LockError::Io(error)) => Err(error),
        }
    }

    /// Runs `work` while holding the lock.
    pub(crate) fn with_lock<R>(
        &self,
        wait: LockWait,
        work: impl FnOnce(&mut LockedLog<'_, '_, F>) -> io::Result<R>,
    ) -> Result<R, LockError> {
        self.file.with_lock(wait, |file| {
            let mut state = self.state.lock();
            work(&mut LockedLog { log: self, file, state: &mut state })
        })
    }
}

/// Write access while the lock is held.
#[derive(Debug)]
pub(crate) struct LockedLog<'l, 'f, F: LineFormat> {
    log: &'l AppendLog<F>,
    file: &'l mut LockedLogFile<'f>,
    state: &'l mut LogState<F::Sequence>,
}

impl<F: LineFormat> LockedLog<'_, '_, F> {
    /// Appends lines with one write, all or none. Rotates the log before it if that is due.
    pub(crate) fn append(&mut self, entries: &[F::Entry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut sequence = self.current()?;
        if self.is_rotation_due(&sequence) {
            sequence = self.rotate(sequence)?;
        }
        if !std::mem::replace(&mut self.state.is_pruned, true) {
            sequence = self.prune(sequence)?;
        }
        self.write(entries, sequence).map(drop)
    }

    /// Returns the end of the log: from the head, or from the file if the head is not up to date.
    fn current(&mut self) -> io::Result<F::Sequence> {
        let head = self.file.head()?;
        let own = self.state.written.take().filter(|(encoded, _)| *encoded == head);
        if let Some((_, sequence)) = own.filter(|_| !self.file.needs_recheck())
            && sequence.bytes() == self.file.len()?
        {
            // No other process has written since; one that died before it wrote the head would have changed the length.
            return Ok(sequence);
        }
        self.file.reopen_if_replaced()?;
        let bytes = self.file.len()?;
        match serde_json::from_slice::<F::Sequence>(&head) {
            Ok(sequence) if sequence.bytes() == bytes => Ok(sequence),
            Ok(sequence) => self.recover(sequence, bytes),
            Err(_) => self.recover(self.end_of_rotated_files()?, bytes),
        }
    }

    /// Returns the end of the newest rotated file; the state before the first line if there is none.
    fn end_of_rotated_files(&self) -> io::Result<F::Sequence> {
        let start = F::Sequence::default();
        match rotated_files(self.log.path())?.last() {
            Some((_, newest)) => Ok(start.after(&last_line(newest)?).with_bytes(0)),
            None => Ok(start),
        }
    }

    /// Takes over the lines behind the head, handles an unfinished one, and corrects the head.
    fn recover(&mut self, sequence: F::Sequence, bytes: u64) -> io::Result<F::Sequence> {
        // If lines are missing, the sequence goes on from the head all the same, so that the gap shows.
        let is_cut = sequence.bytes() > bytes;
        let known = if is_cut { 0 } else { sequence.bytes() };
        let from = known.max(bytes.saturating_sub(MAX_RECOVERY_BYTES));
        let text = self.file.read_from(from)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let (whole, torn) = text.split_at_checked(whole).unwrap_or_default();
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let sequence = match is_cut {
            true => sequence,
            false => lines.fold(sequence, F::Sequence::after),
        };
        let sequence = sequence.with_bytes(from + whole.len() as u64);
        let sequence = if torn.is_empty() { sequence } else { self.repair(sequence, torn.len())? };
        // A later recovery must not see the old length, from which the new lines would look like old ones.
        self.file.write_head(&serde_json::to_vec(&sequence)?)?;
        Ok(sequence)
    }

    fn repair(&mut self, sequence: F::Sequence, torn: usize) -> io::Result<F::Sequence> {
        let end = sequence.bytes();
        match self.log.format.torn_line(torn) {
            TornLine::Terminate => {
                self.file.append(b"\n")?;
                Ok(sequence.with_bytes(end + torn as u64 + 1))
            }
            TornLine::Replace(entry) => {
                self.file.truncate(end)?;
                self.write(&[entry], sequence)
            }
        }
    }

    fn is_rotation_due(&self, sequence: &F::Sequence) -> bool {
        let LogOptions { max_bytes, .. } = self.log.options;
        sequence.bytes() > 0
            && (sequence.bytes() >= max_bytes || self.log.format.is_file_complete(sequence))
    }

    fn rotate(&mut self, sequence: F::Sequence) -> io::Result<F::Sequence> {
        self.file.rotate_to(&rotated_path(self.log.path(), sequence.number()))?;
        let sequence = sequence.with_bytes(0);
        self.file.write_head(&serde_json::to_vec(&sequence)?)?;
        self.state.is_pruned = false;
        Ok(sequence)
    }

    /// Removes expired rotated files.
    ///
    /// The entry about it is written first: a crash in between leaves files that can be removed later, but no file
    /// disappears without an entry.
    fn prune(&mut self, mut sequence: F::Sequence) -> io::Result<F::Sequence> {
        let Some(retention) = self.log.options.retention else { return Ok(sequence) };
        let files = rotated_files(self.log.path())?;
        let expired = files.iter().take_while(|(_, file)| is_expired(file, retention)).count();
        let (expired, kept) = files.split_at_checked(expired).unwrap_or_default();
        let is_new_file = sequence.bytes() == 0;
        if let Some((through, newest)) = expired.last()
            && let Some(entry) = self.log.format.pruned_entry(*through, &last_line(newest)?)
        {
            sequence = self.write(&[entry], sequence)?;
        }
        for (_, file) in expired {
            remove_file(file)?;
            fault_point("log: expired file removed");
        }
        if is_new_file || !expired.is_empty() {
            self.log
                .format
                .retention_applied(kept.first().map_or(self.log.path(), |(_, file)| file));
        }
        Ok(sequence)
    }

    fn write(&mut self, entries: &[F::Entry], sequence: F::Sequence) -> io::Result<F::Sequence> {
        let (before, mut text) = (sequence.bytes(), Vec::new());
        let sequence = self.log.format.encode(entries, sequence, &mut text)?;
        let sequence = sequence.with_bytes(before + text.len() as u64);
        let head = serde_json::to_vec(&sequence)?;
        let written = self.file.append(&text).and_then(|()| self.file.write_head(&head));
        // Lines that are reported as not written must not be in the file.
        written.inspect_err(|_| drop(self.file.truncate(before)))?;
        self.state.written = Some((head, sequence.clone()));
        Ok(sequence)
    }
}

/// Returns true if the last entry is older than `retention`; false if its age cannot be determined.
fn is_expired(file: &Path, retention: Duration) -> bool {
    let written = fs::metadata(file).and_then(|data| data.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > retention))
}
#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
