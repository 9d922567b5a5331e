//! Recursive copy of a directory, for the installation of extensions.

use std::path::Path;
use std::{fs, io};

/// Limits of one copy: 20,000 files, 512 MiB, 32 levels. No bundle of agents and servers needs more.
const MAX_FILES: u32 = 20_000;
const MAX_BYTES: u64 = 512 << 20;
const MAX_DEPTH: u32 = 32;

/// Copies a directory to a path that does not exist yet.
///
/// # Errors
///
/// For a symbolic link or special file (a link could lead anywhere at its new place), beyond the limits, and if `to`
/// exists. A failed copy is removed.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    fs::create_dir(to)?;
    let copied = TreeCopy { files: 0, bytes: 0 }.copy_dir(from, to, 0);
    if copied.is_err() {
        // Report the first error, not that of the cleanup.
        let _ = fs::remove_dir_all(to);
    }
    copied
}

struct TreeCopy {
    files: u32,
    bytes: u64,
}

impl TreeCopy {
    fn copy_dir(&mut self, from: &Path, to: &Path, depth: u32) -> io::Result<()> {
        for item in fs::read_dir(from)? {
            let item = item?;
            let (kind, source) = (item.file_type()?, item.path());
            let target = to.join(item.file_name());
            if kind.is_dir() && depth < MAX_DEPTH {
                fs::create_dir(&target)?;
                self.copy_dir(&source, &target, depth + 1)?;
            } else if kind.is_file() {
                self.count_file(item.metadata()?.len())?;
                fs::copy(&source, &target)?;
            } else {
                let what = format!("`{}` is neither a file nor a folder", source.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        Ok(())
    }

    fn count_file(&mut self, bytes: u64) -> io::Result<()> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.files > MAX_FILES || self.bytes > MAX_BYTES {
            let what = "it has more files or bytes than can be taken";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }
}
