//! A file that several processes append to, with a small note beside it that says how far it goes.
//!
//! The note (`<file>.head`) is also what is locked: it is never renamed, so that every process, before and after a
//! rotation, waits for the same lock. Nothing here knows what is written.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::files::create_private_dir;
use super::lock::LockBusy;

const NOTE_BYTES: usize = 192;
const POLL: Duration = Duration::from_micros(100);
/// How long it is taken for granted that nobody has removed the files under our hands.
const TAKEN_FOR_GRANTED: Duration = Duration::from_millis(20);

/// A shared, append-only file; cheap to append to, for it stays open.
#[derive(Debug)]
pub struct SharedLog {
    path: PathBuf,
    note: PathBuf,
    files: Mutex<Option<Files>>,
}

#[derive(Debug)]
struct Files {
    log: Opened,
    note: Opened,
    /// When the names were last seen to be those of the open files.
    checked: Instant,
}

/// An open file, and which one it is.
#[derive(Debug)]
struct Opened {
    file: File,
    device: u64,
    inode: u64,
}

impl Opened {
    fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), file })
    }

    /// Whether it is still the one of that name.
    fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path)
            .is_ok_and(|named| named.ino() == self.inode && named.dev() == self.device)
    }
}

impl SharedLog {
    /// Names the file; it is opened when it is first used, and again whenever it was replaced.
    pub fn new(path: PathBuf) -> Self {
        Self { note: note_path(&path), path, files: Mutex::new(None) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does something while no other process or thread does; waits at most `patience` for that.
    pub fn exclusively<R>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut SharedTail<'_>) -> io::Result<R>,
    ) -> Result<R, LockBusy> {
        let mut slot = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = match slot.take() {
            Some(files) if files.checked.elapsed() < TAKEN_FOR_GRANTED => files,
            Some(files) if files.note.is_at(&self.note) => files,
            _ => open(&self.path)?,
        };
        lock(&files.note.file, patience)?;
        let result = work(&mut SharedTail { path: &self.path, files: &mut files });
        files.note.file.unlock()?;
        *slot = Some(files);
        Ok(result?)
    }
}

/// The end of the file, while the lock is held.
#[derive(Debug)]
pub struct SharedTail<'a> {
    path: &'a Path,
    files: &'a mut Files,
}

impl SharedTail<'_> {
    /// Goes on in the file that has the name now. Needed wherever the note is not what this process last wrote: then
    /// somebody else has written, and may have begun a new file.
    pub fn follow_name(&mut self) -> io::Result<()> {
        if !self.files.log.is_at(self.path) {
            self.files.log = open_log(self.path)?;
        }
        self.files.checked = Instant::now();
        Ok(())
    }

    /// Whether the name must be looked at again, whatever the note says.
    pub fn is_due(&self) -> bool {
        self.files.checked.elapsed() >= TAKEN_FOR_GRANTED
    }

    /// How many bytes the file has.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.files.log.file.metadata()?.len())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The note as it was last set, or nothing.
    pub fn note(&self) -> io::Result<Vec<u8>> {
        read_note(&self.files.note.file)
    }

    /// Replaces the note in one write; it must fit in 192 bytes.
    pub fn set_note(&self, note: &[u8]) -> io::Result<()> {
        if note.len() > NOTE_BYTES {
            return Err(io::Error::other("the note is too long"));
        }
        let mut padded = note.to_vec();
        padded.resize(NOTE_BYTES, b'\n');
        self.files.note.file.write_all_at(&padded, 0)
    }

    /// What stands from `offset` on.
    pub fn read_from(&self, offset: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.len()?.saturating_sub(offset)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.files.log.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Appends all of it to a file of `before` bytes or, as far as the disk lets us, nothing.
    pub fn append(&mut self, before: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.log.file.write_all(bytes).inspect_err(|_| {
            let _ = self.files.log.file.set_len(before);
        })
    }

    /// Cuts what stands behind `length`.
    pub fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.files.log.file.set_len(length)
    }

    /// Gives the file another name and goes on in a new, empty one.
    pub fn rotate_to(&mut self, name: &Path) -> io::Result<()> {
        if name.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the rotated name is taken"));
        }
        fs::rename(self.path, name)?;
        self.files.log = open_log(self.path)?;
        Ok(())
    }

    /// Removes an older file, which [`Self::rotate_to`] made.
    pub fn remove_rotated(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }
}

/// The note and the files as they are at one moment: taken under the lock, read afterwards.
pub fn snapshot_shared_log(
    path: &Path,
    patience: Duration,
    older: impl FnOnce() -> io::Result<Vec<PathBuf>>,
) -> Result<SharedSnapshot, LockBusy> {
    let note = match File::open(note_path(path)) {
        Ok(note) => Some(note),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(note) = &note {
        lock(note, patience)?;
    }
    let mut files = Vec::new();
    for path in older()?.into_iter().chain(path.exists().then(|| path.to_path_buf())) {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        files.push((path, file, bytes));
    }
    let note = note.as_ref().map(read_note).transpose()?;
    Ok(SharedSnapshot { note, files })
}

/// What was there at one moment.
#[derive(Debug)]
pub struct SharedSnapshot {
    /// The note, if there is one.
    pub note: Option<Vec<u8>>,
    /// The files, oldest first, each with the bytes it had.
    pub files: Vec<(PathBuf, File, u64)>,
}

/// Where the note of a log is.
pub fn note_path(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".head");
    PathBuf::from(name)
}

fn open(path: &Path) -> io::Result<Files> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_private_dir(parent)?;
    }
    let note = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(note_path(path))?;
    Ok(Files { log: open_log(path)?, note: Opened::new(note)?, checked: Instant::now() })
}

fn open_log(path: &Path) -> io::Result<Opened> {
    // Without O_NONBLOCK a FIFO in the log's place would stop everything; it is refused instead.
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Opened::new(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn lock(file: &File, patience: Duration) -> Result<(), LockBusy> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() < patience => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(LockBusy::Held { by: "another process".to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

fn read_note(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; NOTE_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let end = bytes.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}
