//! The children of a long-running command: its own keepers, and strangers that a killed keeper left to it.

use std::collections::HashSet;
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

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

fn own() -> MutexGuard<'static, HashSet<u32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
