//! Process tree read from `/proc`, and signals sent via pidfds.
//!
//! Linux only. Elsewhere no process is found, and stopping a run relies on its process group.

use std::collections::HashSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::proc_stat::ProcessStat;

impl ProcessStat {
    /// Sends a signal to exactly this process; returns false if it was not sent.
    ///
    /// Opens the pidfd first and compares the start time afterwards: from then on the pidfd cannot mean another
    /// process.
    #[cfg(target_os = "linux")]
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return false };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        let is_same = Self::read(self.pid).is_some_and(|now| now.is_same_process(self));
        let Some(kind) = rustix::process::Signal::from_named_raw(signal as i32) else {
            return false;
        };
        is_same && pidfd_send_signal(handle, kind).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn signal(&self, _: Signal) -> bool {
        false
    }
}

/// Returns all processes by ascending pid.
pub(crate) fn all_processes() -> impl Iterator<Item = ProcessStat> {
    #[cfg(test)]
    tests::PROCESS_TABLE_READS.set(tests::PROCESS_TABLE_READS.get() + 1);
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(ProcessStat::read)
}

/// Calls `act` for each living descendant of `root` and returns their number.
///
/// Pids ascend, so children forked during the walk are mostly found in the same walk.
pub(crate) fn for_each_descendant(root: i32, mut act: impl FnMut(&ProcessStat)) -> usize {
    let mut family = HashSet::from([root]);
    let mut alive = 0;
    for process in all_processes() {
        if !family.contains(&process.parent) {
            continue;
        }
        family.insert(process.pid);
        if !process.is_dead() {
            alive += 1;
            act(&process);
        }
    }
    alive
}

/// Sends a signal to each living descendant of this process and returns their number.
pub(crate) fn signal_descendants(signal: Signal) -> usize {
    let own = Pid::this().as_raw();
    for_each_descendant(own, |process| {
        // INVARIANT: only this thread reaps children, so the pid of a direct child cannot be reused. Systems without
        // pidfds reach deeper descendants one walk later, when their orphans have become direct children.
        if process.parent == own {
            let _ = kill(Pid::from_raw(process.pid), signal);
        } else {
            process.signal(signal);
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Number of times this thread has read the process table.
        pub(crate) static PROCESS_TABLE_READS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn f2_a_reused_pid_is_not_signalled() {
        let own = ProcessStat::read(std::process::id().cast_signed()).unwrap();
        let earlier = ProcessStat { start_time: own.start_time - 1, ..own };
        assert!(!earlier.signal(Signal::SIGKILL), "this test would not go on otherwise");
    }
}
