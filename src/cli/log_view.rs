//! Prints the newest lines of a log and follows it.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::store::LogFollower;
use crate::util::parse_age;

const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Options for printing a log.
pub(crate) struct LogView<'a> {
    pub(crate) path: &'a Path,
    /// Maximum number of existing lines; the newest ones are printed.
    pub(crate) limit: usize,
    /// Continue with lines that are appended later.
    pub(crate) follow: bool,
}

/// Sequence number of a line and the result of the filter.
pub(crate) struct MatchedLine {
    pub(crate) sequence: u64,
    pub(crate) is_match: bool,
}

impl LogView<'_> {
    /// Prints the matching lines, then follows the log if `follow` is set.
    ///
    /// `read` passes on all existing lines with their match; `judge` matches appended lines. Returns an error if the
    /// log cannot be read; with `follow` it returns only on an error.
    pub(crate) fn print<E: Display>(
        &self,
        read: impl FnOnce(&mut dyn FnMut(&str, MatchedLine)) -> Result<(), E>,
        judge: impl Fn(&str) -> Option<MatchedLine>,
        print: impl Fn(&str),
    ) -> Result<(), String> {
        let text = |error: &dyn Display| error.to_string();
        // Opened before the existing lines are read, so that no line in between is lost.
        let tail = self.follow.then(|| LogFollower::at_end(self.path)).transpose();
        let tail = tail.map_err(|error| text(&error))?;
        let mut kept: VecDeque<String> = VecDeque::new();
        let mut last = 0;
        let mut keep = |line: &str, judged: MatchedLine| {
            last = last.max(judged.sequence);
            if judged.is_match {
                kept.push_back(line.to_owned());
                if kept.len() > self.limit {
                    kept.pop_front();
                }
            }
        };
        read(&mut keep).map_err(|error| text(&error))?;
        for line in &kept {
            print(line);
        }
        let Some(mut tail) = tail else { return Ok(()) };
        loop {
            for line in tail.next_lines().map_err(|error| text(&error))? {
                let is_new = |judged: &MatchedLine| judged.sequence > last && judged.is_match;
                if judge(&line).as_ref().is_some_and(is_new) {
                    print(&line);
                }
            }
            thread::sleep(FOLLOW_INTERVAL);
        }
    }
}

/// Parses an age such as `30d`, `12h`, `45m` or `10s`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    parse_age(text)
        .ok_or_else(|| "write a number and a unit: `30d`, `12h`, `45m` or `10s`".to_owned())
}
