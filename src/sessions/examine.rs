//! Looks at a file before it is trusted: what it is, whose it is, and whether it has changed.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::base::{ReadRefused, read_bounded};

/// More than this is no store of ours.
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// Tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) inode: u64,
    pub(super) length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What stands where a file should be.
pub(super) enum Found {
    Nothing,
    Text { bytes: Vec<u8>, strange: Option<Strange> },
    Unreadable(ReadRefused),
}

/// A file that may say the right things but is not ours, or not a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strange {
    pub(super) what: &'static str,
    pub(super) copy: bool,
}

pub(super) fn examine(path: &Path) -> Found {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Found::Nothing };
    let strange = strangeness(&metadata);
    match (read_bounded(path, MOST_BYTES), strange) {
        (Ok(bytes), strange) => Found::Text { bytes, strange },
        (Err(ReadRefused::Io(error)), None) if error.kind() == io::ErrorKind::NotFound => {
            Found::Nothing
        }
        (Err(_), Some(strange)) => {
            let strange = Some(Strange { copy: false, ..strange });
            Found::Text { bytes: Vec::new(), strange }
        }
        (Err(ReadRefused::TooLarge { .. }), None) => {
            let strange = Some(Strange { what: "it is far too large", copy: false });
            Found::Text { bytes: Vec::new(), strange }
        }
        (Err(why), None) => Found::Unreadable(why),
    }
}

fn strangeness(metadata: &Metadata) -> Option<Strange> {
    if metadata.is_symlink() {
        Some(Strange { what: "it is a symbolic link", copy: false })
    } else if !metadata.is_file() {
        Some(Strange { what: "it is not a regular file", copy: false })
    } else if metadata.uid() != nix::unistd::Uid::effective().as_raw() {
        Some(Strange { what: "it belongs to another user", copy: true })
    } else {
        None
    }
}

pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some(Stamp {
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

pub(super) fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(bytes),
        other => other?,
    };
    file.seek(SeekFrom::Start(offset))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
