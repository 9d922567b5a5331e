//! The one door to the disk: files are written whole or not at all, and are private.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PRIVATE_FILE: u32 = 0o600;
const SHARED_FILE: u32 = 0o666;
const PRIVATE_DIR: u32 = 0o700;
const STAGED_PREFIX: &str = ".staged-";

/// Writes `bytes` so that a reader, or a crash at any moment, sees the old content or the new one whole.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, bytes, PRIVATE_FILE)
}

/// Writes a file of the project that people share, as whole as [`write_atomic`] does: with the folders
/// above it, and readable to whom the umask lets read.
pub fn write_project_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(parent_of(path))?;
    replace_with(path, bytes, SHARED_FILE)
}

fn replace_with(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let parent = parent_of(path);
    // Given to `open`, so that the umask has its say.
    let permissions = fs::Permissions::from_mode(mode);
    let mut file =
        tempfile::Builder::new().prefix(".tmp-").permissions(permissions).tempfile_in(parent)?;
    // The mode of an existing file is kept: a shared `.mcp.json` must stay readable to its readers.
    if let Ok(existing) = fs::metadata(path) {
        let mode = existing.permissions().mode() & 0o777;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The rename itself is durable only once the folder is.
    File::open(parent)?.sync_all()
}

/// Content written beside its place and safe on the disk, not yet to be seen there.
///
/// Large content is staged without holding a lock and committed under one. The file is locked while it
/// is staged, so that [`sweep_staged`] can tell what a crash left behind from what is being written.
#[derive(Debug)]
pub struct Staged {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Writes `bytes` beside `path`, readable by its owner alone whatever stood there before.
    pub fn private(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut file = tempfile::Builder::new()
            .prefix(STAGED_PREFIX)
            .permissions(fs::Permissions::from_mode(PRIVATE_FILE))
            .tempfile_in(parent_of(path))?;
        file.as_file().try_lock().map_err(io::Error::other)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        Ok(Self { file, path: path.to_path_buf() })
    }

    /// Puts it in its place, for good.
    pub fn commit(self) -> io::Result<()> {
        self.file.persist(&self.path).map_err(|error| error.error)?;
        File::open(parent_of(&self.path))?.sync_all()
    }
}

/// Removes what processes that died left staged in `dir`.
pub fn sweep_staged(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let staged = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(STAGED_PREFIX));
    for entry in staged {
        let Ok(file) = File::open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes `bytes` at offset `end` of a journal and waits until they are safe. What stands behind `end`
/// is a line that a crash or a full disk tore, and goes.
pub fn append_durably(path: &Path, end: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Moves whatever stands at `path` to `aside`, which must be free.
pub fn set_aside(path: &Path, aside: &Path) -> io::Result<()> {
    if fs::symlink_metadata(aside).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(path, aside)
}

/// Removes a file; one that is gone already is fine.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Appends one line in one write, so that lines of several processes never mix.
pub fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 1);
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)?;
    file.write_all(&bytes)
}

/// Creates a folder, and those above it, that only its owner can enter, whatever the umask.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_DIR))
}

/// Whether a file could be made in a folder now; makes the folder where it is missing.
pub fn check_writable(path: &Path) -> io::Result<()> {
    create_private_dir(path)?;
    tempfile::tempfile_in(path).map(drop)
}

/// A folder for a moment: private, and gone with all that is in it when dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl ScratchDir {
    /// A new one, where the system keeps such things.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("adjutant-").tempdir()?;
        Ok(Self { path: folder.path().canonicalize()?, _folder: folder })
    }

    /// Where it is, without links on the way.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a regular file of at most `limit` bytes, without waiting on FIFOs or devices.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, ReadRefused> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    read_open(&file, limit).map(|(bytes, _)| bytes)
}

/// Reads as [`read_bounded`] does, and only what lies below `root`: a symlink that leaves it is refused, unread.
pub fn read_inside(
    root: &Path,
    path: &Path,
    limit: u64,
) -> Result<(Vec<u8>, fs::Metadata), ReadRefused> {
    match open_unfollowed(path) {
        Ok(file) => read_open(&file, limit),
        Err(error) if error.raw_os_error() == Some(nix::libc::ELOOP) => {
            let target = path.canonicalize()?;
            if !target.starts_with(root) {
                return Err(ReadRefused::LeavesRoot { target });
            }
            read_open(&open_unfollowed(&target)?, limit)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens without waiting for the other end of a FIFO and without following a link in the last place.
fn open_unfollowed(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

fn read_open(file: &File, limit: u64) -> Result<(Vec<u8>, fs::Metadata), ReadRefused> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadRefused::NotAFile);
    }
    if metadata.len() > limit {
        return Err(ReadRefused::TooLarge { bytes: metadata.len(), limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(ReadRefused::TooLarge { bytes: bytes.len() as u64, limit });
    }
    Ok((bytes, metadata))
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadRefused {
    /// The system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A folder, FIFO, socket or device.
    #[error("it is not a regular file")]
    NotAFile,
    /// More than the limit.
    #[error("it has {bytes} bytes, more than the {limit} that are read")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most that is read.
        limit: u64,
    },
    /// A symlink to somewhere outside of the project.
    #[error("it is a symlink that leaves the project, to `{}`", target.display())]
    LeavesRoot {
        /// Where it leads.
        target: PathBuf,
    },
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_private_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_project_file_gets_its_folders_and_keeps_its_mode() {
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
    fn a_fifo_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read_bounded(&path, 10), Err(ReadRefused::NotAFile)));
    }

    #[test]
    fn a_symlink_is_followed_inside_the_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("inside"), "in").unwrap();
        fs::write(dir.path().join("outside"), "out").unwrap();
        std::os::unix::fs::symlink("inside", root.join("near")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("far")).unwrap();
        assert_eq!(read_inside(&root, &root.join("near"), 10).unwrap().0, b"in");
        let refused = read_inside(&root, &root.join("far"), 10);
        assert!(matches!(refused, Err(ReadRefused::LeavesRoot { .. })));
    }

    #[test]
    fn a_large_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        File::create(&path).unwrap().set_len(5 << 30).unwrap();
        assert!(matches!(read_bounded(&path, 1 << 20), Err(ReadRefused::TooLarge { .. })));
    }
}
