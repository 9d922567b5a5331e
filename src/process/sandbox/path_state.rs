//! What is at a path of the host, for the plan of a sandbox.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    Missing,
    /// The path itself is a symbolic link.
    Link {
        target: PathBuf,
    },
    /// With the path after all links above it are resolved.
    File {
        real: PathBuf,
    },
    Folder {
        real: PathBuf,
    },
}

/// Folders and files of the system that programs need. Systems have some of them only.
const SYSTEM_PATHS: [&str; 24] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/pki/tls",
    "/etc/pki/ca-trust",
    "/etc/profile",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static/ssl",
    "/etc/timezone",
];

impl PathState {
    /// Looks at a path; the target of a link is resolved completely.
    pub fn read(path: &Path) -> io::Result<Self> {
        let kind = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if is_missing(&error) => return Ok(Self::Missing),
            Err(error) => return Err(error),
        };
        if kind.is_symlink() {
            let target = path.canonicalize().or_else(|_| fs::read_link(path))?;
            return Ok(Self::Link { target });
        }
        let real = path.canonicalize()?;
        Ok(if kind.is_dir() { Self::Folder { real } } else { Self::File { real } })
    }

    /// Returns the paths of the system that exist. Links are as they are written, so that they can be made again.
    pub fn of_system() -> io::Result<Vec<(PathBuf, Self)>> {
        let state = |path: &str| {
            let state = match Self::read(path.as_ref())? {
                Self::Link { .. } => Self::Link { target: fs::read_link(path)? },
                state => state,
            };
            Ok((PathBuf::from(path), state))
        };
        SYSTEM_PATHS.into_iter().map(state).collect()
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_told_from_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", root.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
        let read = |name: &str| PathState::read(&root.join(name)).unwrap();
        assert_eq!(read("file"), PathState::File { real: root.join("file") });
        assert_eq!(read("link"), PathState::Link { target: root.join("file") });
        assert_eq!(read("dangling"), PathState::Link { target: "nowhere".into() });
        assert_eq!(read("missing"), PathState::Missing);
        assert_eq!(read("file/x"), PathState::Missing);
        assert_eq!(read(""), PathState::Folder { real: root });
    }
}
