//! A folder copied whole, with nothing in it that leads elsewhere.

use std::fs;
use std::io;
use std::path::Path;

/// More than this is no bundle of agents and servers.
const MOST_FILES: u32 = 20_000;
const MOST_BYTES: u64 = 512 << 20;
const DEEPEST: u32 = 32;

/// Copies a folder to a place where nothing is. Only files and folders: a symlink could lead anywhere once it lies
/// elsewhere, so one is an error. What was copied of a failed attempt is removed again.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above)?;
    }
    fs::create_dir(to)?;
    let copied = Copying { files: 0, bytes: 0 }.folder(from, to, 0);
    if copied.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_dir_all(to);
    }
    copied
}

struct Copying {
    files: u32,
    bytes: u64,
}

impl Copying {
    fn folder(&mut self, from: &Path, to: &Path, depth: u32) -> io::Result<()> {
        for item in fs::read_dir(from)? {
            let item = item?;
            let (kind, source) = (item.file_type()?, item.path());
            let target = to.join(item.file_name());
            if kind.is_dir() && depth < DEEPEST {
                fs::create_dir(&target)?;
                self.folder(&source, &target, depth + 1)?;
            } else if kind.is_file() {
                self.count(item.metadata()?.len())?;
                fs::copy(&source, &target)?;
            } else {
                let what = format!("`{}` is neither a file nor a folder", source.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> io::Result<()> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.files > MOST_FILES || self.bytes > MOST_BYTES {
            let what = "it has more files or bytes than can be taken";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }
}
