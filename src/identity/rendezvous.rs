//! Where a hook finds the server: a private folder named by the `claude` process that both descend from.
//!
//! Its pid does not change when a conversation is cleared, and its start time tells it from a later process of
//! the same pid. No variable and no setting takes part: both sides find the place by looking at processes.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::{ProcessStat, create_private_dir, remove_file, remove_tree};
use crate::config::env_vars::CLAUDE_CODE_SESSION_ID;

/// A server's socket.
pub(super) const SOCKET: &str = "sock";
/// A server's folder for files, where it could not have a socket.
pub(super) const INBOX: &str = "inbox";

/// The `claude` that this process was started by, whatever stands between the two.
///
/// Claude Code gives its children a variable that it does not have itself, so the first process above that lacks it,
/// or has another, is Claude Code. Without the variable it is the process that started this one.
pub fn claude_above() -> Option<ProcessStat> {
    let own = ProcessStat::own()?;
    let session = env::var(CLAUDE_CODE_SESSION_ID).ok().filter(|id| !id.is_empty());
    let Some(session) = session else { return own.ancestors().next() };
    own.ancestors().find(|above| session_of(above.pid).as_deref() != Some(session.as_str()))
}

fn session_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        (name == CLAUDE_CODE_SESSION_ID).then(|| value.to_owned())
    })
}

/// Where all meeting places of this user are.
pub(super) fn house() -> PathBuf {
    let user = nix::unistd::geteuid().as_raw();
    let runtime = PathBuf::from(format!("/run/user/{user}"));
    let is_ours = fs::symlink_metadata(&runtime).is_ok_and(|found| is_private(&found, user));
    if is_ours { runtime.join("adjutant") } else { PathBuf::from(format!("/tmp/adjutant-{user}")) }
}

/// The place of those who descend from this process.
pub(super) fn place_of(house: &Path, claude: &ProcessStat) -> PathBuf {
    house.join(name_of(claude))
}

/// What a process is called in a file's name.
pub(super) fn name_of(process: &ProcessStat) -> String {
    format!("{}-{}", process.pid, process.started)
}

/// Makes the place, and removes what dead processes left in this house.
pub(super) fn prepare(house: &Path, claude: &ProcessStat) -> io::Result<PathBuf> {
    create_private_dir(house)?;
    ensure_private(house)?;
    sweep(house);
    let place = place_of(house, claude);
    create_private_dir(&place)?;
    ensure_private(&place)?;
    sweep(&place);
    Ok(place)
}

/// Refuses a folder that somebody else owns or can enter, and a link to one.
pub(super) fn ensure_private(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if is_private(&found, nix::unistd::geteuid().as_raw()) {
        return Ok(());
    }
    let why = format!("`{}` is not a folder of this user alone", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn is_private(found: &fs::Metadata, user: u32) -> bool {
    found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700
}

/// What is named after a process that is gone, goes: places of a dead `claude`, sockets of a dead server.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if process_named(&path).is_some() {
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

/// The living process that a file or folder is named after.
pub(super) fn process_named(path: &Path) -> Option<ProcessStat> {
    let (pid, started) = path.file_stem()?.to_str()?.split_once('-')?;
    let found = ProcessStat::read(pid.parse().ok()?)?;
    (found.started == started.parse::<u64>().ok()? && !found.has_ended()).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_the_dead_left_goes_and_what_lives_stays() {
        let folder = tempfile::tempdir().unwrap();
        let house = folder.path().join("house");
        let own = ProcessStat::own().unwrap();
        let place = prepare(&house, &own).unwrap();
        let of_living = place.join(format!("{}.{SOCKET}", name_of(&own)));
        let of_dead = place.join(format!("{}-{}.{SOCKET}", own.pid, own.started - 1));
        drop(UnixListener::bind(&of_dead).unwrap());
        let _living = UnixListener::bind(&of_living).unwrap();
        fs::create_dir(house.join("1-1")).unwrap();
        prepare(&house, &own).unwrap();
        assert!(of_living.exists() && !of_dead.exists() && !house.join("1-1").exists());
    }

    #[test]
    fn a_folder_that_others_can_enter_or_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let own = ProcessStat::own().unwrap();
        assert!(prepare(&open, &own).is_err());
        let private = folder.path().join("private");
        create_private_dir(&private).unwrap();
        symlink(&private, folder.path().join("link")).unwrap();
        assert!(prepare(&folder.path().join("link"), &own).is_err());
    }
}
