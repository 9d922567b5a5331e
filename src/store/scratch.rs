//! Short-lived private files and directories, written without fsync.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::fault_point::fault_point;
use super::fs::parent_dir;

/// Replaces a file atomically with mode 0600, without fsync: it survives a crash of the process, not of the machine.
pub(crate) fn write_volatile(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(parent_dir(path))?;
    fault_point("volatile: created");
    file.write_all(bytes)?;
    fault_point("volatile: written");
    file.persist(path).map_err(|error| error.error)?;
    fault_point("volatile: renamed");
    Ok(())
}

/// Writes a new file with mode 0600; fails if the path exists, so that a planted symbolic link is never followed.
pub(crate) fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Writes a new script with mode 0700; fails if the path exists.
pub(crate) fn write_new_script(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Creates a directory with mode 0700; fails if the path exists.
pub(crate) fn create_new_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Sets mode 0600.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// Removes a directory if it is empty; errors are ignored.
pub(crate) fn remove_empty_dir(path: &Path) {
    let _ = fs::remove_dir(path);
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a directory with its content, never following symbolic links; a missing one is not an error.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        write_volatile(&file, b"one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(write_new_file(&link, b"two").is_err());
        write_volatile(&link, b"three").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"one", "the link was replaced, not followed");
    }
}
