//! How much memory a new process could have, as far as the system says.

use std::fs;
use std::path::Path;

/// Bytes available on this machine, or in this control group where that is less; `None` where nobody says.
pub(super) fn available() -> Option<u64> {
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(in_control_group().map_or(machine, |group| group.min(machine)))
}

/// Bytes that a process holds; `None` where nobody says.
pub(super) fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// What a container may still take (control groups v2); cached files that can go at once count as free.
fn in_control_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(own);
    let number =
        |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max")?;
    let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached =
        statistics.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    let used = number("memory.current")?.saturating_sub(cached.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_available_memory_is_read() {
        let text = "MemTotal:       24682112 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(from_meminfo(text), Some(2 << 20));
        assert_eq!(from_meminfo("MemFree: 1 kB\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_says_what_it_has() {
        assert!(available().unwrap() > 1 << 20);
    }
}
