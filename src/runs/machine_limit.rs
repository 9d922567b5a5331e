//! Limit for all Adjutant processes of a user on this machine: numbered files, one flocked per run.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::unistd::Uid;

use crate::store::{FileLock, LockError, create_private_dir};

/// The maximum of concurrent runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineLimit {
    max_runs: u32,
    dir: PathBuf,
}

impl MachineLimit {
    /// Creates a limit in the user's runtime directory, or below the temporary directory if there is none.
    pub(crate) fn new(runs: u32) -> Self {
        let shared = dirs::runtime_dir().map(|folder| folder.join("adjutant"));
        let folder = shared.unwrap_or_else(temporary_dir);
        Self::in_dir(&folder, runs)
    }

    /// Creates a limit in the given directory.
    pub(crate) fn in_dir(folder: &Path, max_runs: u32) -> Self {
        Self { max_runs, dir: folder.join("slots") }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.dir
    }

    /// Takes a free slot, if any, without blocking; released when dropped or when this process ends.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<FileLock>> {
        create_private_dir(&self.dir)?;
        if fs::symlink_metadata(&self.dir)?.uid() != Uid::effective().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it belongs to another user",
            ));
        }
        for number in 0..self.max_runs {
            match FileLock::try_acquire(&self.dir.join(number.to_string())) {
                Ok(slot) => return Ok(Some(slot)),
                Err(LockError::Held { .. }) => {}
                Err(LockError::Io(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Returns `adjutant-<uid>` in the temporary directory.
pub(crate) fn temporary_dir() -> PathBuf {
    std::env::temp_dir().join(format!("adjutant-{}", Uid::effective()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_slot_can_be_acquired_again() {
        let folder = tempfile::tempdir().unwrap();
        let cap = MachineLimit::in_dir(folder.path(), 2);
        let first = cap.try_acquire().unwrap().unwrap();
        let _second = cap.try_acquire().unwrap().unwrap();
        assert!(cap.try_acquire().unwrap().is_none());
        drop(first);
        assert!(cap.try_acquire().unwrap().is_some());
    }
}
