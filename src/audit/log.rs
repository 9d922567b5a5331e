//! The audit log: one line for every request, written before its answer is sent, each chained to the one before.
//!
//! Several processes write to one file; the lock, the file and the note beside it are `base`'s. Lines are handed to
//! the system in one write each and not forced to the disk: a crash of Adjutant loses none, a crash of the machine
//! may lose the newest, and `verify` says so.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::chain::{Head, Place, Removed, hash_of, rotated_name};
use super::line::{ArgumentDetail, AuditLine, Link, USUAL_LINE, encode};
use super::verify::{MAX_LINE, rotated_files};
use crate::base::{LockBusy, SharedLog, SharedTail, now};

const PATIENCE: Duration = Duration::from_secs(5);
/// 64 MiB, some 150,000 lines.
const ROTATE_BYTES: u64 = 64 << 20;
/// A line is far shorter than this; more behind the note than that was not written by us.
const MAX_RECOVERY: u64 = 64 << 20;

/// How the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Whether a request whose line cannot be written is refused.
    pub fail_closed: bool,
    /// The size at which a new file is begun.
    pub rotate_bytes: u64,
    /// How much of the arguments is written.
    pub arguments: ArgumentDetail,
    /// Full files that are older are removed.
    pub retention: Option<Duration>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            fail_closed: true,
            rotate_bytes: ROTATE_BYTES,
            arguments: ArgumentDetail::Never,
            retention: None,
        }
    }
}

/// The audit log of one process; share it by reference.
#[derive(Debug)]
pub struct AuditLog {
    log: SharedLog,
    options: AuditOptions,
    problem: Mutex<Option<String>>,
    /// Whether this process has looked for files that are too old.
    pruned: AtomicBool,
    /// The note that this process last wrote, and what it says.
    last: Mutex<Option<(Vec<u8>, Head)>>,
}

/// The log could not be written, so the request is refused.
#[derive(Debug, thiserror::Error)]
#[error("the audit log `{}` cannot be written: {reason}; calls stop until it can", path.display())]
pub struct AuditUnavailable {
    /// The log.
    pub path: PathBuf,
    /// What the system said.
    pub reason: String,
}

impl AuditLog {
    /// Names the log. It is opened with its first line, so that a server can start and say what is wrong.
    pub fn open(path: &Path, options: AuditOptions) -> Self {
        Self {
            log: SharedLog::new(path.to_path_buf()),
            options,
            problem: Mutex::new(None),
            pruned: AtomicBool::new(false),
            last: Mutex::new(None),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// Whether the arguments of requests are wanted at all.
    pub fn wants_arguments(&self) -> bool {
        self.options.arguments != ArgumentDetail::Never
    }

    /// Why the last line could not be written, if it could not.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes one line. Call it before the answer is sent, and do not send the answer where this fails.
    pub fn record(&self, line: &AuditLine) -> Result<(), AuditUnavailable> {
        self.record_all(std::slice::from_ref(line))
    }

    /// Writes several lines at once, all of them or none; the price is that of one.
    pub fn record_all(&self, lines: &[AuditLine]) -> Result<(), AuditUnavailable> {
        let written = self.log.exclusively(PATIENCE, |tail| self.append(tail, lines));
        let reason = written.err().map(|error: LockBusy| error.to_string());
        self.note_problem(reason.as_deref());
        match reason {
            Some(reason) if self.options.fail_closed => {
                Err(AuditUnavailable { path: self.path().to_path_buf(), reason })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn note_problem(&self, reason: Option<&str>) {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if let (None, Some(reason)) = (&*problem, reason) {
            tracing::error!(log = %self.path().display(), reason, "the audit log cannot be written");
        }
        *problem = reason.map(str::to_owned);
    }

    fn append(&self, tail: &mut SharedTail<'_>, lines: &[AuditLine]) -> io::Result<()> {
        let mut head = self.head(tail)?;
        if head.bytes > 0 && head.bytes >= self.options.rotate_bytes {
            tail.rotate_to(&rotated_path(self.path(), head.seq))?;
            head.bytes = 0;
            // At once: a note that speaks of the old file would make the new one look cut.
            tail.set_note(&serde_json::to_vec(&head)?)?;
            self.pruned.store(false, Ordering::Relaxed);
        }
        if !self.pruned.swap(true, Ordering::Relaxed) {
            head = self.prune(tail, head)?;
        }
        self.write(tail, head, lines).map(drop)
    }

    /// Removes full files that are too old. The line that says so comes first: after a crash between the two, files
    /// are left that may go, and none is gone of which the log does not know.
    fn prune(&self, tail: &mut SharedTail<'_>, head: Head) -> io::Result<Head> {
        let Some(retention) = self.options.retention else { return Ok(head) };
        let mut files = rotated_files(self.path())?;
        let old = files.iter().take_while(|(_, file)| is_older(file, retention)).count();
        files.truncate(old);
        let Some((through, newest)) = files.last() else { return Ok(head) };
        let mut line = AuditLine::new("log_pruned");
        line.reason = Some(format!(
            "numbers up to {through} were older than `log_retention` allows and were removed"
        ));
        line.removed = Some(Removed { through: *through, hash: hash_of(&last_line(newest)?) });
        let head = self.write(tail, head, &[line])?;
        for (_, file) in &files {
            tail.remove_rotated(file)?;
        }
        Ok(head)
    }

    fn write(
        &self,
        tail: &mut SharedTail<'_>,
        mut head: Head,
        lines: &[AuditLine],
    ) -> io::Result<Head> {
        let (before, time) = (head.bytes, now().to_string());
        let mut text = Vec::with_capacity(lines.len() * USUAL_LINE);
        for line in lines {
            let position = Link { seq: head.seq + 1, time: &time, prev: &head.hash };
            let begin = text.len();
            encode(line, &position, self.options.arguments, &mut text)?;
            head = head.after(text.get(begin..).unwrap_or_default());
            text.push(b'\n');
        }
        tail.append(before, &text)?;
        let note = serde_json::to_vec(&head)?;
        tail.set_note(&note)?;
        *self.last() = Some((note, head.clone()));
        Ok(head)
    }

    fn last(&self) -> MutexGuard<'_, Option<(Vec<u8>, Head)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the chain: what the note says, and where a writer died between line and note, what the file says.
    fn head(&self, tail: &mut SharedTail<'_>) -> io::Result<Head> {
        let note = tail.note()?;
        let ours = self.last().take().filter(|(ours, _)| *ours == note);
        if let Some((_, head)) = ours.filter(|_| !tail.is_due()) {
            // Nobody has written since we did.
            return Ok(head);
        }
        tail.follow_name()?;
        let bytes = tail.len()?;
        match Head::read(&note) {
            Some(head) if head.bytes == bytes => Ok(head),
            // Cut from outside: go on from the note, so that `verify` finds the gap.
            Some(head) if head.bytes > bytes => Ok(Head { bytes, ..head }),
            Some(head) => self.recover(tail, head),
            None => self.recover(tail, Head::start()),
        }
    }

    /// Takes in the lines behind the note, and takes out a last one that was never finished.
    fn recover(&self, tail: &mut SharedTail<'_>, head: Head) -> io::Result<Head> {
        let from = head.bytes.max(tail.len()?.saturating_sub(MAX_RECOVERY));
        let text = tail.read_from(from)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut head = text
            .get(..whole)
            .unwrap_or_default()
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .fold(head, |head, line| follow(&head, line));
        head.bytes = from + whole as u64;
        let torn = text.len() - whole;
        if torn == 0 {
            return Ok(head);
        }
        // Its request was never answered: the answer waits for the line.
        tail.truncate(head.bytes)?;
        let mut note = AuditLine::new("log_repaired");
        note.reason = Some(format!("{torn} bytes of a line that was never finished were removed"));
        self.write(tail, head, &[note])
    }
}

/// The head after a line that is already there; a line that is none still counts, for `verify` to find.
fn follow(head: &Head, line: &[u8]) -> Head {
    let seq = serde_json::from_slice::<Place>(line).map_or(head.seq + 1, |place| place.seq);
    Head { seq, hash: hash_of(line), bytes: head.bytes }
}

/// Where a full log goes: beside it, named by the number of its last line.
fn rotated_path(path: &Path, last: u64) -> PathBuf {
    let (stem, extension) = name_parts(path);
    path.with_file_name(rotated_name(stem, extension, last))
}

/// A full file is as old as its last line. Doubt keeps it.
fn is_older(file: &Path, retention: Duration) -> bool {
    let written = fs::metadata(file).and_then(|data| data.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > retention))
}

/// The last line of a file, without its line feed.
fn last_line(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(file)?;
    let from = file.metadata()?.len().saturating_sub(MAX_LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    end.pop_if(|last| *last == b'\n');
    let start = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(end.split_off(start))
}

/// `audit` and `jsonl`.
pub(super) fn name_parts(path: &Path) -> (&str, &str) {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or("audit");
    (stem, path.extension().and_then(OsStr::to_str).unwrap_or("log"))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
