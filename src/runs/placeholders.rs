//! Placeholders: files and folders that stand for missing control files while a sandbox is open.
//!
//! A sandbox can only mount something over a path that exists, and bubblewrap would leave what it creates. Placeholders
//! are counted across processes by one entry per sandbox in `data/placeholders/`, and removed with the last entry, if
//! they are unchanged. Entries of a killed Adjutant are removed by [`Placeholders::sweep`].

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::process::ProcessIdentity;
use crate::process::sandbox::Placeholder;
use crate::store::{
    FileLock, LiveDir, create_new_dir, create_private_dir, read_bounded, remove_empty_dir,
    remove_file, write_new_file,
};

const PLACEHOLDERS_DIR: &str = "placeholders";
const LOCK_FILE: &str = ".lock";
/// Longest wait for another process that creates or removes placeholders, which takes less than 1 ms.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: u64 = 4096;

/// Placeholders of one project. Methods block on disk.
#[derive(Clone, Debug)]
pub(crate) struct Placeholders {
    entries: LiveDir<PlaceholderEntry>,
}

/// Placeholders that one sandbox needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PlaceholderEntry {
    owner: Option<ProcessIdentity>,
    made: Vec<MadePlaceholder>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MadePlaceholder {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Content of a file; `None` for a folder.
    content: Option<String>,
}

/// The placeholders of one sandbox; released when dropped.
#[derive(Debug)]
pub(crate) struct PlaceholderLease {
    placeholders: Placeholders,
    name: String,
}

impl Placeholders {
    pub(crate) fn at(data_dir: &Path) -> Self {
        Self { entries: LiveDir::new(data_dir.join(PLACEHOLDERS_DIR)) }
    }

    /// Returns the paths at which there is a placeholder, also one that a killed Adjutant left.
    pub(crate) fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let made = self.entries.list()?.into_iter().flat_map(|entry| entry.made);
        Ok(made.filter(MadePlaceholder::is_unchanged).map(|made| made.path).collect())
    }

    /// Creates what is missing. What a person has created meanwhile is left alone.
    pub(crate) fn acquire(
        &self,
        name: String,
        wanted: &[(PathBuf, Placeholder)],
    ) -> io::Result<PlaceholderLease> {
        let lease = PlaceholderLease { placeholders: self.clone(), name };
        let _lock = self.lock()?;
        let known: Vec<_> = self.entries.list()?.into_iter().flat_map(|entry| entry.made).collect();
        let mut entry = PlaceholderEntry { owner: ProcessIdentity::current(), made: Vec::new() };
        for (path, placeholder) in wanted {
            if let Some(made) = known.iter().find(|made| made.path == *path && made.is_unchanged())
            {
                entry.made.push(made.clone());
            } else if let Some(made) = MadePlaceholder::create(path, placeholder)? {
                entry.made.push(made);
                // Written after each: a placeholder that no entry names would stay for ever.
                self.entries.write(&lease.name, &entry)?;
            }
        }
        self.entries.write(&lease.name, &entry)?;
        Ok(lease)
    }

    /// Removes the entries of processes that no longer exist, with their placeholders.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        if !self.entries.dir().is_dir() {
            return Ok(());
        }
        let _lock = self.lock()?;
        for name in self.entries.names()? {
            let entry = self.entries.read(&name)?;
            let owner = entry.as_ref().and_then(|entry| entry.owner.as_ref());
            if !owner.is_some_and(ProcessIdentity::is_alive) {
                self.release(&name)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<FileLock> {
        create_private_dir(self.entries.dir())?;
        let lock = FileLock::acquire(&self.entries.dir().join(LOCK_FILE), LOCK_TIMEOUT);
        lock.map_err(io::Error::other)
    }

    /// Removes an entry and the placeholders that only it named.
    fn release(&self, name: &str) -> io::Result<()> {
        let released = self.entries.read(name)?;
        self.entries.remove(name)?;
        let others: Vec<_> =
            self.entries.list()?.into_iter().flat_map(|entry| entry.made).collect();
        let made = released.into_iter().flat_map(|entry| entry.made);
        for made in made.filter(|made| !others.contains(made) && made.is_unchanged()) {
            match made.content {
                Some(_) => remove_file(&made.path)?,
                None => remove_empty_dir(&made.path),
            }
        }
        Ok(())
    }
}

impl Drop for PlaceholderLease {
    fn drop(&mut self) {
        let released =
            self.placeholders.lock().and_then(|_lock| self.placeholders.release(&self.name));
        if let Err(error) = released {
            tracing::warn!(%error, "placeholders of a sandbox may be left until the next start");
        }
    }
}

impl MadePlaceholder {
    /// Creates a placeholder; `None` if there is something at its path.
    fn create(path: &Path, placeholder: &Placeholder) -> io::Result<Option<Self>> {
        let created = match placeholder {
            Placeholder::File { content } => write_new_file(path, content.as_bytes()),
            Placeholder::Folder => create_new_dir(path),
        };
        match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            created => created?,
        }
        let content = match placeholder {
            Placeholder::File { content } => Some((*content).to_owned()),
            Placeholder::Folder => None,
        };
        let found = fs::symlink_metadata(path)?;
        let path = path.to_path_buf();
        Ok(Some(Self { path, device: found.dev(), inode: found.ino(), content }))
    }

    fn is_unchanged(&self) -> bool {
        let Ok(found) = fs::symlink_metadata(&self.path) else { return false };
        if (found.dev(), found.ino()) != (self.device, self.inode) {
            return false;
        }
        match &self.content {
            Some(content) => {
                read_bounded(&self.path, MAX_BYTES).is_ok_and(|now| now == content.as_bytes())
            }
            None => fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_none()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(root: &Path) -> Vec<(PathBuf, Placeholder)> {
        vec![
            (root.join("file.json"), Placeholder::File { content: "{}" }),
            (root.join("folder"), Placeholder::Folder),
        ]
    }

    fn left(root: &Path) -> Vec<String> {
        let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "data");
        names.sort();
        names
    }

    #[test]
    fn placeholders_live_as_long_as_the_last_sandbox_that_needs_them() {
        let dir = tempfile::tempdir().unwrap();
        let placeholders = Placeholders::at(&dir.path().join("data"));
        let first = placeholders.acquire("a".into(), &wanted(dir.path())).unwrap();
        let second = placeholders.acquire("b".into(), &wanted(dir.path())).unwrap();
        drop(first);
        assert_eq!(left(dir.path()), ["file.json", "folder"]);
        assert_eq!(placeholders.paths().unwrap().len(), 2);
        drop(second);
        assert_eq!(left(dir.path()), [""; 0]);
    }

    #[test]
    fn what_a_person_has_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let placeholders = Placeholders::at(&dir.path().join("data"));
        fs::write(dir.path().join("file.json"), "theirs").unwrap();
        let lease = placeholders.acquire("a".into(), &wanted(dir.path())).unwrap();
        assert_eq!(placeholders.paths().unwrap(), [dir.path().join("folder")]);
        fs::write(dir.path().join("folder/new"), "theirs").unwrap();
        drop(lease);
        assert_eq!(left(dir.path()), ["file.json", "folder"]);
    }

    #[test]
    fn placeholders_of_a_killed_process_are_swept_but_not_those_of_a_living_one() {
        let dir = tempfile::tempdir().unwrap();
        let placeholders = Placeholders::at(&dir.path().join("data"));
        std::mem::forget(placeholders.acquire("dead".into(), &wanted(dir.path())).unwrap());
        let mut entry = placeholders.entries.read("dead").unwrap().unwrap();
        entry.owner.as_mut().unwrap().started = "before".into();
        placeholders.entries.write("dead", &entry).unwrap();
        let living = placeholders.acquire("alive".into(), &wanted(dir.path())[..1]).unwrap();
        placeholders.sweep().unwrap();
        assert_eq!(left(dir.path()), ["file.json"], "the folder was only the dead one's");
        drop(living);
        assert_eq!(left(dir.path()), [""; 0]);
    }
}
