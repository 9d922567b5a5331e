//! The descendants of a process, as `/proc` shows them, and signals that reach exactly them.
//!
//! Elsewhere than on Linux there is no `/proc`: nothing is found there, and ending a run rests on its
//! process group alone.

use std::collections::HashSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(super) use crate::base::ProcessStat as Stat;

/// Reaching a process that was looked at.
pub(super) trait Reach {
    /// Sends a signal to exactly this process; says whether it was sent.
    fn signal(&self, signal: Signal) -> bool;
}

impl Reach for Stat {
    fn signal(&self, signal: Signal) -> bool {
        pinned::signal(self, signal)
    }
}

/// All processes, by ascending pid.
pub(super) fn every_process() -> impl Iterator<Item = Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
}

/// Acts on each descendant of `root` as soon as it is seen, and says how many were alive.
///
/// Pids ascend, so children that a descendant makes during the walk are mostly met later in the same walk.
pub(super) fn each_descendant(root: i32, mut act: impl FnMut(&Stat)) -> usize {
    let mut family = HashSet::from([root]);
    let mut alive = 0;
    for process in every_process() {
        if !family.contains(&process.parent) {
            continue;
        }
        family.insert(process.pid);
        if !process.has_ended() {
            alive += 1;
            act(&process);
        }
    }
    alive
}

/// Sends a signal to each living descendant of this process, and says how many there were.
pub(super) fn signal_descendants(signal: Signal) -> usize {
    let own = Pid::this().as_raw();
    each_descendant(own, |process| {
        // INVARIANT: only this thread collects children, so the pid of a direct child cannot be reused.
        // A system without pidfds reaches deeper ones too, one walk later: their orphans become direct children.
        if process.parent == own {
            let _ = kill(Pid::from_raw(process.pid), signal);
        } else {
            process.signal(signal);
        }
    })
}

#[cfg(target_os = "linux")]
mod pinned {
    use nix::sys::signal::Signal;
    use rustix::process::{Pid, PidfdFlags, Signal as Kind, pidfd_open, pidfd_send_signal};

    use super::Stat;

    /// The handle is opened first and the start time compared after: from then on it cannot mean another.
    pub(super) fn signal(process: &Stat, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(process.pid) else { return false };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        let same = Stat::read(process.pid).is_some_and(|now| now.started == process.started);
        let Some(kind) = Kind::from_named_raw(signal as i32) else { return false };
        same && pidfd_send_signal(handle, kind).is_ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod pinned {
    use nix::sys::signal::Signal;

    use super::Stat;

    pub(super) fn signal(_: &Stat, _: Signal) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f2_a_signal_for_an_earlier_process_of_the_same_pid_is_not_sent() {
        let own = Stat::read(std::process::id().cast_signed()).unwrap();
        let earlier = Stat { started: own.started - 1, ..own };
        assert!(!earlier.signal(Signal::SIGKILL), "this test would not go on otherwise");
    }
}
