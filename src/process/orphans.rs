//! Reaping of children in long-running commands: our supervisors, and orphans of killed supervisors.

use std::collections::HashSet;
use std::sync::{LazyLock, MutexGuard};
use std::{fs, io};

use nix::sys::signal::{Signal as Kind, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::sweep;
use crate::util::Mutex;

/// Pids of our own children, inserted before a child can be observed and removed after it was reaped.
static OWN_CHILDREN: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);

/// Registration of one of our own children; removed when dropped.
#[derive(Debug)]
pub(crate) struct OwnChild(u32);

impl Drop for OwnChild {
    fn drop(&mut self) {
        own_children().remove(&self.0);
    }
}

/// Starts a command and registers the child before the reaper can mistake it for an orphan.
pub(crate) fn spawn_own(command: &mut Command) -> io::Result<(Child, OwnChild)> {
    let mut own = own_children();
    let child = command.spawn()?;
    let pid = child.id().unwrap_or_default();
    own.insert(pid);
    Ok((child, OwnChild(pid)))
}

/// Makes this process a subreaper and kills orphans that a killed supervisor leaves to it.
///
/// To be called once, early, by commands that start processes. From then on every child must be started by this module:
/// others are killed. Must be called within a Tokio runtime.
pub fn reap_orphans() -> io::Result<()> {
    become_subreaper()?;
    let child_signals = signal(SignalKind::child())?;
    // Children that a shell left us by `exec` are not ours and not killed.
    let inherited = children().into_iter().filter(|pid| !own_children().contains(pid)).collect();
    tokio::spawn(reap_loop(child_signals, inherited));
    Ok(())
}

async fn reap_loop(mut child_signals: Signal, inherited: HashSet<u32>) {
    while child_signals.recv().await.is_some() {
        // Held during the scan, so that a supervisor being started is never seen unregistered.
        let own = own_children();
        let orphans =
            children().into_iter().filter(|pid| !own.contains(pid) && !inherited.contains(pid));
        orphans.for_each(|pid| reap_orphan(pid, inherited.is_empty()));
    }
}

/// INVARIANT: an orphan is our child and reaped only here, so its pid cannot be reused.
fn reap_orphan(pid: u32, all_are_ours: bool) {
    let orphan = Pid::from_raw(pid.cast_signed());
    if all_are_ours || sweep::run_of(orphan.as_raw()).is_some() {
        let _ = kill(orphan, Kind::SIGKILL);
    }
    let _ = waitpid(orphan, Some(WaitPidFlag::WNOHANG));
}

/// Returns all children of this process; `/proc` has one list per thread.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let parse = |list: String| {
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
    };
    lists.flat_map(parse).collect()
}

#[cfg(target_os = "linux")]
pub(super) fn become_subreaper() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn become_subreaper() -> io::Result<()> {
    Ok(())
}

fn own_children() -> MutexGuard<'static, HashSet<u32>> {
    OWN_CHILDREN.lock()
}
