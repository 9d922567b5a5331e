//! A lock between processes, kept by the system: it dies with its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);

/// An exclusive lock on a file; released when dropped, or when its process ends in any way.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock if nobody holds it.
    pub fn try_acquire(path: &Path) -> Result<Self, LockBusy> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // The lock holds whether or not a full disk lets us say who has it.
                let _ = note_holder(&mut file);
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => Err(LockBusy::Held { by: holder(&mut file) }),
            Err(TryLockError::Error(error)) => Err(LockBusy::Io(error)),
        }
    }

    /// Makes a new file that holds `text` and is locked from its beginning to its holder's end.
    pub fn create(path: &Path, text: &str) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Waits only for those who look whether it is held, which they do without pausing.
        file.lock()?;
        // As above: it is held, even where a full disk does not let us say by whom.
        let _ = file.write_all(text.as_bytes());
        Ok(Self { _file: file })
    }

    /// What the file says, if somebody holds it; `None` if nobody does or there is no such file.
    pub fn read_held(path: &Path) -> io::Result<Option<String>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(content(&mut file, 1024))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock, waiting at most `patience`. Blocks the thread: call it where that is fine.
    pub fn acquire(path: &Path, patience: Duration) -> Result<Self, LockBusy> {
        let started = Instant::now();
        loop {
            match Self::try_acquire(path) {
                Err(LockBusy::Held { .. }) if started.elapsed() < patience => thread::sleep(POLL),
                other => return other,
            }
        }
    }
}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockBusy {
    /// Somebody else has it.
    #[error("it is held by {by}")]
    Held {
        /// Who, as far as the file tells.
        by: String,
    },
    /// The system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn note_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {}", std::process::id())
}

fn holder(file: &mut File) -> String {
    match content(file, 64) {
        text if text.is_empty() => "another process".to_owned(),
        text => text,
    }
}

fn content(file: &mut File, most: u64) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(most).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::try_acquire(&path).unwrap();
        let busy = FileLock::try_acquire(&path).unwrap_err();
        assert_eq!(busy.to_string(), format!("it is held by process {}", std::process::id()));
        drop(held);
        FileLock::acquire(&path, Duration::from_secs(5)).unwrap();
    }
}
