//! Resolution of a path to the file that opening it would reach, even if it does not exist yet.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Symbolic links followed per path, as in Linux (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Returns an absolute path without symbolic links, `.` and `..`.
///
/// Unlike `fs::canonicalize`, components that do not exist are kept, and a dangling symbolic link resolves to its
/// target: the file that a write would create.
///
/// # Errors
///
/// If the path is relative or has a NUL byte, if a component cannot be looked up (permission denied, name too long),
/// after 40 symbolic links, and for links in `/proc`: `/proc/self/cwd` has a different target in each process.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an absolute path"));
    }
    let mut real = PathBuf::from("/");
    let mut left = path_components(path);
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        match fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                if real.starts_with("/proc") {
                    return Err(io::Error::other("it leads over a link in /proc"));
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many symbolic links"));
                }
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                for part in path_components(&target).into_iter().rev() {
                    left.push_front(part);
                }
            }
            Ok(_) => real = next,
            Err(error) if is_not_found(&error) => real = next,
            Err(error) => return Err(error),
        }
    }
    Ok(real)
}

/// Removes `.` and `..` from an absolute path lexically, as Claude Code does before it opens a file.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path_components(path) {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Returns the normal components and `..`; the root and `.` are left out.
fn path_components(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_to_missing_files_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/file"), "").unwrap();
        symlink("a/b", root.join("near")).unwrap();
        symlink(root.join("a"), root.join("far")).unwrap();
        symlink("a/new/file", root.join("dangling")).unwrap();
        symlink("dangling", root.join("twice")).unwrap();
        let cases = [
            ("a/file", "a/file"),
            ("far/file", "a/file"),
            ("near/../file", "a/file"),
            ("near/x/../../y", "a/y"),
            ("dangling", "a/new/file"),
            ("twice", "a/new/file"),
            ("none/./x//y/", "none/x/y"),
            ("a/file/below", "a/file/below"),
        ];
        for (given, expected) in cases {
            assert_eq!(real_path(&root.join(given)).unwrap(), root.join(expected), "{given}");
        }
        assert_eq!(normalize(&root.join("near/../file")), root.join("file"));
        assert_eq!(normalize(Path::new("/../../x")), Path::new("/x"));
    }

    #[test]
    fn unresolvable_paths_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(real_path(&dir.path().join("loop/x")).is_err());
        assert!(real_path(Path::new("relative")).is_err());
        if cfg!(target_os = "linux") {
            symlink("/proc/self/cwd", dir.path().join("cwd")).unwrap();
            assert!(real_path(Path::new("/proc/self/cwd/x")).is_err());
            assert!(real_path(&dir.path().join("cwd/x")).is_err(), "also behind another link");
            assert!(real_path(Path::new("/proc/version")).is_ok());
        }
        assert!(real_path(Path::new("/a\0b")).is_err());
        assert!(real_path(&dir.path().join("x".repeat(300))).is_err(), "name too long");
    }
}
