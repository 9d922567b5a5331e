//! Reads a log with its rotated files, once or as it grows.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::fs::{entries_if_exists, parent_dir};
use super::lock::LockError;
use super::log_file::with_head;
use super::version::FileVersion;

/// Longer lines are not lines of a log: writers limit them to less.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// One open file of a log.
#[derive(Debug)]
pub(crate) struct LogSegment {
    pub(crate) path: PathBuf,
    file: File,
    /// Length when it was opened; what is appended later is not read.
    bytes: u64,
    identity: FileVersion,
    pub(crate) modified: Option<SystemTime>,
}

/// One line of a segment.
#[derive(Debug)]
pub(crate) struct LogLine<'a> {
    /// Number within the segment, starting at 1.
    pub(crate) number: u64,
    /// The line without its line feed.
    pub(crate) bytes: &'a [u8],
    /// False for an unfinished line, and for each MiB of a longer one.
    pub(crate) is_complete: bool,
}

impl LogSegment {
    /// Opens a file; `None` if it does not exist (any more).
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = open_if_exists(path)? else { return Ok(None) };
        let metadata = file.metadata()?;
        Ok(Some(Self {
            path: path.to_path_buf(),
            bytes: metadata.len(),
            identity: FileVersion::from_metadata(&metadata).identity(),
            modified: metadata.modified().ok(),
            file,
        }))
    }

    pub(crate) fn read_lines(&self, mut each: impl FnMut(LogLine<'_>)) -> io::Result<()> {
        let mut input = BufReader::new((&self.file).take(self.bytes));
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_complete = line.pop_if(|last| *last == b'\n').is_some();
            each(LogLine { number, bytes: &line, is_complete });
        }
        Ok(())
    }
}

/// Opens all files of a log, oldest first, without its lock. Files that are removed meanwhile are left out.
pub(crate) fn open_log(path: &Path) -> io::Result<Vec<LogSegment>> {
    // Opened first: if the file is rotated meanwhile, it is found again under its new name.
    let current = LogSegment::open(path)?;
    let mut segments = Vec::new();
    for (_, rotated) in rotated_files(path)? {
        segments.extend(LogSegment::open(&rotated)?);
    }
    let current =
        current.filter(|current| segments.iter().all(|one| one.identity != current.identity));
    segments.extend(current);
    Ok(segments)
}

/// Opens all files of a log and reads the head while holding the lock; the lines are read without it.
///
/// Blocks; waits for the lock at most `timeout`. The head is `None` if there is none.
pub(crate) fn snapshot_log(
    path: &Path,
    timeout: Duration,
) -> Result<(Option<Vec<u8>>, Vec<LogSegment>), LockError> {
    with_head(path, timeout, |head| Ok((head, open_log(path)?)))
}

/// Reads the last line of a file, without its line feed.
pub(super) fn last_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(MAX_LINE_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    end.pop_if(|last| *last == b'\n');
    let start = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(end.split_off(start))
}

/// Returns the rotated files of a log with the number of their last line, oldest first.
pub(super) fn rotated_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let dir = parent_dir(path);
    let mut found = Vec::new();
    for entry in entries_if_exists(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| rotated_number(name, path));
        found.extend(number.map(|number| (number, dir.join(&name))));
    }
    found.sort();
    Ok(found)
}

/// Returns the path that a log is renamed to: `audit.jsonl` becomes `audit.000000000042.jsonl` after line 42.
pub(super) fn rotated_path(path: &Path, last: u64) -> PathBuf {
    let (stem, extension) = name_parts(path);
    path.with_file_name(format!("{stem}.{last:012}.{extension}"))
}

/// Parses the number in the name of a rotated file.
fn rotated_number(name: &str, log: &Path) -> Option<u64> {
    let (stem, extension) = name_parts(log);
    let number = name.strip_prefix(stem)?.strip_prefix('.')?;
    let number = number.strip_suffix(extension)?.strip_suffix('.')?;
    (number.len() == 12).then(|| number.parse().ok()).flatten()
}

/// Returns stem and extension, for example `audit` and `jsonl`.
fn name_parts(path: &Path) -> (&str, &str) {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or("audit");
    (stem, path.extension().and_then(OsStr::to_str).unwrap_or("log"))
}

/// The field that every line of a log has.
#[derive(Deserialize)]
struct NumberedLine {
    seq: u64,
}

/// Read position in a log that grows, across rotations.
#[derive(Debug)]
pub(crate) struct LogFollower {
    path: PathBuf,
    input: Option<BufReader<File>>,
    partial: String,
    /// Number of the last returned line.
    last_seq: u64,
}

impl LogFollower {
    /// Starts at the end of the log, or at its start if the log does not exist yet.
    pub(crate) fn at_end(path: &Path) -> io::Result<Self> {
        let mut tail =
            Self { path: path.to_path_buf(), input: None, partial: String::new(), last_seq: 0 };
        tail.reopen(&mut Vec::new())?;
        Ok(tail)
    }

    /// Returns the complete lines written since the last call. Blocks on disk.
    pub(crate) fn next_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.read_complete_lines(&mut lines)?;
        if !self.is_current() {
            // The log was rotated, possibly more than once: read the rotated files in between to their end.
            for (number, path) in rotated_files(&self.path)? {
                if number > self.last_seq {
                    self.input = open_if_exists(&path)?.map(BufReader::new);
                    self.read_complete_lines(&mut lines)?;
                }
            }
            self.reopen(&mut lines)?;
        }
        Ok(lines)
    }

    fn reopen(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        self.input = open_if_exists(&self.path)?.map(BufReader::new);
        self.read_complete_lines(lines)
    }

    fn read_complete_lines(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        while input.read_line(&mut self.partial)? > 0 {
            if !self.partial.ends_with('\n') {
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            let Ok(place) = serde_json::from_str::<NumberedLine>(&line) else { continue };
            if place.seq > self.last_seq {
                self.last_seq = place.seq;
                lines.push(line.trim_end_matches('\n').to_owned());
            }
        }
        Ok(())
    }

    fn is_current(&self) -> bool {
        let open = self.input.as_ref().and_then(|input| input.get_ref().metadata().ok());
        let open = open.map(|open| FileVersion::from_metadata(&open).identity());
        open == FileVersion::read(&self.path).map(FileVersion::identity)
    }
}

fn open_if_exists(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
