//! Private directory for the files of one run, `data/tmp/<run>`, removed when the run ends.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::{OwnedDir, remove_unowned_dirs, write_new_file};
use crate::util::RunId;

/// Parent directory below the data directory.
const TMP_DIR: &str = "tmp";

/// A directory with mode 0700, removed with its content when dropped.
#[derive(Debug)]
pub struct RunDir {
    dir: OwnedDir,
}

impl RunDir {
    /// Creates `tmp/<run>` below the data directory; fails if the directory exists.
    pub fn create(data_dir: &Path, run: RunId) -> io::Result<Self> {
        Ok(Self { dir: OwnedDir::create(&data_dir.join(TMP_DIR), &run.simple().to_string())? })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a new file with mode 0600 and returns its path; fails if the file exists.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        write_new_file(&path, content)?;
        Ok(path)
    }
}

/// Removes directories without a living owner and returns their paths.
pub(crate) fn remove_stale(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    remove_unowned_dirs(&data_dir.join(TMP_DIR), |name| name.parse::<RunId>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_run_directory_is_private_and_removed_on_drop() {
        let data = tempfile::tempdir().unwrap();
        let folder = RunDir::create(data.path(), RunId::new()).unwrap();
        let file = folder.write("prompt.txt", b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(folder.path()), mode(&file)), (0o700, 0o600));
        assert!(folder.write("prompt.txt", b"again").is_err(), "a file is written once");
        drop(folder);
        assert_eq!(fs::read_dir(data.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn i4_an_existing_directory_is_never_reused() {
        let data = tempfile::tempdir().unwrap();
        let run = RunId::new();
        let planted = data.path().join("tmp").join(run.simple().to_string());
        fs::create_dir_all(planted.join("x")).unwrap();
        assert!(RunDir::create(data.path(), run).is_err());
    }

    #[test]
    fn only_unlocked_run_directories_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let held = RunDir::create(data.path(), RunId::new()).unwrap();
        let stale = data.path().join("tmp").join(RunId::new().simple().to_string());
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("left"), "").unwrap();
        fs::create_dir(data.path().join("tmp/somebody-elses")).unwrap();
        assert_eq!(remove_stale(data.path()).unwrap(), [stale]);
        assert!(held.path().exists());
        assert!(data.path().join("tmp/somebody-elses").exists());
    }
}
