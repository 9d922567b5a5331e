//! File versions: detects changed files by metadata, without reading the content.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Identity, size and times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// ctime; also changes if the modification time is set back.
    changed: (i64, i64),
    #[serde(skip)]
    certainty: VersionCertainty,
}

/// Certainty that a later change would alter the metadata.
///
/// Two changes within one tick of the file system clock leave the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionCertainty {
    Certain,
    Uncertain,
}

/// Upper bound of the file system's timestamp tick.
const TIMESTAMP_TICK: Duration = Duration::from_millis(20);

impl FileVersion {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            certainty: certainty(metadata),
        }
    }

    /// True if the metadata is unchanged; false if the version was taken within 20 ms of the last change.
    pub(super) fn is_current(self, path: &Path) -> bool {
        self.certainty == VersionCertainty::Certain && Self::read(path) == Some(self)
    }

    /// True if both versions have the same metadata, whatever their certainty.
    pub(crate) fn same_metadata(self, other: Self) -> bool {
        Self { certainty: other.certainty, ..self } == other
    }

    /// True if a file was changed, created or removed between two reads of its version.
    pub(crate) fn differs(one: Option<Self>, other: Option<Self>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => !one.same_metadata(other),
            (one, other) => one.is_some() != other.is_some(),
        }
    }

    /// Reduces the version to device and inode.
    pub(crate) fn identity(self) -> Self {
        Self {
            size: 0,
            modified: (0, 0),
            changed: (0, 0),
            certainty: VersionCertainty::Certain,
            ..self
        }
    }

    /// Reads the current version; `None` if `path` cannot be accessed.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::from_metadata(&metadata))
    }
}

fn certainty(metadata: &Metadata) -> VersionCertainty {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    let changed = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    match SystemTime::now().duration_since(changed) {
        Ok(age) if age > TIMESTAMP_TICK => VersionCertainty::Certain,
        Ok(_) | Err(_) => VersionCertainty::Uncertain,
    }
}

/// Files that a parse result depends on, with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileDependencies {
    files: Vec<(PathBuf, Option<FileVersion>)>,
    presence: Vec<(PathBuf, bool)>,
}

impl FileDependencies {
    /// Adds a file; `None` records its absence.
    pub(crate) fn add(&mut self, path: PathBuf, stamp: Option<FileVersion>) {
        self.files.push((path, stamp));
    }

    /// Adds a dependency on the existence of `path` only.
    pub(crate) fn add_presence(&mut self, path: PathBuf, present: bool) {
        self.presence.push((path, present));
    }

    /// True if every dependency is unchanged by its metadata.
    pub(crate) fn are_current(&self) -> bool {
        let as_it_was = |(path, stamp): &(PathBuf, Option<FileVersion>)| match stamp {
            Some(stamp) => stamp.is_current(path),
            None => FileVersion::read(path).is_none(),
        };
        self.files.iter().all(as_it_was)
            && self
                .presence
                .iter()
                .all(|(path, present)| fs::symlink_metadata(path).is_ok() == *present)
    }
}
