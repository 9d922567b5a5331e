//! Whether a file is still the one that was read, told from its metadata.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What changes whenever a file's content does: its identity, size and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also moves when the modification time is set back by hand.
    changed: (i64, i64),
    settled: Settled,
}

/// Whether a further change would show: a disk's clock ticks in milliseconds, and two changes within one
/// tick look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Yes,
    NotYet,
}

/// Longer than any tick of a disk's clock.
const TICK: Duration = Duration::from_millis(20);

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            settled: settled(metadata),
        }
    }

    /// Whether `path` is still as it was, as far as that can be told.
    fn holds(self, path: &Path) -> bool {
        self.settled == Settled::Yes && Self::now(path) == Some(self)
    }

    /// Whether two looks at one file saw no change between them.
    pub(super) fn saw_the_same(self, other: Self) -> bool {
        Self { settled: other.settled, ..self } == other
    }

    /// The same file or folder, whatever it holds.
    pub(super) fn identity(self) -> Self {
        Self { size: 0, modified: (0, 0), changed: (0, 0), settled: Settled::Yes, ..self }
    }

    /// The stamp of what is at `path` now; `None` if nothing can be seen there.
    pub(super) fn now(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

fn settled(metadata: &Metadata) -> Settled {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    let changed = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    match SystemTime::now().duration_since(changed) {
        Ok(age) if age > TICK => Settled::Yes,
        Ok(_) | Err(_) => Settled::NotYet,
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
        let as_it_was = |(path, stamp): &(PathBuf, Option<Stamp>)| match stamp {
            Some(stamp) => stamp.holds(path),
            None => Stamp::now(path).is_none(),
        };
        self.files.iter().all(as_it_was)
            && self
                .presence
                .iter()
                .all(|(path, present)| fs::symlink_metadata(path).is_ok() == *present)
    }
}
