//! Verification of the audit log's hash chain.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chain::{ChainHead, ChainLink, GENESIS_HASH, sha256_hex};
use crate::api::{AuditFault, AuditVerification};
use crate::store::{LockError, LogLine, snapshot_log};

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_PROBLEMS: usize = 100;
const NO_HEAD: &str = "the note beside it (`.head`) is missing or unreadable, so a cut at the end cannot be ruled out";

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verification {
    /// Number of lines read.
    pub lines: u64,
    /// Hash of the newest entry. If stored elsewhere, it proves later that the log still contains this entry.
    pub newest_hash: String,
    /// Deviations found, at most 100; empty for an intact log.
    pub problems: Vec<ChainProblem>,
}

/// A deviation in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainProblem {
    pub file: PathBuf,
    /// Line number, starting at 1; 0 for the file as a whole.
    pub line: u64,
    pub kind: ChainFault,
    /// Description in one line.
    pub message: String,
}

/// Kinds of deviations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainFault {
    /// The line, or the hash in the next one, was changed.
    Changed,
    /// Entries are missing.
    Missing,
    /// The entry has a lower number than expected.
    Reordered,
    /// Entries at the end are missing.
    Truncated,
    /// The line is not an audit entry.
    Unreadable,
    /// The file or its `.head` was replaced.
    Replaced,
}

impl Verification {
    pub(crate) fn to_object(&self) -> AuditVerification {
        AuditVerification {
            ok: self.problems.is_empty(),
            lines: self.lines,
            newest_hash: self.newest_hash.clone(),
            problems: self.problems.iter().map(ChainProblem::to_object).collect(),
        }
    }
}

impl ChainProblem {
    fn to_object(&self) -> AuditFault {
        AuditFault {
            code: self.kind.as_str().to_owned(),
            message: self.message.clone(),
            file: self.file.to_string_lossy().into_owned(),
            line: (self.line > 0).then_some(self.line),
        }
    }
}

impl ChainFault {
    fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Reordered => "reordered",
            Self::Truncated => "truncated",
            Self::Unreadable => "unreadable",
            Self::Replaced => "replaced",
        }
    }
}

/// Verifies the whole log, rotated files first, and calls `each` for every line.
///
/// The lock is held only while the files are opened; waiting for it takes at most 5 s.
pub(crate) fn verify(path: &Path, mut each: impl FnMut(&str)) -> Result<Verification, LockError> {
    let (note, segments) = snapshot_log(path, LOCK_TIMEOUT)?;
    let note = note.unwrap_or_default();
    let head: Option<ChainHead> = serde_json::from_slice(&note).ok();
    let mut reader = ChainReader::new(head.as_ref().map_or(0, |head| head.seq));
    for segment in segments {
        segment.read_lines(|line| {
            reader.check_line(&segment.path, &line);
            each(&String::from_utf8_lossy(line.bytes));
        })?;
    }
    reader.report_late_start();
    match head {
        Some(head) => reader.compare_with(path, &head),
        // Before the first entry the head is missing or empty.
        None if reader.verification.lines == 0 && note.is_empty() => {}
        None => reader.add_problem(path, 0, ChainFault::Replaced, NO_HEAD.to_owned()),
    }
    Ok(reader.verification)
}

struct ChainReader {
    /// Number and hash of the previous entry.
    seq: u64,
    hash: String,
    /// Hash of the entry that the head names, once read.
    head_seq: u64,
    hash_at_head: Option<String>,
    /// Set if the first entry is not number 1: a later `log_pruned` entry must explain that.
    late_start: Option<LateStart>,
    verification: Verification,
}

/// A first remaining entry with a number above 1.
struct LateStart {
    file: PathBuf,
    link: ChainLink,
}

impl ChainReader {
    fn new(head_seq: u64) -> Self {
        let newest_hash = GENESIS_HASH.to_owned();
        let verification = Verification { lines: 0, newest_hash, problems: Vec::new() };
        Self {
            seq: 0,
            hash: GENESIS_HASH.to_owned(),
            head_seq,
            hash_at_head: None,
            late_start: None,
            verification,
        }
    }

    fn check_line(&mut self, path: &Path, line: &LogLine<'_>) {
        if !line.is_complete {
            let message = "a line that was never finished, or is longer than any";
            self.add_problem(path, line.number, ChainFault::Unreadable, message.to_owned());
        }
        self.verification.lines += 1;
        let hash = sha256_hex(line.bytes);
        if let Ok(place) = serde_json::from_slice::<ChainLink>(line.bytes) {
            self.check_link(path, line.number, place);
        } else {
            let message = "this is no audit line".to_owned();
            self.add_problem(path, line.number, ChainFault::Unreadable, message);
            self.seq += 1;
        }
        if self.seq == self.head_seq {
            self.hash_at_head = Some(hash.clone());
        }
        self.verification.newest_hash.clone_from(&hash);
        self.hash = hash;
    }

    fn check_link(&mut self, path: &Path, number: u64, place: ChainLink) {
        let expected = self.seq + 1;
        self.explain_late_start(&place);
        if self.verification.lines == 1 && place.seq > 1 {
            self.seq = place.seq;
            self.late_start = Some(LateStart { file: path.to_path_buf(), link: place });
            return;
        }
        if place.seq < expected {
            let message = format!("number {} stands where {expected} belongs", place.seq);
            self.add_problem(path, number, ChainFault::Reordered, message);
        } else if place.seq > expected {
            let last = place.seq - 1;
            let message = if last == expected {
                format!("number {expected} is missing before it")
            } else {
                format!("numbers {expected} to {last} are missing before it")
            };
            self.add_problem(path, number, ChainFault::Missing, message);
        } else if place.prev != self.hash {
            let message = match self.seq {
                0 => "the first line carries the hash of a line before it".to_owned(),
                before => format!(
                    "number {before} was changed, or the hash of it that number {expected} carries"
                ),
            };
            self.add_problem(path, number, ChainFault::Changed, message);
        }
        self.seq = place.seq;
    }

    /// Accepts the late start if a `log_pruned` entry covers it. Some of the removed files may still exist.
    fn explain_late_start(&mut self, place: &ChainLink) {
        let (Some(start), Some(removed)) = (&self.late_start, &place.removed) else { return };
        let last_missing = start.link.seq - 1;
        let explained = removed.through > last_missing
            || (removed.through == last_missing && removed.hash == start.link.prev);
        if explained {
            self.late_start = None;
        }
    }

    /// Reports a late start that no entry explains.
    fn report_late_start(&mut self) {
        let Some(LateStart { file, link: place }) = self.late_start.take() else { return };
        let message = match place.seq - 1 {
            1 => "number 1 is missing before it".to_owned(),
            last => format!("numbers 1 to {last} are missing before it"),
        };
        self.add_problem(&file, 1, ChainFault::Missing, message);
    }

    /// Compares the last entry with the head.
    fn compare_with(&mut self, path: &Path, head: &ChainHead) {
        if self.seq < head.seq {
            let message =
                format!("the log ends with number {}, but {} was written", self.seq, head.seq);
            self.add_problem(path, 0, ChainFault::Truncated, message);
        } else if head.seq > 0 && self.hash_at_head.as_deref() != Some(head.hash.as_str()) {
            let message = format!("number {} is not the line that was written last", head.seq);
            self.add_problem(path, 0, ChainFault::Changed, message);
        }
    }

    fn add_problem(&mut self, path: &Path, line: u64, kind: ChainFault, message: String) {
        if self.verification.problems.len() < MAX_PROBLEMS {
            let file = path.to_path_buf();
            self.verification.problems.push(ChainProblem { file, line, kind, message });
        }
    }
}
