//! The children of a long-running command: its own keepers, and strangers that a killed keeper left to it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal as Kind, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::sweep;

/// Pids of our own children, from before their fork is known to anyone until they are collected.
static OWN: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);

/// One of our own children, remembered while this lives.
#[derive(Debug)]
pub(super) struct OwnChild(u32);

impl Drop for OwnChild {
    fn drop(&mut self) {
        own().remove(&self.0);
    }
}

/// Starts a command and remembers the child as our own before anybody can take it for a stranger.
pub(super) fn spawn_own(command: &mut Command) -> io::Result<(Child, OwnChild)> {
    let mut own = own();
    let child = command.spawn()?;
    let pid = child.id().unwrap_or_default();
    own.insert(pid);
    Ok((child, OwnChild(pid)))
}

/// Makes this process the heir of whatever a killed keeper leaves, and ends it. To be called once, early, by
/// commands that start processes; from then on every child must be started by `worker`.
pub fn adopt_orphans() -> io::Result<()> {
    become_heir()?;
    let news = signal(SignalKind::child())?;
    // A shell may have left us children of its own before it became this program: those are not ours to end.
    let inherited = children().into_iter().filter(|pid| !own().contains(pid)).collect();
    tokio::spawn(end_strangers(news, inherited));
    Ok(())
}

async fn end_strangers(mut news: Signal, inherited: HashSet<u32>) {
    while news.recv().await.is_some() {
        // Held while we look, so that a keeper that is being started is never met unknown.
        let own = own();
        let strangers =
            children().into_iter().filter(|pid| !own.contains(pid) && !inherited.contains(pid));
        strangers.for_each(|pid| end_stranger(pid, inherited.is_empty()));
    }
}

/// INVARIANT: a stranger is our child and only collected here, so its pid is its own.
fn end_stranger(pid: u32, all_are_ours: bool) {
    let stranger = Pid::from_raw(pid.cast_signed());
    if all_are_ours || sweep::marker(stranger.as_raw()).is_some() {
        let _ = kill(stranger, Kind::SIGKILL);
    }
    let _ = waitpid(stranger, Some(WaitPidFlag::WNOHANG));
}

/// All children of this process: each thread has a list of its own.
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
fn become_heir() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
fn become_heir() -> io::Result<()> {
    Ok(())
}

fn own() -> MutexGuard<'static, HashSet<u32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
