//! A private folder for the files of one run, gone when the run is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{
    FileLock, RunId, create_new_dir, create_private_dir, remove_tree, rename, write_new,
};

/// Its place under the data folder.
const FOLDER: &str = "tmp";
/// Locked while the folder is in use; the lock dies with its holder.
const HELD: &str = ".held";
/// Before a folder is locked it has a name with this in front.
const UNFINISHED: &str = ".new-";
/// Nobody takes this long between creating a folder and locking it.
const UNFINISHED_AGE: Duration = Duration::from_mins(1);

/// A folder that only this user can enter, removed with everything in it when dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _held: FileLock,
}

impl RunFolder {
    /// Creates `tmp/<run>` under the data folder; one that is already there is refused, never reused.
    pub fn create(data_dir: &Path, run: RunId) -> io::Result<Self> {
        let parent = data_dir.join(FOLDER);
        create_private_dir(&parent)?;
        let unfinished = parent.join(format!("{UNFINISHED}{run}"));
        let path = parent.join(run.to_string());
        create_new_dir(&unfinished)?;
        let made = lock_and_name(&unfinished, &path);
        if made.is_err() {
            let _ = remove_tree(&unfinished);
        }
        Ok(Self { path, _held: made? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a private file that must not be there yet, and says where it is.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        write_new(&path, content)?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, "a run's folder could not be removed");
        }
    }
}

fn lock_and_name(unfinished: &Path, path: &Path) -> io::Result<FileLock> {
    let held = FileLock::try_acquire(&unfinished.join(HELD)).map_err(io::Error::other)?;
    rename(unfinished, path)?;
    Ok(held)
}

/// Removes the folders whose holder is gone, and returns them.
pub(super) fn remove_stale(data_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data_dir.join(FOLDER)).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| entry.path())
        .filter(|path| is_stale(path) && remove_tree(path).is_ok())
        .collect()
}

fn is_stale(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(UNFINISHED) {
        let age = fs::metadata(path)
            .and_then(|m| m.modified())
            .map(|time| time.elapsed().unwrap_or_default());
        return age.is_ok_and(|age| age > UNFINISHED_AGE);
    }
    // Only folders that have the shape of ours.
    name.parse::<RunId>().is_ok() && FileLock::try_acquire(&path.join(HELD)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_gone_with_its_run() {
        let data = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(data.path(), RunId::new()).unwrap();
        let file = folder.write("prompt.txt", b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(folder.path()), mode(&file)), (0o700, 0o600));
        assert!(folder.write("prompt.txt", b"again").is_err(), "a file is written once");
        drop(folder);
        assert_eq!(fs::read_dir(data.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn i4_a_folder_is_never_reused() {
        let data = tempfile::tempdir().unwrap();
        let run = RunId::new();
        let planted = data.path().join("tmp").join(run.to_string());
        fs::create_dir_all(planted.join("x")).unwrap();
        assert!(RunFolder::create(data.path(), run).is_err());
    }

    #[test]
    fn only_folders_without_a_holder_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let held = RunFolder::create(data.path(), RunId::new()).unwrap();
        let stale = data.path().join("tmp").join(RunId::new().to_string());
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("left"), "").unwrap();
        fs::create_dir(data.path().join("tmp/somebody-elses")).unwrap();
        assert_eq!(remove_stale(data.path()), [stale]);
        assert!(held.path().exists());
        assert!(data.path().join("tmp/somebody-elses").exists());
    }
}
