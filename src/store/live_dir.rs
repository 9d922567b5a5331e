//! Files and directories that exist only as long as their owner: a small file per owner, or a private directory.
//!
//! Nothing here is fsynced: after a crash of the machine no owner is alive, and all of it is stale.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault_point::fault_point;
use super::fs::{
    BoundedReadError, create_private_dir, entries_if_exists, read_bounded, remove_file,
};
use super::lock::FileLock;
use super::scratch::{create_new_dir, remove_tree, write_volatile};

const MAX_ENTRY_BYTES: u64 = 1 << 20;
/// Lock file of an [`OwnedDir`], flocked while the directory is in use.
const LOCK_FILE: &str = ".held";
/// Prefix of an [`OwnedDir`] that is not locked yet.
const UNLOCKED_PREFIX: &str = ".new-";
/// Age from which an unlocked new directory is stale: locking takes far less than 1 min.
const MIN_STALE_AGE: Duration = Duration::from_mins(1);

/// A directory with one JSON file of mode 0600 per live owner, `<name>.json`. All methods block on disk.
#[derive(Clone, Debug)]
pub(crate) struct LiveDir<T> {
    dir: PathBuf,
    entry: PhantomData<fn() -> T>,
}

/// The file of one owner, removed when dropped.
#[derive(Debug)]
pub(crate) struct LiveFile<T> {
    path: PathBuf,
    entry: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> LiveDir<T> {
    /// Names the directory; the first entry creates it with mode 0700.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, entry: PhantomData }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a file with this name and extension; entries have `json`.
    pub(crate) fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{name}.{extension}"))
    }

    /// Writes the entry of an owner that ends with this process.
    pub(crate) fn register(&self, name: &str, value: &T) -> io::Result<LiveFile<T>> {
        self.write(name, value)?;
        Ok(LiveFile { path: self.path(name, "json"), entry: PhantomData })
    }

    /// Writes or replaces the entry of an owner that outlives this process.
    pub(crate) fn write(&self, name: &str, value: &T) -> io::Result<()> {
        create_private_dir(&self.dir)?;
        fault_point("live: directory exists");
        write_volatile(&self.path(name, "json"), &serde_json::to_vec(value)?)
    }

    /// Reads an entry. `None` if there is none, and for a file that cannot be one: another version of Adjutant or a
    /// person wrote it, because entries are replaced atomically. An I/O error is an error.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<T>> {
        match read_bounded(&self.path(name, "json"), MAX_ENTRY_BYTES) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(BoundedReadError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }

    /// Removes an entry; a missing one is not an error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        remove_file(&self.path(name, "json"))
    }

    /// Returns the names of all files that are named like entries; none if there is no directory.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in entries_if_exists(&self.dir)? {
            let name = entry?.file_name();
            names.extend(
                name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned),
            );
        }
        Ok(names)
    }

    /// Reads all entries, including those of dead owners.
    pub(crate) fn list(&self) -> io::Result<Vec<T>> {
        let entries = self.names()?.into_iter().map(|name| self.read(&name));
        entries.filter_map(Result::transpose).collect()
    }
}

impl<T: Serialize> LiveFile<T> {
    pub(crate) fn update(&self, value: &T) -> io::Result<()> {
        write_volatile(&self.path, &serde_json::to_vec(value)?)
    }
}

impl<T> Drop for LiveFile<T> {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

/// A private directory, flocked by its owner and removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct OwnedDir {
    path: PathBuf,
    _lock: FileLock,
}

impl OwnedDir {
    /// Creates `name` below `parent`; fails if it exists, so that a planted directory is never used.
    ///
    /// It is locked before it gets its name, so that [`remove_unowned_dirs`] never sees it unlocked.
    pub(crate) fn create(parent: &Path, name: &str) -> io::Result<Self> {
        create_private_dir(parent)?;
        fault_point("owned: parent exists");
        let unlocked = parent.join(format!("{UNLOCKED_PREFIX}{name}"));
        create_new_dir(&unlocked)?;
        fault_point("owned: created");
        let path = parent.join(name);
        let lock = lock_and_rename(&unlocked, &path);
        if lock.is_err() {
            let _ = remove_tree(&unlocked);
        }
        Ok(Self { path, _lock: lock? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!(dir = %self.path.display(), %error, "a directory could not be removed");
        }
    }
}

fn lock_and_rename(unlocked: &Path, path: &Path) -> io::Result<FileLock> {
    let lock = FileLock::try_acquire(&unlocked.join(LOCK_FILE)).map_err(io::Error::other)?;
    fault_point("owned: locked");
    fs::rename(unlocked, path)?;
    fault_point("owned: renamed");
    Ok(lock)
}

/// Removes the directories below `parent` whose owner is dead and returns their paths.
///
/// Only directories with a name that `is_owned` accepts have owners; all others stay.
pub(crate) fn remove_unowned_dirs(
    parent: &Path,
    is_owned: impl Fn(&str) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in entries_if_exists(parent)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() && is_unowned(&path, &is_owned) && remove_tree(&path).is_ok() {
            removed.push(path);
        }
    }
    Ok(removed)
}

fn is_unowned(path: &Path, is_owned: impl Fn(&str) -> bool) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(UNLOCKED_PREFIX) {
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
        return modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > MIN_STALE_AGE));
    }
    is_owned(&name) && FileLock::try_acquire(&path.join(LOCK_FILE)).is_ok()
}

#[cfg(test)]
#[path = "live_dir_tests.rs"]
mod tests;
