//! File primitives: atomic replacement, durable appends, staged writes, bounded reads.
//!
//! Files created here have mode 0600 and directories 0700, except project files, which follow the umask. All functions
//! block on disk I/O.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fault_point::fault_point;
use super::version::FileVersion;

const PRIVATE_FILE_MODE: u32 = 0o600;
const PROJECT_FILE_MODE: u32 = 0o666;
const PRIVATE_DIR_MODE: u32 = 0o700;
const STAGED_PREFIX: &str = ".staged-";
/// A staged file is locked within microseconds of its creation.
const MIN_SWEEP_AGE: Duration = Duration::from_mins(1);

/// Replaces the file atomically and durably (temporary file, fsync, rename, fsync of the directory).
///
/// After a crash the file has either the old or the new content. A new file gets mode 0600; an existing file keeps its
/// mode.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file(path, bytes, PRIVATE_FILE_MODE)
}

/// Writes a file that people share, atomically like [`write_atomic`].
///
/// Creates missing parent directories. A new file gets mode 0666 reduced by the umask.
pub(crate) fn write_project_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(parent_dir(path))?;
    replace_file(path, bytes, PROJECT_FILE_MODE)
}

fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let parent = parent_dir(path);
    // Set when the file is created, because only then the umask applies.
    let permissions = fs::Permissions::from_mode(mode);
    let mut file =
        tempfile::Builder::new().prefix(".tmp-").permissions(permissions).tempfile_in(parent)?;
    // Keep the mode of an existing file: a shared `.mcp.json` must stay readable for its users.
    if let Ok(existing) = fs::metadata(path) {
        let mode = existing.permissions().mode() & 0o777;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    }
    fault_point("replace: temporary file created");
    file.write_all(bytes)?;
    fault_point("replace: written");
    file.as_file().sync_all()?;
    fault_point("replace: synced");
    file.persist(path).map_err(|error| error.error)?;
    fault_point("replace: renamed");
    // The rename is durable only after an fsync of the directory.
    sync_dir(parent)
}

/// A file written and synced beside its target, not yet renamed over it.
///
/// Large content is staged without a lock and committed under one. The staged file is flocked while it exists, so that
/// [`sweep_staged`] can distinguish a file in use from one left by a crash. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct StagedFile {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl StagedFile {
    /// Writes `bytes` to a new file beside `path` with mode 0600, whatever the mode of an existing file.
    pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut file = tempfile::Builder::new()
            .prefix(&staged_prefix(path))
            .permissions(fs::Permissions::from_mode(PRIVATE_FILE_MODE))
            .tempfile_in(parent_dir(path))?;
        fault_point("stage: created");
        file.as_file().try_lock().map_err(io::Error::other)?;
        fault_point("stage: locked");
        file.write_all(bytes)?;
        fault_point("stage: written");
        file.as_file().sync_all()?;
        fault_point("stage: synced");
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Renames the staged file over its target and syncs the directory.
    pub(crate) fn commit(self) -> io::Result<()> {
        self.file.persist(&self.path).map_err(|error| error.error)?;
        fault_point("stage: renamed");
        sync_dir(parent_dir(&self.path))
    }
}

/// Names a staged file after its target, so that a document can remove its own leftovers.
fn staged_prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(STAGED_PREFIX);
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push("-");
    prefix
}

/// Removes the files staged for `path`. Only for a caller whose lock keeps every other writer of `path` out. Errors
/// are ignored: a leftover is never read.
pub(super) fn remove_staged_for(path: &Path) {
    let prefix = staged_prefix(path);
    let entries = fs::read_dir(parent_dir(path)).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes staged files in `dir` that no process has locked: their writers died. Errors are ignored.
///
/// Younger files stay: another process could have created one and not locked it yet. Its write would fail.
pub(crate) fn sweep_staged(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let staged = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(STAGED_PREFIX));
    for entry in staged {
        let Ok(file) = File::open(entry.path()) else { continue };
        let modified = file.metadata().and_then(|metadata| metadata.modified());
        let age = modified.map(|modified| modified.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age >= MIN_SWEEP_AGE) && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes `bytes` at offset `end` of a journal and waits for `fdatasync`.
///
/// Bytes behind `end` are a torn write of a crash or a full disk and are truncated.
pub fn append_durably(path: &Path, end: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE_MODE)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    // The file name must be durable before the first line is. Checked by `end` and not by the creation of the file: a
    // process that died in between left an empty file whose name may not be durable.
    if end == 0 {
        sync_dir(parent_dir(path))?;
    }
    fault_point("append: opened");
    file.set_len(end)?;
    fault_point("append: truncated");
    file.seek(SeekFrom::Start(end))?;
    // In two parts, so that a crash test sees a torn line; outside of tests this is one write.
    write_in_parts(&mut file, bytes)?;
    fault_point("append: written");
    file.sync_data()
}

#[cfg(not(test))]
fn write_in_parts(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}

#[cfg(test)]
fn write_in_parts(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    fault_point("append: half written");
    file.write_all(second)
}

/// Renames `path` to `aside`; fails with `AlreadyExists` if `aside` exists.
pub(super) fn move_aside(path: &Path, aside: &Path) -> io::Result<()> {
    if fs::symlink_metadata(aside).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(path, aside)
}

/// Removes a file; a missing file is not an error.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Appends one line with a single `O_APPEND` write; lines of several processes do not interleave.
///
/// Not durable: without fsync.
pub(crate) fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE_MODE).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Creates a directory and its missing parents with mode 0700, whatever the umask. An existing one is left as it is.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR_MODE).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_DIR_MODE))
}

/// Checks that a file can be created in the directory; creates the directory if it is missing.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    create_private_dir(path)?;
    tempfile::tempfile_in(path).map(drop)
}

/// A private temporary directory, removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl ScratchDir {
    /// Creates the directory below the system's temporary directory.
    pub(crate) fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("adjutant-").tempdir()?;
        Ok(Self { path: folder.path().canonicalize()?, _folder: folder })
    }

    /// Returns the path with symbolic links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a regular file of at most `limit` bytes; does not block on FIFOs or devices.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, BoundedReadError> {
    read_versioned(path, limit).map(|(bytes, _)| bytes)
}

/// Reads a file like [`read_bounded`], with the version it had before it was read.
pub(super) fn read_versioned(
    path: &Path,
    limit: u64,
) -> Result<(Vec<u8>, FileVersion), BoundedReadError> {
    let (bytes, metadata) = read_open_file(open_nonblocking(path)?, 0, limit)?;
    Ok((bytes, FileVersion::from_metadata(&metadata)))
}

/// Reads a file like [`read_bounded`], from `offset` to its end.
pub(super) fn read_from(path: &Path, offset: u64, limit: u64) -> Result<Vec<u8>, BoundedReadError> {
    read_open_file(open_nonblocking(path)?, offset, limit).map(|(bytes, _)| bytes)
}

/// Reads a file like [`read_bounded`]; a symbolic link that leads outside `root` is refused unread.
pub(crate) fn read_within_root(
    root: &Path,
    path: &Path,
    limit: u64,
) -> Result<(Vec<u8>, fs::Metadata), BoundedReadError> {
    match open_no_follow(path) {
        Ok(file) => read_open_file(file, 0, limit),
        Err(error) if error.raw_os_error() == Some(nix::libc::ELOOP) => {
            let target = path.canonicalize()?;
            if !target.starts_with(root) {
                return Err(BoundedReadError::EscapesRoot { target });
            }
            read_open_file(open_no_follow(&target)?, 0, limit)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a file with `O_NONBLOCK`: a FIFO does not block.
fn open_nonblocking(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open(path)
}

/// Opens a file with `O_NONBLOCK` and `O_NOFOLLOW` for the last component.
fn open_no_follow(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

fn read_open_file(
    mut file: File,
    offset: u64,
    limit: u64,
) -> Result<(Vec<u8>, fs::Metadata), BoundedReadError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(BoundedReadError::NotRegularFile);
    }
    let within_limit = |bytes| match bytes > limit {
        true => Err(BoundedReadError::TooLarge { bytes, limit }),
        false => Ok(()),
    };
    let expected = metadata.len().saturating_sub(offset);
    within_limit(expected)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut bytes)?;
    within_limit(bytes.len() as u64)?;
    Ok((bytes, metadata))
}

/// Reasons why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum BoundedReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory, FIFO, socket or device.
    #[error("it is not a regular file")]
    NotRegularFile,
    #[error("it has {bytes} bytes, more than the {limit} that are read")]
    TooLarge { bytes: u64, limit: u64 },
    /// A symbolic link that leads outside the root.
    #[error("it is a symlink that leaves the project, to `{}`", target.display())]
    EscapesRoot { target: PathBuf },
}

/// Reads a directory; a missing one is empty.
pub(super) fn entries_if_exists(
    dir: &Path,
) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}

/// Syncs a directory: fsync of a file does not make its name durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()?;
    #[cfg(test)]
    tests::SYNCED_DIRS.with_borrow_mut(|synced| synced.push(dir.to_path_buf()));
    Ok(())
}

pub(super) fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fault_point::harness;
    use std::cell::RefCell;

    thread_local! {
        /// Directories that this thread has synced.
        pub(crate) static SYNCED_DIRS: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn defect_6_the_directory_of_a_new_journal_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.journal");
        append_durably(&path, 0, b"one\n").unwrap();
        assert_eq!(SYNCED_DIRS.take(), [dir.path()], "else the new file is lost with the power");
        append_durably(&path, 4, b"two\n").unwrap();
        assert_eq!(SYNCED_DIRS.take(), Vec::<PathBuf>::new(), "its name is durable already");
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_killed_atomic_write_leaves_the_old_or_the_new_content() {
        if let Some(dir) = harness::child_dir() {
            write_atomic(&dir.join("a.json"), b"new").unwrap();
            return;
        }
        let points = harness::kill_at_every_point(
            "store::fs::tests::a_killed_atomic_write_leaves_the_old_or_the_new_content",
            |dir| fs::write(dir.join("a.json"), "old").unwrap(),
            |dir, point| {
                let expected: &[u8] = if point < 4 { b"old" } else { b"new" };
                assert_eq!(fs::read(dir.join("a.json")).unwrap(), expected, "point {point}");
            },
        );
        assert_eq!(points, 4);
    }

    #[test]
    fn a_killed_append_leaves_every_byte_before_its_end() {
        if let Some(dir) = harness::child_dir() {
            append_durably(&dir.join("a.journal"), 4, b"two\n").unwrap();
            return;
        }
        let points = harness::kill_at_every_point(
            "store::fs::tests::a_killed_append_leaves_every_byte_before_its_end",
            |dir| fs::write(dir.join("a.journal"), "one\ntorn").unwrap(),
            |dir, point| {
                let left = fs::read(dir.join("a.journal")).unwrap();
                let expected: &[u8] = match point {
                    1 => b"one\ntorn",
                    2 => b"one\n",
                    3 => b"one\ntw",
                    _ => b"one\ntwo\n",
                };
                assert_eq!(left, expected, "point {point}");
            },
        );
        assert_eq!(points, 4);
    }

    #[test]
    fn an_atomic_write_replaces_the_content_and_sets_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn writing_a_project_file_creates_directories_and_keeps_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c.json");
        write_project_file(&path, b"one").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path) & 0o600, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_project_file(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn reading_a_fifo_fails_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read_bounded(&path, 10), Err(BoundedReadError::NotRegularFile)));
    }

    #[test]
    fn symlinks_are_followed_within_the_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("inside"), "in").unwrap();
        fs::write(dir.path().join("outside"), "out").unwrap();
        std::os::unix::fs::symlink("inside", root.join("near")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("far")).unwrap();
        assert_eq!(read_within_root(&root, &root.join("near"), 10).unwrap().0, b"in");
        let refused = read_within_root(&root, &root.join("far"), 10);
        assert!(matches!(refused, Err(BoundedReadError::EscapesRoot { .. })));
    }

    #[test]
    fn files_above_the_limit_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        File::create(&path).unwrap().set_len(5 << 30).unwrap();
        assert!(matches!(read_bounded(&path, 1 << 20), Err(BoundedReadError::TooLarge { .. })));
    }
}
