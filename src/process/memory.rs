//! Available memory and resident memory of a process, from `/proc` and cgroup v2.

use std::fs;
use std::path::Path;

/// Returns the available bytes of this machine or control group, whichever is less; `None` if unknown.
pub(crate) fn available_bytes() -> Option<u64> {
    let machine = parse_kib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(available_in_cgroup().map_or(machine, |group| group.min(machine)))
}

/// Returns the resident bytes of a process; `None` if unknown.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_kib(&status, "VmRSS:")
}

fn parse_kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// Returns the available bytes of this control group (v2). Inactive page cache counts as available.
fn available_in_cgroup() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let dir = Path::new("/sys/fs/cgroup").join(own);
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max")?;
    let statistics = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cached =
        statistics.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    let used = number("memory.current")?.saturating_sub(cached.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem_available_is_parsed() {
        let text = "MemTotal:       24682112 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(parse_kib(text, "MemAvailable:"), Some(2 << 20));
        assert_eq!(parse_kib("MemFree: 1 kB\n", "MemAvailable:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn available_memory_is_known_on_linux() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
