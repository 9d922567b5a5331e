//! Showing a log: its last lines, then what is written.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::base::parse_age;
use crate::record::LogTail;

const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// What is shown of a log.
pub(super) struct LogView<'a> {
    /// The log.
    pub(super) path: &'a Path,
    /// At most so many lines of what is there, the newest.
    pub(super) limit: usize,
    /// Whether to go on with what is written.
    pub(super) follow: bool,
}

/// A line's number, and whether it is one of those that are asked for.
pub(super) struct Judged {
    pub(super) number: u64,
    pub(super) is_wanted: bool,
}

impl LogView<'_> {
    /// Shows it. `read` gives out everything that is there; a line that comes later is judged by `judge`. Returns an error
    /// where the log cannot be read, and with `follow` in no other case.
    pub(super) fn show<E: Display>(
        &self,
        read: impl FnOnce(&mut dyn FnMut(&str, Judged)) -> Result<(), E>,
        judge: impl Fn(&str) -> Option<Judged>,
        print: impl Fn(&str),
    ) -> Result<(), String> {
        let text = |error: &dyn Display| error.to_string();
        // Before what is there is read, so that nothing written meanwhile falls between the two.
        let tail = self.follow.then(|| LogTail::at_end(self.path)).transpose();
        let tail = tail.map_err(|error| text(&error))?;
        let mut kept: VecDeque<String> = VecDeque::new();
        let mut last = 0;
        let mut keep = |line: &str, judged: Judged| {
            last = last.max(judged.number);
            if judged.is_wanted {
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
                let is_new = |judged: &Judged| judged.number > last && judged.is_wanted;
                if judge(&line).as_ref().is_some_and(is_new) {
                    print(&line);
                }
            }
            thread::sleep(FOLLOW_EVERY);
        }
    }
}

/// An age on the command line.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    parse_age(text)
        .ok_or_else(|| "write a number and a unit: `30d`, `12h`, `45m` or `10s`".to_owned())
}
