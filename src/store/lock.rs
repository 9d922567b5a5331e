//! Advisory locks on files (flock). The kernel releases a lock when its process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::fault_point::fault_point;

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// An exclusive flock; released when dropped or when the process ends.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock if it is free; returns [`LockError::Held`] otherwise, without blocking.
    pub fn try_acquire(path: &Path) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        fault_point("lock: opened");
        match file.try_lock() {
            Ok(()) => {
                fault_point("lock: taken");
                // Writing the holder into the file may fail on a full disk; the lock is valid anyway.
                let _ = write_holder(&mut file);
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => Err(LockError::Held { by: read_holder(&mut file) }),
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }

    /// Creates a file that contains `text` and is locked as long as the returned value lives.
    pub fn create(path: &Path, text: &str) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Blocks only while [`Self::read_held`] of another process probes the lock, which takes microseconds.
        file.lock()?;
        // As in `try_acquire`: the lock is valid even if the text could not be written.
        let _ = file.write_all(text.as_bytes());
        Ok(Self { _file: file })
    }

    /// Returns the first 1,024 bytes of the file if it is locked; `None` if it is not locked or does not exist.
    pub fn read_held(path: &Path) -> io::Result<Option<String>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(read_text(&mut file, 1024))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock, waiting at most the given time (polled every 2 ms). Blocks the thread.
    pub fn acquire(path: &Path, timeout: Duration) -> Result<Self, LockError> {
        let started = Instant::now();
        loop {
            match Self::try_acquire(path) {
                Err(LockError::Held { .. }) if started.elapsed() < timeout => {
                    thread::sleep(POLL_INTERVAL);
                }
                other => return other,
            }
        }
    }
}

/// Reasons why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process or another handle of this process holds the lock.
    #[error("it is held by {by}")]
    Held {
        /// The holder as written in the file, for example `process 4711`.
        by: String,
    },
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    fault_point("lock: former holder removed");
    file.rewind()?;
    write!(file, "process {}", std::process::id())
}

fn read_holder(file: &mut File) -> String {
    match read_text(file, 64) {
        text if text.is_empty() => "another process".to_owned(),
        text => text,
    }
}

fn read_text(file: &mut File, max_bytes: u64) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(max_bytes).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_reports_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::try_acquire(&path).unwrap();
        let busy = FileLock::try_acquire(&path).unwrap_err();
        assert_eq!(busy.to_string(), format!("it is held by process {}", std::process::id()));
        drop(held);
        FileLock::acquire(&path, Duration::from_secs(5)).unwrap();
    }
}
