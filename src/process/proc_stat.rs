//! Processes as `/proc` shows them. Elsewhere than on Linux nothing is found.

use std::fs;
use std::iter::successors;

/// Deeper families are not followed.
const MAX_DEPTH: usize = 256;

/// What `/proc/<pid>/stat` says that matters to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its pid.
    pub pid: i32,
    /// The pid of the process that holds it now.
    pub parent: i32,
    /// What it is doing: `R`, `S`, `Z` …
    pub state: char,
    /// When it started, in ticks since the system did.
    pub started: u64,
}

impl ProcessStat {
    /// Reads a process; `None` if there is none of this pid.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// This very process.
    pub fn own() -> Option<Self> {
        Self::read(i32::try_from(std::process::id()).ok()?)
    }

    /// The processes above this one, nearest first.
    pub fn ancestors(self) -> impl Iterator<Item = Self> {
        let above = |process: &Self| Self::read(process.parent).filter(|above| above.pid > 1);
        successors(Some(self), above).skip(1).take(MAX_DEPTH)
    }

    /// Whether it is dead and waits only to be collected.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether the two are one process, and not a later one of the same pid.
    pub fn is_same(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    /// The second field is a name the process chose, parentheses and all: fields count from the last `)`.
    fn parse(pid: i32, bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, state, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trap() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 1\n";
        let expected = ProcessStat { pid: 42, parent: 7, state: 'S', started: 12345 };
        assert_eq!(ProcessStat::parse(42, line), Some(expected));
    }
}
