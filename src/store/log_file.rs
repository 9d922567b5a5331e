//! The two files of an append-only log, and their lock.
//!
//! `<file>.head` holds a small state (at most 192 bytes) that the writers define, and is the file that is locked
//! (flock). It is never renamed, so all processes contend for the same lock across rotations.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{self, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fault_point::fault_point;
use super::fs::{create_private_dir, parent_dir};
use super::lock::LockError;
use super::version::FileVersion;

const HEAD_BYTES: usize = 192;
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Time for which the open files are assumed to be still the ones of their names.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Time for which a lock is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// Does not block: fails if another process or another thread of this one has the lock.
    Never,
    /// Blocks the thread (polled every 100 µs); other threads of this process are waited for without limit.
    AtMost(Duration),
}

/// The files of a log. They stay open between uses.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    head_path: PathBuf,
    files: Mutex<Option<OpenLogFiles>>,
}

#[derive(Debug)]
struct OpenLogFiles {
    log: OpenLogFile,
    head: OpenLogFile,
    /// Time of the last check that the paths still name the open files.
    checked_at: Option<Instant>,
}

impl OpenLogFiles {
    fn needs_recheck(&self) -> bool {
        self.checked_at.is_none_or(|at| at.elapsed() >= RECHECK_INTERVAL)
    }
}

/// An open file with its device and inode number.
#[derive(Debug)]
struct OpenLogFile {
    file: File,
    identity: FileVersion,
}

impl OpenLogFile {
    fn new(file: File) -> io::Result<Self> {
        Ok(Self { identity: FileVersion::from_metadata(&file.metadata()?).identity(), file })
    }

    /// Returns true if the path still names this file.
    fn is_still_at(&self, path: &Path) -> bool {
        FileVersion::read(path).is_some_and(|named| named.identity() == self.identity)
    }
}

impl LogFile {
    /// Creates the handle; the files are opened by the first use and reopened after they were replaced.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { head_path: head_path(&path), path, files: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` while holding the lock, against other processes and threads.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] if the lock was not free in time.
    pub(super) fn with_lock<R>(
        &self,
        wait: LockWait,
        work: impl FnOnce(&mut LockedLogFile<'_>) -> io::Result<R>,
    ) -> Result<R, LockError> {
        let (mut slot, timeout) = match wait {
            LockWait::AtMost(timeout) => {
                (self.files.lock().unwrap_or_else(PoisonError::into_inner), timeout)
            }
            LockWait::Never => match self.files.try_lock() {
                Ok(slot) => (slot, Duration::ZERO),
                Err(sync::TryLockError::Poisoned(slot)) => (slot.into_inner(), Duration::ZERO),
                Err(sync::TryLockError::WouldBlock) => return Err(held()),
            },
        };
        let mut files = match slot.take() {
            Some(files) if !files.needs_recheck() => files,
            Some(files) if files.head.is_still_at(&self.head_path) => files,
            _ => open_files(&self.path)?,
        };
        if let Err(error) = lock_with_timeout(&files.head.file, timeout) {
            *slot = Some(files);
            return Err(error);
        }
        let result = work(&mut LockedLogFile { path: &self.path, files: &mut files });
        fault_point("log: before unlock");
        files.head.file.unlock()?;
        *slot = Some(files);
        Ok(result?)
    }
}

/// Access to the files while the lock is held.
#[derive(Debug)]
pub(super) struct LockedLogFile<'a> {
    path: &'a Path,
    files: &'a mut OpenLogFiles,
}

impl LockedLogFile<'_> {
    /// Reopens the log if its path names another file now.
    ///
    /// Needed if the head is not the one this process wrote last: another process has written and may have rotated the
    /// file.
    pub(super) fn reopen_if_replaced(&mut self) -> io::Result<()> {
        if !self.files.log.is_still_at(self.path) {
            self.files.log = open_log_file(self.path)?;
        }
        self.files.checked_at = Some(Instant::now());
        Ok(())
    }

    /// Returns true if 20 ms have passed since the paths were checked; then they must be checked whatever the head
    /// says.
    pub(super) fn needs_recheck(&self) -> bool {
        self.files.needs_recheck()
    }

    /// Returns the length in bytes.
    ///
    /// Called for every write. `lseek` takes a tenth of the time of `statx`; lines are appended (`O_APPEND`) and read at
    /// offsets, so the position does not matter.
    pub(super) fn len(&self) -> io::Result<u64> {
        (&self.files.log.file).seek(SeekFrom::End(0))
    }

    /// Returns the head as last written, without padding; empty if there is none.
    pub(super) fn head(&self) -> io::Result<Vec<u8>> {
        read_head(&self.files.head.file)
    }

    /// Replaces the head with a single write of 192 bytes; longer heads are an error.
    pub(super) fn write_head(&self, head: &[u8]) -> io::Result<()> {
        if head.len() > HEAD_BYTES {
            return Err(io::Error::other("the head is too long"));
        }
        let mut padded = head.to_vec();
        padded.resize(HEAD_BYTES, b'\n');
        fault_point("log: before the head");
        self.files.head.file.write_all_at(&padded, 0)?;
        fault_point("log: head written");
        Ok(())
    }

    /// Reads from `offset` to the end.
    pub(super) fn read_from(&self, offset: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.len()?.saturating_sub(offset)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.files.log.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Appends all bytes with one write.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // In two parts in crash tests, which then see a torn line.
        #[cfg(test)]
        let bytes = {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            fault_point("log: before the lines");
            self.files.log.file.write_all(first)?;
            fault_point("log: half of the lines written");
            second
        };
        self.files.log.file.write_all(bytes)?;
        fault_point("log: lines written");
        Ok(())
    }

    pub(super) fn truncate(&self, length: u64) -> io::Result<()> {
        self.files.log.file.set_len(length)?;
        fault_point("log: truncated");
        Ok(())
    }

    /// Renames the file to `name` and continues with a new, empty file; fails if `name` exists.
    pub(super) fn rotate_to(&mut self, name: &Path) -> io::Result<()> {
        if name.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the rotated name is taken"));
        }
        fault_point("log: before rotation");
        fs::rename(self.path, name)?;
        fault_point("log: renamed");
        self.files.log = open_log_file(self.path)?;
        fault_point("log: new file opened");
        Ok(())
    }
}

/// Runs `work` with the head of a log, if it has one, while holding the lock; creates no file.
pub(super) fn with_head<R>(
    path: &Path,
    timeout: Duration,
    work: impl FnOnce(Option<Vec<u8>>) -> io::Result<R>,
) -> Result<R, LockError> {
    let head = match File::open(head_path(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(work(None)?),
        opened => opened?,
    };
    lock_with_timeout(&head, timeout)?;
    Ok(work(Some(read_head(&head)?))?)
}

/// Returns the path of the head file: `<log>.head`.
pub(crate) fn head_path(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

fn open_files(path: &Path) -> io::Result<OpenLogFiles> {
    create_private_dir(parent_dir(path))?;
    let head = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(head_path(path))?;
    fault_point("log: head opened");
    let log = open_log_file(path)?;
    fault_point("log: file opened");
    Ok(OpenLogFiles { log, head: OpenLogFile::new(head)?, checked_at: None })
}

fn open_log_file(path: &Path) -> io::Result<OpenLogFile> {
    // Without O_NONBLOCK, opening a FIFO at this path would block.
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        OpenLogFile::new(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn lock_with_timeout(file: &File, timeout: Duration) -> Result<(), LockError> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if started.elapsed() < timeout => {
                thread::sleep(POLL_INTERVAL);
            }
            Err(fs::TryLockError::WouldBlock) => return Err(held()),
            Err(fs::TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

fn held() -> LockError {
    LockError::Held { by: "another process".to_owned() }
}

fn read_head(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let end = bytes.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}
