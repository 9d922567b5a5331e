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
                note_holder(&mut file)?;
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => Err(LockBusy::Held { by: holder(&mut file) }),
            Err(TryLockError::Error(error)) => Err(LockBusy::Io(error)),
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
    let mut text = String::new();
    match file.rewind().and_then(|()| file.take(64).read_to_string(&mut text)) {
        Ok(_) if !text.is_empty() => text,
        _ => "another process".to_owned(),
    }
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
