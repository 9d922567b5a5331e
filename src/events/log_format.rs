//! The file of events: several processes append to it, every line has a number, and a full or old file gives way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::audit::name_parts;
use super::chain::rotated_name;
use super::event::number;
use super::events::EventOptions;
use super::verify::rotated_files;
use crate::base::{LockBusy, SharedLog, SharedTail, Timestamp, now, remove_file};

/// What is read behind a note that a dead writer left too early.
const MAX_RECOVERY: u64 = 4 << 20;

/// How far the file goes: kept beside it, one write after each batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Head {
    seq: u64,
    bytes: u64,
    /// When the file's first line was written.
    begun: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

#[derive(Debug)]
pub(super) struct EventFile {
    log: SharedLog,
    options: EventOptions,
}

impl EventFile {
    pub(super) fn new(path: PathBuf, options: EventOptions) -> Self {
        Self { log: SharedLog::new(path), options }
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }

    /// Appends all of them in one write, or none.
    pub(super) fn append(&self, bodies: &[String], patience: Duration) -> io::Result<()> {
        self.exclusively(patience, |pen| pen.write(bodies))
    }

    /// Does something while no other process or thread writes.
    pub(super) fn exclusively<R>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut Pen<'_, '_>) -> io::Result<R>,
    ) -> io::Result<R> {
        let done = self.log.exclusively(patience, |tail| work(&mut Pen { file: self, tail }));
        done.map_err(|error| match error {
            LockBusy::Io(error) => error,
            busy @ LockBusy::Held { .. } => {
                io::Error::new(io::ErrorKind::WouldBlock, busy.to_string())
            }
        })
    }

    fn write(&self, tail: &mut SharedTail<'_>, bodies: &[String]) -> io::Result<()> {
        tail.follow_name()?;
        let mut head = head(tail)?;
        if self.is_full(&head) {
            tail.rotate_to(&rotated_path(self.path(), head.seq))?;
            head = Head { seq: head.seq, ..Head::default() };
            // At once: a note that speaks of the old file would make the new one look cut.
            set_note(tail, &head)?;
            self.remove_old();
        }
        let mut text = String::new();
        for body in bodies {
            head.seq += 1;
            text.push_str(&number(head.seq, body));
            text.push('\n');
        }
        tail.append(head.bytes, text.as_bytes())?;
        head.bytes += text.len() as u64;
        head.begun.get_or_insert_with(now);
        set_note(tail, &head)
    }

    fn is_full(&self, head: &Head) -> bool {
        let age = head.begun.and_then(|begun| Duration::try_from(now().duration_since(begun)).ok());
        let is_old = age.is_some_and(|age| age >= self.options.rotate_after);
        head.bytes > 0 && (head.bytes >= self.options.rotate_bytes || is_old)
    }

    fn remove_old(&self) {
        let Some(retention) = self.options.retention else { return };
        for (_, path) in rotated_files(self.path()).unwrap_or_default() {
            let finished = fs::metadata(&path).and_then(|meta| meta.modified());
            let age = finished.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > retention)
                && let Err(error) = remove_file(&path)
            {
                tracing::warn!(%error, file = %path.display(), "an old file of events cannot be removed");
            }
        }
    }
}

/// The right to write, while the lock is held.
pub(super) struct Pen<'a, 'b> {
    file: &'a EventFile,
    tail: &'a mut SharedTail<'b>,
}

impl Pen<'_, '_> {
    /// Appends all of them in one write, or none.
    pub(super) fn write(&mut self, bodies: &[String]) -> io::Result<()> {
        if bodies.is_empty() { Ok(()) } else { self.file.write(self.tail, bodies) }
    }
}

fn set_note(tail: &SharedTail<'_>, head: &Head) -> io::Result<()> {
    tail.set_note(&serde_json::to_vec(head)?)
}

/// What the note says, and where a writer died between lines and note, what the file says.
fn head(tail: &mut SharedTail<'_>) -> io::Result<Head> {
    let bytes = tail.len()?;
    let noted: Head = serde_json::from_slice(&tail.note()?).unwrap_or_default();
    if noted.bytes == bytes {
        return Ok(noted);
    }
    let from =
        if noted.bytes < bytes { noted.bytes } else { 0 }.max(bytes.saturating_sub(MAX_RECOVERY));
    let text = tail.read_from(from)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let mut end = bytes;
    if whole < text.len() {
        // A line that was never finished: the next one must not hang on it.
        tail.append(bytes, b"\n")?;
        end += 1;
    }
    let lines = text.split(|byte| *byte == b'\n');
    let last = lines
        .filter_map(|line| serde_json::from_slice::<Numbered>(line).ok())
        .map(|line| line.seq)
        .max();
    let seq = last.unwrap_or_default().max(noted.seq);
    Ok(Head { seq, bytes: end, begun: noted.begun })
}

/// Where a full file goes: beside it, named by the number of its last line.
fn rotated_path(path: &Path, last: u64) -> PathBuf {
    let (stem, extension) = name_parts(path);
    path.with_file_name(rotated_name(stem, extension, last))
}
