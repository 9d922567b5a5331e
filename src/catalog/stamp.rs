//! Whether a file is still the one that was read, told from its metadata.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What changes whenever a file's content does: its identity, size and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also moves when the modification time is set back by hand.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The same file or folder, whatever it holds.
    pub(super) fn identity(self) -> Self {
        Self { size: 0, modified: (0, 0), changed: (0, 0), ..self }
    }

    /// The stamp of what is at `path` now; `None` if nothing can be seen there.
    pub(super) fn now(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// The files a reading depended on, each as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    files: Vec<(PathBuf, Option<Stamp>)>,
    presence: Vec<(PathBuf, bool)>,
}

impl Stamps {
    /// Notes a file.
    pub(super) fn note(&mut self, path: PathBuf, stamp: Option<Stamp>) {
        self.files.push((path, stamp));
    }

    /// Notes only whether something is at `path`.
    pub(super) fn note_presence(&mut self, path: PathBuf, present: bool) {
        self.presence.push((path, present));
    }

    /// Whether every file is still as it was.
    pub(super) fn hold(&self) -> bool {
        self.files.iter().all(|(path, stamp)| Stamp::now(path) == *stamp)
            && self
                .presence
                .iter()
                .all(|(path, present)| fs::symlink_metadata(path).is_ok() == *present)
    }
}
