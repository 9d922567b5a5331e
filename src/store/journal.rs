//! A snapshot file and an append-only journal of the changes since, shared by several processes.
//!
//! `<name>.json` is the snapshot and is replaced atomically. A change is one JSON line in the journal, fsynced before it
//! is reported as saved. `<name>.lock` is held (flock) while anything is written. Each process reads only what is new.
//!
//! - A file that cannot be read is an error, never an empty value, and is never overwritten.
//! - A damaged file is kept under another name, and its sound entries are used.
//! - A snapshot of a newer format is read and not written.
//! - A change that cannot be written stays in memory, is seen by this process, and is written with the next one.
//!
//! Methods block on disk and at most 5 s on the lock.

use std::fmt::Debug;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fault_point::fault_point;
use super::fs::{
    BoundedReadError, StagedFile, append_durably, create_private_dir, read_from, remove_file,
    sweep_staged,
};
use super::lock::{FileLock, LockError};
use super::version::FileVersion;
use crate::util::{Mutex, now, one_line, shorten};

/// Limit of the wait for another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// A larger file, or a longer unread part of a journal, is not read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Part of a torn snapshot in which its header is searched.
const HEADER_BYTES: usize = 256;

/// The value that a [`Journal`] keeps.
pub(crate) trait State: Clone + Default {
    type Change: Debug + Serialize + DeserializeOwned;

    /// File names begin with it: `<NAME>.json`.
    const NAME: &'static str;
    /// The `format` number that this version of Adjutant writes.
    const FORMAT: u64;
    const NAMING: Naming;
    /// Lines in the journal from which on an append also compacts.
    const MAX_LINES: usize;
    /// True if a file of another user counts as damaged.
    const MUST_BE_OWNED: bool;

    /// Decodes a snapshot of this format, and the number of the journal that follows it.
    fn decode(snapshot: &[u8]) -> Result<(Self, u64), String>;
    /// Returns every sound entry of a damaged snapshot or of one of a newer format.
    fn recover(snapshot: &[u8]) -> Self;
    fn encode(&self, journal: u64) -> Vec<u8>;
    fn apply(&mut self, change: &Self::Change);
    /// Describes the content of the value, for messages: `4 sound conversations`.
    fn describe(&self) -> String;

    /// Returns true if writing the snapshot costs no more than a line in the journal.
    fn is_small(&self) -> bool {
        false
    }
    /// Drops details that the snapshot need not keep.
    fn prepare_compaction(&mut self) {}
    /// Returns true if `newer` makes `older` superfluous.
    fn replaces(_newer: &Self::Change, _older: &Self::Change) -> bool {
        false
    }
}

/// File names of a journal, which follow from its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// `<name>.journal`. Changes are idempotent: a journal that is in the snapshot already does no harm.
    Single,
    /// `<name>-N.journal`. Changes add up: the snapshot names the journal that follows it, and replacing the snapshot
    /// retires the journal before.
    Numbered,
}

/// A snapshot and a journal of changes to it.
#[derive(Debug)]
pub(crate) struct Journal<S: State> {
    dir: PathBuf,
    snapshot: PathBuf,
    /// A panic elsewhere leaves it consistent: `seen` is empty while the files are read or written.
    image: Mutex<Image<S>>,
    sweep: Once,
}

/// The value as far as read.
#[derive(Debug)]
struct Image<S: State> {
    /// Everything that is on disk.
    state: S,
    /// `None` before the first read and after an error: then everything is read again.
    seen: Option<SeenFiles>,
    unsaved: Vec<S::Change>,
    obstacle: Option<WriteObstacle>,
    /// A damaged file still counts with its sound entries, until the next append.
    needs_rewrite: bool,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct SeenFiles {
    snapshot: SnapshotVersion,
    /// Number of the journal; 0 for [`Naming::Single`].
    number: u64,
    /// Identity of the journal; `None` if there is none yet.
    journal: Option<FileVersion>,
    /// End of the last complete line. Bytes behind it are a torn write.
    end: u64,
    lines: usize,
}

/// Version of the snapshot. The file is kept open, so that no later file gets its inode number: before Linux 6.13 two
/// writes within a clock tick (4 ms) have the same times.
#[derive(Debug)]
struct SnapshotVersion {
    version: Option<FileVersion>,
    _file: Option<File>,
}

/// Reason not to write, although everything could be read.
#[derive(Debug)]
enum WriteObstacle {
    NewerFormat(u64),
    DamagedInPlace(String),
}

impl WriteObstacle {
    fn to_error<S: State>(&self) -> JournalError {
        match self {
            Self::NewerFormat(found) => {
                JournalError::NewerFormat { file: format!("{}.json", S::NAME), found: *found }
            }
            Self::DamagedInPlace(file) => JournalError::DamagedInPlace { file: file.clone() },
        }
    }
}

/// A file that could not be decoded or is not trusted.
#[derive(Debug)]
struct Damage {
    path: PathBuf,
    reason: String,
    /// Content to copy; `None` for a symbolic link.
    bytes: Option<Vec<u8>>,
}

/// A snapshot as decoded.
struct Decoded<S> {
    state: S,
    /// Number of the journal, if the snapshot says so.
    number: Option<u64>,
    /// Format of a snapshot that is newer than this version of Adjutant.
    newer: Option<u64>,
    reason: Option<String>,
}

/// The complete lines of a journal.
struct JournalLines<C> {
    changes: Vec<C>,
    bytes: u64,
    damaged: usize,
}

/// A new snapshot that is written and not yet in force.
#[derive(Debug)]
pub(crate) struct StagedCompaction {
    staged: StagedFile,
    /// Files at the time of the new snapshot.
    seen: SeenFiles,
}

/// Failure to read or to write. Changes that could not be written are kept in memory.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file exists and cannot be read: its content is unknown.
    #[error("`data/{file}` cannot be read: {reason}")]
    Unreadable { file: String, reason: BoundedReadError },
    #[error("`data/{file}` has format {found}, written by a newer Adjutant, and is left as it is")]
    NewerFormat { file: String, found: u64 },
    /// A damaged file must not be overwritten before it was kept under another name.
    #[error("the damaged `data/{file}` could not be set aside")]
    DamagedInPlace { file: String },
    #[error("the lock `data/{file}` could not be had: {reason}")]
    Lock { file: String, reason: LockError },
    #[error("`data/{file}` could not be written: {reason}")]
    Io { file: String, reason: io::Error },
}

impl<S: State> Journal<S> {
    /// Names the files; nothing is read yet, and the directory need not exist.
    pub(crate) fn open(dir: &Path) -> Self {
        let image = Image {
            state: S::default(),
            seen: None,
            unsaved: Vec::new(),
            obstacle: None,
            needs_rewrite: false,
            warnings: Vec::new(),
        };
        let snapshot = dir.join(format!("{}.json", S::NAME));
        Self { dir: dir.to_path_buf(), snapshot, image: Mutex::new(image), sweep: Once::new() }
    }

    /// Returns the path of the snapshot.
    pub(crate) fn snapshot_path(&self) -> &Path {
        &self.snapshot
    }

    /// Reads the current value, with the changes of this process that could not be written.
    ///
    /// Reads only what other processes wrote since the last call.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&S) -> R) -> Result<R, JournalError> {
        let mut image = self.image.lock();
        // A missing or read-only directory has no lock; without it the newest changes can be missed.
        let lock = self.dir.is_dir().then(|| self.lock()).and_then(Result::ok);
        self.refresh(&mut image, lock.as_ref())?;
        drop(lock);
        if image.unsaved.is_empty() {
            return Ok(read(&image.state));
        }
        let mut state = image.state.clone();
        image.unsaved.iter().for_each(|change| state.apply(change));
        Ok(read(&state))
    }

    /// Writes changes; they are durable when this returns.
    ///
    /// After an error they are kept in memory and written with the next ones.
    pub(crate) fn append(&self, changes: Vec<S::Change>) -> Result<(), JournalError> {
        let mut image = self.image.lock();
        for change in changes {
            image.unsaved.retain(|older| !S::replaces(&change, older));
            image.unsaved.push(change);
        }
        self.save(&mut image)
    }

    /// Returns true if the journal has lines that are not in the snapshot, as of the last access.
    pub(crate) fn needs_compaction(&self) -> bool {
        self.image.lock().seen.as_ref().is_some_and(|seen| seen.lines > 0)
    }

    /// Writes the changes that are still in memory, and the journal into the snapshot.
    ///
    /// Others continue meanwhile: no lock is held while the new snapshot is written.
    pub(crate) fn compact(&self) -> Result<(), JournalError> {
        match self.stage_compaction()? {
            Some(compaction) => self.finish_compaction(compaction),
            None => Ok(()),
        }
    }

    /// Returns what was found damaged since the last call, and what was done about it.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.image.lock().warnings)
    }

    fn lock(&self) -> Result<FileLock, JournalError> {
        let path = self.snapshot.with_extension("lock");
        FileLock::acquire(&path, LOCK_TIMEOUT)
            .map_err(|reason| JournalError::Lock { file: file_name(&path), reason })
    }

    fn journal_path(&self, number: u64) -> PathBuf {
        self.dir.join(match S::NAMING {
            Naming::Single => format!("{}.journal", S::NAME),
            Naming::Numbered => format!("{}-{number}.journal", S::NAME),
        })
    }

    /// Writes all unsaved changes.
    fn save(&self, image: &mut Image<S>) -> Result<(), JournalError> {
        create_private_dir(&self.dir).map_err(unwritable::<S>)?;
        let lock = self.lock()?;
        if let Some(WriteObstacle::DamagedInPlace(_)) = image.obstacle {
            image.seen = None; // Perhaps the file can be set aside by now.
        }
        self.refresh(image, Some(&lock))?;
        if let Some(obstacle) = &image.obstacle {
            return Err(obstacle.to_error::<S>());
        }
        self.write_unsaved(image).map_err(unwritable::<S>)
    }

    /// Writes all unsaved changes. After an error the files are read again by the next access.
    fn write_unsaved(&self, image: &mut Image<S>) -> io::Result<()> {
        let Some(seen) = image.seen.take() else { return Err(io::ErrorKind::NotFound.into()) };
        image.unsaved.iter().for_each(|change| image.state.apply(change));
        if image.needs_rewrite || image.state.is_small() {
            image.seen = Some(self.write_snapshot(&mut image.state, seen.number)?);
            image.needs_rewrite = false;
            image.unsaved.clear();
            return Ok(());
        }
        let seen = self.append_lines(seen, &image.unsaved)?;
        image.unsaved.clear();
        if seen.lines < S::MAX_LINES {
            image.seen = Some(seen);
            return Ok(());
        }
        match self.write_snapshot(&mut image.state, seen.number) {
            Ok(seen) => image.seen = Some(seen),
            // The changes are durable; the next append compacts.
            Err(error) => {
                tracing::warn!(%error, "the journal of data/{}.json could not be compacted", S::NAME);
            }
        }
        Ok(())
    }

    fn append_lines(&self, seen: SeenFiles, changes: &[S::Change]) -> io::Result<SeenFiles> {
        let mut lines = Vec::new();
        for change in changes {
            serde_json::to_writer(&mut lines, change)?;
            lines.push(b'\n');
        }
        let journal = self.journal_path(seen.number);
        if let Err(error) = append_durably(&journal, seen.end, &lines) {
            // A complete line that was not synced would count, and count again when it is written the next time.
            let _ = append_durably(&journal, seen.end, b"");
            return Err(error);
        }
        fault_point("journal: line synced");
        Ok(SeenFiles {
            journal: identity(&journal),
            end: seen.end + lines.len() as u64,
            lines: seen.lines + changes.len(),
            ..seen
        })
    }

    /// Replaces the snapshot by one that includes the journal `number`, while the lock is held.
    fn write_snapshot(&self, state: &mut S, number: u64) -> io::Result<SeenFiles> {
        state.prepare_compaction();
        let staged =
            StagedFile::write_private(&self.snapshot, &state.encode(next_number::<S>(number)))?;
        fault_point("journal: snapshot staged");
        self.commit_snapshot(staged, number, b"", 0)
    }

    /// Puts a snapshot in force and retires the journal `number`, of which `tail` is not in the snapshot.
    fn commit_snapshot(
        &self,
        staged: StagedFile,
        number: u64,
        tail: &[u8],
        lines: usize,
    ) -> io::Result<SeenFiles> {
        staged.commit()?;
        fault_point("journal: snapshot replaced");
        let journal = self.journal_path(number);
        match S::NAMING {
            // Replaced and not truncated: it can be a symbolic link.
            Naming::Single => {
                let length = fs::symlink_metadata(&journal).map_or(0, |metadata| metadata.len());
                if length != tail.len() as u64 {
                    StagedFile::write_private(&journal, tail)?.commit()?;
                }
            }
            // Not an error: it is no longer the journal that counts.
            Naming::Numbered => drop(remove_file(&journal)),
        }
        fault_point("journal: old journal retired");
        let number = next_number::<S>(number);
        Ok(SeenFiles {
            snapshot: SnapshotVersion::of(&self.snapshot),
            number,
            journal: identity(&self.journal_path(number)),
            end: tail.len() as u64,
            lines,
        })
    }

    /// Writes a new snapshot beside the old one. The slow part; no lock is held.
    fn stage_compaction(&self) -> Result<Option<StagedCompaction>, JournalError> {
        if !self.dir.is_dir() {
            return Ok(None);
        }
        let (mut state, seen) = {
            let mut image = self.image.lock();
            if !image.unsaved.is_empty() {
                self.save(&mut image)?;
            }
            // Where nothing can be locked, nothing can be written either.
            let Ok(lock) = self.lock() else { return Ok(None) };
            self.refresh(&mut image, Some(&lock))?;
            match &image.seen {
                Some(seen) if seen.lines > 0 && image.obstacle.is_none() => {
                    let snapshot = SnapshotVersion::of(&self.snapshot);
                    (image.state.clone(), SeenFiles { snapshot, ..*seen })
                }
                _ => return Ok(None),
            }
        };
        state.prepare_compaction();
        let bytes = state.encode(next_number::<S>(seen.number));
        let staged = StagedFile::write_private(&self.snapshot, &bytes).map_err(unwritable::<S>)?;
        Ok(Some(StagedCompaction { staged, seen }))
    }

    /// Puts a staged snapshot in force, unless another process has compacted meanwhile.
    fn finish_compaction(&self, compaction: StagedCompaction) -> Result<(), JournalError> {
        let mut image = self.image.lock();
        let lock = self.lock()?;
        self.refresh(&mut image, Some(&lock))?;
        let StagedCompaction { staged, seen } = compaction;
        if image.obstacle.is_some() || !seen.snapshot.is_current(&self.snapshot) {
            return Ok(());
        }
        let mut tail =
            Self::read_file(&self.journal_path(seen.number), seen.end)?.unwrap_or_default();
        let lines = decode_lines::<S::Change>(&tail);
        tail.truncate(usize::try_from(lines.bytes).unwrap_or_default());
        if S::NAMING == Naming::Numbered && !tail.is_empty() {
            return Ok(()); // A line in the next journal before the snapshot names it could count twice.
        }
        image.seen = None;
        let count = lines.changes.len() + lines.damaged;
        let committed = self.commit_snapshot(staged, seen.number, &tail, count);
        image.seen = Some(committed.map_err(unwritable::<S>)?);
        Ok(())
    }

    /// Reads what is new. After an error everything is read again.
    fn refresh(&self, image: &mut Image<S>, lock: Option<&FileLock>) -> Result<(), JournalError> {
        let Some(mut seen) = image.seen.take() else { return self.reload(image, lock) };
        let path = self.journal_path(seen.number);
        let journal = fs::symlink_metadata(&path).ok();
        let found = journal.as_ref().map(|journal| FileVersion::from_metadata(journal).identity());
        let length = journal.map_or(0, |journal| journal.len());
        let is_same_journal = seen.journal.is_none() || seen.journal == found;
        if !is_same_journal || length < seen.end || !seen.snapshot.is_current(&self.snapshot) {
            return self.reload(image, lock);
        }
        if length > seen.end {
            let tail = Self::read_file(&path, seen.end)?.unwrap_or_default();
            let lines = decode_lines(&tail);
            if lines.damaged > 0 {
                return self.reload(image, lock);
            }
            lines.changes.iter().for_each(|change| image.state.apply(change));
            seen.end += lines.bytes;
            seen.lines += lines.changes.len();
        }
        seen.journal = found;
        image.seen = Some(seen);
        Ok(())
    }

    /// Reads everything. With the lock, damaged files are kept under other names.
    fn reload(&self, image: &mut Image<S>, lock: Option<&FileLock>) -> Result<(), JournalError> {
        if lock.is_some() {
            self.sweep.call_once(|| sweep_staged(&self.dir));
        }
        // Taken before the content is read: without the lock it could change in between.
        let snapshot = SnapshotVersion::of(&self.snapshot);
        let mut damages = Vec::new();
        let decoded = match Self::read_file(&self.snapshot, 0)? {
            Some(bytes) => {
                let mut decoded = decode::<S>(&bytes);
                damages.extend(Self::damage(&self.snapshot, bytes, decoded.reason.take()));
                decoded
            }
            None => Decoded { state: S::default(), number: None, newer: None, reason: None },
        };
        let number = match (S::NAMING, decoded.number) {
            (Naming::Single, _) => 0,
            (Naming::Numbered, Some(number)) => number,
            (Naming::Numbered, None) => self.newest_journal()?,
        };
        let path = self.journal_path(number);
        let journal = identity(&path);
        let bytes = Self::read_file(&path, 0)?.unwrap_or_default();
        let lines = decode_lines(&bytes);
        let unread = lines.damaged;
        let reason = (unread > 0).then(|| format!("{unread} of its lines cannot be read"));
        if journal.is_some() {
            damages.extend(Self::damage(&path, bytes, reason));
        }
        image.state = decoded.state;
        lines.changes.iter().for_each(|change| image.state.apply(change));
        image.obstacle = decoded.newer.map(WriteObstacle::NewerFormat);
        image.needs_rewrite = false;
        let lines_read = lines.changes.len() + unread;
        image.seen =
            Some(SeenFiles { snapshot, number, journal, end: lines.bytes, lines: lines_read });
        if decoded.newer.is_none() && !damages.is_empty() {
            self.repair(image, &damages, lock);
        }
        Ok(())
    }

    /// Reads a file from `offset` to its end; `None` if it does not exist.
    fn read_file(path: &Path, offset: u64) -> Result<Option<Vec<u8>>, JournalError> {
        match read_from(path, offset, MAX_FILE_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BoundedReadError::Io(error))
                if is_missing(&error) && fs::symlink_metadata(path).is_err() =>
            {
                Ok(None)
            }
            Err(reason) => Err(JournalError::Unreadable { file: file_name(path), reason }),
        }
    }

    /// Returns the number of the last journal, used if there is no snapshot that names one.
    fn newest_journal(&self) -> Result<u64, JournalError> {
        let number = |name: &str| -> Option<u64> {
            name.strip_prefix(S::NAME)?.strip_prefix('-')?.strip_suffix(".journal")?.parse().ok()
        };
        let newest = || -> io::Result<u64> {
            let mut newest = 0;
            for entry in fs::read_dir(&self.dir)? {
                newest = newest.max(entry?.file_name().to_str().and_then(number).unwrap_or(0));
            }
            Ok(newest)
        };
        match newest() {
            Err(error) if !is_missing(&error) => {
                Err(JournalError::Unreadable { file: String::new(), reason: error.into() })
            }
            newest => Ok(newest.unwrap_or(0)),
        }
    }

    /// Returns the damage of a file, if its text could not be decoded or the file is not trusted.
    fn damage(path: &Path, bytes: Vec<u8>, reason: Option<String>) -> Option<Damage> {
        let metadata = fs::symlink_metadata(path).ok();
        let is_link = metadata.as_ref().is_some_and(Metadata::is_symlink);
        let is_foreign = |file: &Metadata| file.uid() != nix::unistd::Uid::effective().as_raw();
        let reason = if is_link {
            "it is a symbolic link".to_owned()
        } else if S::MUST_BE_OWNED && metadata.as_ref().is_some_and(is_foreign) {
            "it belongs to another user".to_owned()
        } else {
            reason?
        };
        Some(Damage { path: path.to_path_buf(), reason, bytes: (!is_link).then_some(bytes) })
    }

    /// Keeps damaged files under other names. A [`Naming::Single`] journal is then rewritten without the damage; a
    /// numbered one by the next append, so that reading changes nothing that counts.
    fn repair(&self, image: &mut Image<S>, damages: &[Damage], lock: Option<&FileLock>) {
        let suffix = format!("damaged-{}", now().strftime("%Y-%m-%dT%H-%M-%S%.3fZ"));
        let done = match lock {
            Some(_) => self.set_aside(image, damages, &suffix),
            None => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let kept = image.state.describe();
        for Damage { path, reason, .. } in damages {
            let file = file_name(path);
            let warning = match &done {
                Ok(()) => format!(
                    "`data/{file}` was damaged ({reason}); it was set aside as `data/{file}.{suffix}`, \
                     and {kept} were kept"
                ),
                Err(error) => {
                    image.obstacle = Some(WriteObstacle::DamagedInPlace(file.clone()));
                    format!(
                        "`data/{file}` is damaged ({reason}) and could not be set aside ({error}); \
                         {kept} in it are used, and nothing is written over it"
                    )
                }
            };
            tracing::warn!("{warning}");
            image.warnings.push(warning);
        }
    }

    fn set_aside(&self, image: &mut Image<S>, damages: &[Damage], suffix: &str) -> io::Result<()> {
        for Damage { path, bytes, .. } in damages {
            let aside = self.dir.join(format!("{}.{suffix}", file_name(path)));
            match bytes {
                Some(bytes) => StagedFile::write_private(&aside, bytes)?.commit()?,
                // A second name for the link itself.
                None => fs::hard_link(path, &aside)?,
            }
            fault_point("journal: damaged file set aside");
        }
        match S::NAMING {
            Naming::Single => image.seen = Some(self.write_snapshot(&mut image.state, 0)?),
            Naming::Numbered => image.needs_rewrite = true,
        }
        Ok(())
    }
}

impl SnapshotVersion {
    fn of(path: &Path) -> Self {
        let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).ok();
        let version = match &file {
            Some(file) => file.metadata().ok().as_ref().map(FileVersion::from_metadata),
            None => current_version(path),
        };
        Self { version, _file: file }
    }

    fn is_current(&self, path: &Path) -> bool {
        !FileVersion::differs(self.version, current_version(path))
    }
}

fn decode<S: State>(bytes: &[u8]) -> Decoded<S> {
    let reason = match S::decode(bytes) {
        Ok((state, number)) => {
            return Decoded { state, number: Some(number), newer: None, reason: None };
        }
        Err(_) if bytes.is_empty() => "it is empty".to_owned(),
        Err(reason) => shorten(&one_line(&reason), 200),
    };
    let newer = stated_number(bytes, "format").filter(|format| *format > S::FORMAT);
    let reason = newer.is_none().then_some(reason);
    Decoded { state: S::recover(bytes), number: stated_number(bytes, "journal"), newer, reason }
}

/// Returns a number in the header of a snapshot, also of a torn one.
fn stated_number(bytes: &[u8], key: &str) -> Option<u64> {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return value.get(key)?.as_u64();
    }
    let header = String::from_utf8_lossy(bytes.get(..HEADER_BYTES).unwrap_or(bytes)).into_owned();
    let after = header.split_once(&format!("\"{key}\""))?.1;
    let number = after.trim_start().strip_prefix(':')?.trim_start();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Decodes complete lines. A last line without line feed is a torn write and left out.
fn decode_lines<C: DeserializeOwned>(bytes: &[u8]) -> JournalLines<C> {
    let mut lines = JournalLines { changes: Vec::new(), bytes: 0, damaged: 0 };
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        lines.bytes += line.len() as u64;
        match serde_json::from_slice(text) {
            Ok(change) => lines.changes.push(change),
            Err(_) => lines.damaged += 1,
        }
    }
    lines
}

fn next_number<S: State>(number: u64) -> u64 {
    match S::NAMING {
        Naming::Single => 0,
        Naming::Numbered => number + 1,
    }
}

fn unwritable<S: State>(reason: io::Error) -> JournalError {
    JournalError::Io { file: format!("{}.json", S::NAME), reason }
}

/// Returns true if the path cannot exist: no such file, or its parent is not a directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn current_version(path: &Path) -> Option<FileVersion> {
    fs::symlink_metadata(path).ok().as_ref().map(FileVersion::from_metadata)
}

fn identity(path: &Path) -> Option<FileVersion> {
    current_version(path).map(FileVersion::identity)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
