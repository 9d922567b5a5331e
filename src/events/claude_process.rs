//! Which `claude` process a session lives in, and whether it still does.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::base::ProcessStat;

/// A process that cannot be confused with a later one, or with one of another container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaudeStamp {
    pid: i32,
    started: u64,
    /// The start of the system that the two numbers belong to.
    boot: String,
    /// The part of the system that they belong to: a container has one of its own.
    namespace: String,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is there.
    Lives,
    /// It is gone.
    Ended,
    /// It belongs to a part of the system that cannot be looked into from here.
    Unknown,
}

impl ClaudeStamp {
    /// The stamp of a process that can be seen from here.
    pub fn of(process: ProcessStat) -> Self {
        let (boot, namespace) = here();
        Self { pid: process.pid, started: process.started, boot, namespace }
    }

    /// Whether exactly this process is still there; one that has ended but was not yet collected is not.
    pub fn life(&self) -> Life {
        let (boot, namespace) = here();
        if namespace != self.namespace {
            return Life::Unknown;
        }
        let is_it = |now: ProcessStat| now.started == self.started && !now.has_ended();
        let lives = boot == self.boot && ProcessStat::read(self.pid).is_some_and(is_it);
        if lives { Life::Lives } else { Life::Ended }
    }
}

fn here() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), namespace.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_a_later_one_and_one_that_cannot_be_seen_are_told_apart() {
        let own = ClaudeStamp::of(ProcessStat::own().unwrap());
        assert_eq!(own.life(), Life::Lives);
        let earlier = ClaudeStamp { started: own.started - 1, ..own.clone() };
        assert_eq!(earlier.life(), Life::Ended, "its pid was given to another");
        let rebooted = ClaudeStamp { boot: "another".to_owned(), ..own.clone() };
        assert_eq!(rebooted.life(), Life::Ended);
        let elsewhere = ClaudeStamp { namespace: "pid:[1]".to_owned(), ..own };
        assert_eq!(elsewhere.life(), Life::Unknown);
    }
}
