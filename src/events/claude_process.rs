//! Identity and liveness of the `claude` process that a main session runs in.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::process::ProcessStat;

/// Pid and start time of a process, with the boot id and pid namespace in which they are valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaudeProcess {
    pid: i32,
    started: u64,
    /// Boot id: pid and start time are unique within one boot only.
    boot: String,
    /// Pid namespace: pids of another container cannot be looked up here.
    namespace: String,
}

/// Liveness of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessLiveness {
    Alive,
    Ended,
    /// The process belongs to another pid namespace and cannot be looked up.
    Unknown,
}

impl ClaudeProcess {
    /// Returns the identity of a process of this pid namespace.
    pub(crate) fn of(process: ProcessStat) -> Self {
        let (boot, namespace) = boot_and_namespace();
        Self { pid: process.pid, started: process.start_time, boot, namespace }
    }

    /// Returns the liveness of exactly this process; a zombie has ended.
    pub(crate) fn liveness(&self) -> ProcessLiveness {
        let (boot, namespace) = boot_and_namespace();
        if namespace != self.namespace {
            return ProcessLiveness::Unknown;
        }
        let is_it = |now: ProcessStat| now.start_time == self.started && !now.is_dead();
        let lives = boot == self.boot && ProcessStat::read(self.pid).is_some_and(is_it);
        if lives { ProcessLiveness::Alive } else { ProcessLiveness::Ended }
    }
}

fn boot_and_namespace() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), namespace.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liveness_distinguishes_reused_pids_and_other_namespaces() {
        let own = ClaudeProcess::of(ProcessStat::current().unwrap());
        assert_eq!(own.liveness(), ProcessLiveness::Alive);
        let earlier = ClaudeProcess { started: own.started - 1, ..own.clone() };
        assert_eq!(earlier.liveness(), ProcessLiveness::Ended, "its pid was given to another");
        let rebooted = ClaudeProcess { boot: "another".to_owned(), ..own.clone() };
        assert_eq!(rebooted.liveness(), ProcessLiveness::Ended);
        let elsewhere = ClaudeProcess { namespace: "pid:[1]".to_owned(), ..own };
        assert_eq!(elsewhere.liveness(), ProcessLiveness::Unknown);
    }
}
