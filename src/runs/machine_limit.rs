//! A limit that all Adjutant processes of one user keep together: numbered files, each locked by who uses it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::base::{FileLock, LockBusy, create_private_dir};

/// At most so many runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCap {
    runs: u32,
    folder: PathBuf,
}

impl MachineCap {
    /// A limit kept in the user's runtime folder, where all processes of the user meet.
    pub fn new(runs: u32) -> Self {
        let shared = dirs::runtime_dir().map(|folder| folder.join("adjutant"));
        let folder = shared.unwrap_or_else(temporary_dir);
        Self::kept_in(&folder, runs)
    }

    /// A limit kept in a folder of your choice.
    pub fn kept_in(folder: &Path, runs: u32) -> Self {
        Self { runs, folder: folder.join("slots") }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A free slot, if there is one; held until dropped, or until this process ends in any way.
    pub(super) fn try_slot(&self) -> io::Result<Option<FileLock>> {
        create_private_dir(&self.folder)?;
        if fs::symlink_metadata(&self.folder)?.uid() != Uid::effective().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it belongs to another user",
            ));
        }
        for number in 0..self.runs {
            match FileLock::try_acquire(&self.folder.join(number.to_string())) {
                Ok(slot) => return Ok(Some(slot)),
                Err(LockBusy::Held { .. }) => {}
                Err(LockBusy::Io(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// This user's own place in the temporary folder, for what finds no other.
pub(super) fn temporary_dir() -> PathBuf {
    std::env::temp_dir().join(format!("adjutant-{}", Uid::effective()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cap = MachineCap::kept_in(folder.path(), 2);
        let first = cap.try_slot().unwrap().unwrap();
        let _second = cap.try_slot().unwrap().unwrap();
        assert!(cap.try_slot().unwrap().is_none());
        drop(first);
        assert!(cap.try_slot().unwrap().is_some());
    }
}
