//! The directory in which a hook and the server meet: `/run/user/<uid>/adjutant/<pid>-<start time>` (or
//! `/tmp/adjutant-<uid>/…`), named after the `claude` process that is an ancestor of both.
//!
//! Both sides compute the path from `/proc`; it is never passed along. The pid does not change when the user clears the
//! session, and the start time distinguishes the process from a later one with the same pid. `CLAUDE_CODE_SESSION_ID`
//! only identifies which ancestor is Claude Code. Directories not owned by us with mode 0700 are refused.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::config::CLAUDE_CODE_SESSION_ID;
use crate::process::ProcessStat;
use crate::store::{create_private_dir, remove_file, remove_tree};

/// Extension of a server's socket.
pub(crate) const SOCKET_EXTENSION: &str = "sock";
/// Extension of a server's spool directory.
pub(crate) const SPOOL_EXTENSION: &str = "inbox";

/// Returns the `claude` process that started this one, directly or through others.
///
/// Claude Code sets `CLAUDE_CODE_SESSION_ID` for its children but does not have it itself, so the nearest ancestor
/// without the variable, or with another value, is Claude Code. Without the variable it is the parent process.
pub(crate) fn claude_ancestor() -> Option<ProcessStat> {
    let own = ProcessStat::current()?;
    let session = env::var(CLAUDE_CODE_SESSION_ID).ok().filter(|id| !id.is_empty());
    let Some(session) = session else { return own.ancestors().next() };
    own.ancestors().find(|above| session_id_of(above.pid).as_deref() != Some(session.as_str()))
}

fn session_id_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        (name == CLAUDE_CODE_SESSION_ID).then(|| value.to_owned())
    })
}

/// Returns the directory that contains the endpoint directories of this user.
pub(crate) fn runtime_dir() -> PathBuf {
    let user = nix::unistd::geteuid().as_raw();
    let runtime = PathBuf::from(format!("/run/user/{user}"));
    let is_ours = fs::symlink_metadata(&runtime).is_ok_and(|found| is_private(&found, user));
    if is_ours { runtime.join("adjutant") } else { PathBuf::from(format!("/tmp/adjutant-{user}")) }
}

/// Returns the endpoint directory of the descendants of a `claude` process.
pub(crate) fn endpoint_dir(base_dir: &Path, claude: &ProcessStat) -> PathBuf {
    base_dir.join(process_file_name(claude))
}

/// Returns `<pid>-<start time>`, the file name of a process.
pub(crate) fn process_file_name(process: &ProcessStat) -> String {
    format!("{}-{}", process.pid, process.start_time)
}

/// Creates the endpoint directory and removes files and directories of dead processes.
///
/// Fails if a directory is not owned by this user with mode 0700.
pub(crate) fn prepare_endpoint_dir(base_dir: &Path, claude: &ProcessStat) -> io::Result<PathBuf> {
    create_private_dir(base_dir)?;
    ensure_private(base_dir)?;
    remove_stale(base_dir);
    let dir = endpoint_dir(base_dir, claude);
    create_private_dir(&dir)?;
    ensure_private(&dir)?;
    remove_stale(&dir);
    Ok(dir)
}

/// Fails unless the path is a directory (not a link) owned by this user with mode 0700.
pub(crate) fn ensure_private(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    if is_private(&found, nix::unistd::geteuid().as_raw()) {
        return Ok(());
    }
    let why = format!("`{}` is not a folder of this user alone", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn is_private(found: &fs::Metadata, user: u32) -> bool {
    found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700
}

/// Removes entries named after dead processes: directories of a `claude`, sockets of a server.
fn remove_stale(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if live_process_of(&path).is_some() {
            continue;
        }
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_tree(&path),
            _ => remove_file(&path),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = %path.display(), "a left-over could not be removed");
        }
    }
}

/// Returns the living process that a file or directory is named after.
pub(crate) fn live_process_of(path: &Path) -> Option<ProcessStat> {
    let (pid, started) = path.file_stem()?.to_str()?.split_once('-')?;
    let found = ProcessStat::read(pid.parse().ok()?)?;
    (found.start_time == started.parse::<u64>().ok()? && !found.is_dead()).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn files_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base_dir = dir.path().join("runtime");
        let own = ProcessStat::current().unwrap();
        let dir = prepare_endpoint_dir(&base_dir, &own).unwrap();
        let of_living = dir.join(format!("{}.{SOCKET_EXTENSION}", process_file_name(&own)));
        let of_dead = dir.join(format!("{}-{}.{SOCKET_EXTENSION}", own.pid, own.start_time - 1));
        drop(UnixListener::bind(&of_dead).unwrap());
        let _living = UnixListener::bind(&of_living).unwrap();
        fs::create_dir(base_dir.join("1-1")).unwrap();
        prepare_endpoint_dir(&base_dir, &own).unwrap();
        assert!(of_living.exists() && !of_dead.exists() && !base_dir.join("1-1").exists());
    }

    #[test]
    fn directories_open_to_others_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let own = ProcessStat::current().unwrap();
        assert!(prepare_endpoint_dir(&open, &own).is_err());
        let private = dir.path().join("private");
        create_private_dir(&private).unwrap();
        symlink(&private, dir.path().join("link")).unwrap();
        assert!(prepare_endpoint_dir(&dir.path().join("link"), &own).is_err());
    }
}
