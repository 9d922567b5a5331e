//! Process table entries read from `/proc/<pid>/stat`. Linux only: elsewhere every lookup returns `None`.

use std::fs;
use std::iter::successors;

/// Limit of [`ProcessStat::ancestors`].
const MAX_ANCESTORS: usize = 256;

/// The fields of `/proc/<pid>/stat` that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub pid: i32,
    pub parent: i32,
    /// State letter as in proc(5): `R`, `S`, `Z` …
    pub state: char,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessStat {
    /// Reads the entry of a process; `None` if no process has this pid.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the entry of the current process.
    pub(crate) fn current() -> Option<Self> {
        Self::read(i32::try_from(std::process::id()).ok()?)
    }

    /// Returns the ancestors, nearest first, without pid 1; at most 256.
    pub(crate) fn ancestors(self) -> impl Iterator<Item = Self> {
        let above = |process: &Self| Self::read(process.parent).filter(|above| above.pid > 1);
        successors(Some(self), above).skip(1).take(MAX_ANCESTORS)
    }

    /// Returns true for a zombie or dead process.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Returns true if both are the same process: pid and start time are equal (pids are reused).
    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_time == other.start_time
    }

    /// Parses the fields behind the last `)`: the process name before may contain spaces and parentheses.
    fn parse(pid: i32, bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, state, start_time: started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_with_parentheses_and_spaces_are_parsed() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 1\n";
        let expected = ProcessStat { pid: 42, parent: 7, state: 'S', start_time: 12345 };
        assert_eq!(ProcessStat::parse(42, line), Some(expected));
    }
}
