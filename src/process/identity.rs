//! Identity of a process beyond its pid, which can be reused.

use std::fs;

use serde::{Deserialize, Serialize};

/// Pid and start time: distinguishes a process from a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Start time in a system-specific format; only compared for equality.
    pub started: String,
}

impl ProcessIdentity {
    /// Returns the identity of a running process.
    pub fn of(pid: u32) -> Option<Self> {
        start_time(pid).map(|started| Self { pid, started })
    }

    /// Returns the identity of this process.
    pub fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Returns true if this process is alive; false for a zombie.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now == *self)
    }
}

/// Returns boot id and start time in clock ticks since boot, because ticks restart with each boot.
#[cfg(target_os = "linux")]
fn start_time(pid: u32) -> Option<String> {
    let stat = super::ProcessStat::read(i32::try_from(pid).ok()?)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().take(8).collect();
    (!stat.is_dead()).then(|| format!("{boot}-{}", stat.start_time))
}

#[cfg(not(target_os = "linux"))]
fn start_time(pid: u32) -> Option<String> {
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
    fn f2_only_the_process_with_the_same_start_time_is_alive() {
        let own = ProcessIdentity::current().unwrap();
        assert!(own.is_alive());
        let reused = ProcessIdentity { started: "earlier".to_owned(), ..own };
        assert!(!reused.is_alive());
    }
}
