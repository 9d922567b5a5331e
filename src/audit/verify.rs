//! Reads the log as it was written and says where it is not.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::audit::name_parts;
use super::chain::{BEFORE_THE_FIRST, Head, Place, hash_of, rotated_number};
use crate::base::{LockBusy, snapshot_shared_log};

const PATIENCE: Duration = Duration::from_secs(5);
pub(super) const MAX_LINE: u64 = 1 << 20;
const MAX_PROBLEMS: usize = 100;
const NO_NOTE: &str = "the note beside it (`.head`) is missing or unreadable, so a cut at the end cannot be ruled out";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// How many lines were read.
    pub lines: u64,
    /// The hash of the newest: keep it elsewhere, and a later log must still have it.
    pub newest_hash: String,
    /// What is wrong; empty if the log is as it was written.
    pub problems: Vec<ChainProblem>,
}

/// One place where the log is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainProblem {
    /// The file.
    pub file: PathBuf,
    /// The line in that file, counted from one; 0 for the file as a whole.
    pub line: u64,
    /// `changed`, `missing`, `reordered`, `truncated`, `unreadable`, `replaced`.
    pub kind: ChainFault,
    /// What was seen, one line.
    pub message: String,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainFault {
    /// A line, or the hash that the next one carries, is not what was written.
    Changed,
    /// Lines are gone.
    Missing,
    /// A line stands where another belongs.
    Reordered,
    /// The end is gone.
    Truncated,
    /// A line is no audit line.
    Unreadable,
    /// The file, or the note beside it, is not the one that was written.
    Replaced,
}

/// Reads the whole log, rotated files first, and gives each line to `each`.
pub fn verify(path: &Path, mut each: impl FnMut(&str)) -> Result<Verification, LockBusy> {
    let snapshot = snapshot_shared_log(path, PATIENCE, || {
        Ok(rotated_files(path)?.into_iter().map(|(_, path)| path).collect())
    })?;
    let note = snapshot.note.unwrap_or_default();
    let head = Head::read(&note);
    let mut reader = Reader::new(head.as_ref().map_or(0, |head| head.seq));
    for (file, open, bytes) in snapshot.files {
        reader.file(&file, open, bytes, &mut each)?;
    }
    reader.finish();
    match head {
        Some(head) => reader.compare_with(path, &head),
        // Before the first line there is no note, or an empty one.
        None if reader.verification.lines == 0 && note.is_empty() => {}
        None => reader.problem(path, 0, ChainFault::Replaced, NO_NOTE.to_owned()),
    }
    Ok(reader.verification)
}

/// The rotated files of a log, oldest first, each with the number of its last line.
pub(super) fn rotated_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (stem, extension) = name_parts(path);
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| rotated_number(name, stem, extension));
        found.extend(number.map(|number| (number, folder.join(&name))));
    }
    found.sort();
    Ok(found)
}

struct Reader {
    /// The number and hash of the line before.
    seq: u64,
    hash: String,
    /// The hash of the line that the note speaks of, once it was met.
    noted_seq: u64,
    noted_hash: Option<String>,
    /// The first line, where it is not the first of all: a later line must say what became of those before it.
    late_start: Option<LateStart>,
    verification: Verification,
}

/// Lines before the first one that is left.
struct LateStart {
    file: PathBuf,
    place: Place,
}

impl Reader {
    fn new(noted_seq: u64) -> Self {
        let newest_hash = BEFORE_THE_FIRST.to_owned();
        let verification = Verification { lines: 0, newest_hash, problems: Vec::new() };
        Self {
            seq: 0,
            hash: BEFORE_THE_FIRST.to_owned(),
            noted_seq,
            noted_hash: None,
            late_start: None,
            verification,
        }
    }

    fn file(
        &mut self,
        path: &Path,
        file: File,
        bytes: u64,
        each: &mut impl FnMut(&str),
    ) -> io::Result<()> {
        let mut input = BufReader::new(file.take(bytes));
        for number in 1.. {
            let mut line = Vec::new();
            if (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let whole = line.pop_if(|last| *last == b'\n').is_some();
            if !whole {
                let message = "a line that was never finished, or is longer than any";
                self.problem(path, number, ChainFault::Unreadable, message.to_owned());
            }
            self.line(path, number, &line);
            each(&String::from_utf8_lossy(&line));
        }
        Ok(())
    }

    fn line(&mut self, path: &Path, number: u64, line: &[u8]) {
        self.verification.lines += 1;
        let hash = hash_of(line);
        if let Ok(place) = serde_json::from_slice::<Place>(line) {
            self.place(path, number, place);
        } else {
            let message = "this is no audit line".to_owned();
            self.problem(path, number, ChainFault::Unreadable, message);
            self.seq += 1;
        }
        if self.seq == self.noted_seq {
            self.noted_hash = Some(hash.clone());
        }
        self.verification.newest_hash.clone_from(&hash);
        self.hash = hash;
    }

    fn place(&mut self, path: &Path, number: u64, place: Place) {
        let expected = self.seq + 1;
        self.note_removed(&place);
        if self.verification.lines == 1 && place.seq > 1 {
            self.seq = place.seq;
            self.late_start = Some(LateStart { file: path.to_path_buf(), place });
            return;
        }
        if place.seq < expected {
            let message = format!("number {} stands where {expected} belongs", place.seq);
            self.problem(path, number, ChainFault::Reordered, message);
        } else if place.seq > expected {
            let last = place.seq - 1;
            let message = if last == expected {
                format!("number {expected} is missing before it")
            } else {
                format!("numbers {expected} to {last} are missing before it")
            };
            self.problem(path, number, ChainFault::Missing, message);
        } else if place.prev != self.hash {
            let message = match self.seq {
                0 => "the first line carries the hash of a line before it".to_owned(),
                before => format!(
                    "number {before} was changed, or the hash of it that number {expected} carries"
                ),
            };
            self.problem(path, number, ChainFault::Changed, message);
        }
        self.seq = place.seq;
    }

    /// A line that says that older ones were removed explains a late start. Of several files some may still be there.
    fn note_removed(&mut self, place: &Place) {
        let (Some(start), Some(removed)) = (&self.late_start, &place.removed) else { return };
        let last_missing = start.place.seq - 1;
        let explained = removed.through > last_missing
            || (removed.through == last_missing && removed.hash == start.place.prev);
        if explained {
            self.late_start = None;
        }
    }

    /// A beginning that nobody explained is a gap.
    fn finish(&mut self) {
        let Some(LateStart { file, place }) = self.late_start.take() else { return };
        let message = match place.seq - 1 {
            1 => "number 1 is missing before it".to_owned(),
            last => format!("numbers 1 to {last} are missing before it"),
        };
        self.problem(&file, 1, ChainFault::Missing, message);
    }

    /// Holds what was read against the note beside the file.
    fn compare_with(&mut self, path: &Path, head: &Head) {
        if self.seq < head.seq {
            let message =
                format!("the log ends with number {}, but {} was written", self.seq, head.seq);
            self.problem(path, 0, ChainFault::Truncated, message);
        } else if head.seq > 0 && self.noted_hash.as_deref() != Some(head.hash.as_str()) {
            let message = format!("number {} is not the line that was written last", head.seq);
            self.problem(path, 0, ChainFault::Changed, message);
        }
    }

    fn problem(&mut self, path: &Path, line: u64, kind: ChainFault, message: String) {
        if self.verification.problems.len() < MAX_PROBLEMS {
            let file = path.to_path_buf();
            self.verification.problems.push(ChainProblem { file, line, kind, message });
        }
    }
}
