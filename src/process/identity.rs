//! Which process is meant: a pid alone may have been given to somebody else since.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process that cannot be confused with a later one of the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessStamp {
    /// Its pid.
    pub pid: u32,
    /// When it started, in the system's own measure; only ever compared.
    pub started: String,
}

impl ProcessStamp {
    /// The stamp of a process that runs now.
    pub fn of(pid: u32) -> Option<Self> {
        started(pid).map(|started| Self { pid, started })
    }

    /// The stamp of this very process.
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Whether exactly this process is still alive; one that has ended but was not yet collected is not.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now == *self)
    }
}

/// Clock ticks since the start of the system, and which start that was: both begin anew with it.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let stat = super::tree::Stat::read(i32::try_from(pid).ok()?)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().take(8).collect();
    (!stat.has_ended()).then(|| format!("{boot}-{}", stat.started))
}

#[cfg(not(target_os = "linux"))]
fn started(pid: u32) -> Option<String> {
    let output = std::process::Command::new("/bin/ps")
        .args(["-o", "lstart=", "-p", &pid.to_string()])
        .env_clear()
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f2_this_process_is_alive_and_another_with_its_pid_is_not() {
        let own = ProcessStamp::own().unwrap();
        assert!(own.is_alive());
        let reused = ProcessStamp { started: "earlier".to_owned(), ..own };
        assert!(!reused.is_alive());
    }
}
