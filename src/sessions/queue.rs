//! Who is using a conversation, and who waits for it, in the order they came.
//!
//! Everyone who wants a conversation draws a ticket: a file in `data/leases/` with the next number, locked by
//! its holder through the system, so that it is void the moment its process is gone. The lowest ticket that is
//! still held has the conversation. Tickets work the same within a process and between processes.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::name::ConversationName;
use crate::base::{
    FileLock, LockBusy, RunId, Timestamp, create_private_dir, now, remove_file, write_volatile,
};

/// How long drawing a ticket waits for another one to be drawn; that takes microseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who has a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process; 0 where that is not known.
    pub process: u32,
    /// Since when it has waited for the conversation or had it.
    pub since: Timestamp,
    /// For which run; `None` where a person is at work on the store.
    pub run: Option<RunId>,
    /// Whether it only keeps the conversation for its next turn, and gives it up for whoever waits.
    #[serde(skip)]
    pub is_idle: bool,
}

impl Holder {
    pub(super) fn this_process(run: Option<RunId>) -> Self {
        Self { process: std::process::id(), since: now(), run, is_idle: false }
    }

    fn unknown() -> Self {
        Self { process: 0, since: now(), run: None, is_idle: false }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            0 => f.write_str("another process")?,
            process => write!(f, "process {process}")?,
        }
        write!(f, " since {}", self.since.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
        match self.run {
            Some(run) => write!(f, " (run {run})"),
            None => Ok(()),
        }
    }
}

/// A place in the queue for one conversation; given up when dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    folder: PathBuf,
    queue: String,
    number: u64,
    _lock: FileLock,
}

impl Ticket {
    /// Takes the last place.
    pub(super) fn draw(
        folder: &Path,
        name: &ConversationName,
        holder: &Holder,
    ) -> Result<Self, LockBusy> {
        create_private_dir(folder)?;
        let _drawing = FileLock::acquire(&folder.join("lock"), PATIENCE)?;
        let queue = name.digest();
        let number = numbers(folder, &queue)?.last().map_or(1, |last| last + 1);
        let text = serde_json::to_string(holder).map_err(io::Error::other)?;
        let path = ticket_path(folder, &queue, number);
        let lock = FileLock::create(&path, &text).inspect_err(|_| {
            let _ = remove_file(&path);
        })?;
        Ok(Self { folder: folder.to_path_buf(), queue, number, _lock: lock })
    }

    /// Who has the conversation, as long as it is not this ticket.
    pub(super) fn ahead(&self) -> io::Result<Option<Holder>> {
        for number in
            numbers(&self.folder, &self.queue)?.into_iter().take_while(|n| *n < self.number)
        {
            let path = ticket_path(&self.folder, &self.queue, number);
            let idle = idle_path(&self.folder, &self.queue, number);
            if let Some(text) = FileLock::read_held(&path)? {
                return Ok(Some(Holder { is_idle: idle.exists(), ..parse(&text) }));
            }
            // Its holder died. INVARIANT: new numbers are higher than ours, so this name is never used again.
            let _ = remove_file(&idle);
            remove_file(&path)?;
        }
        Ok(None)
    }
}

/// A look at one queue from the place of whoever has the conversation.
#[derive(Clone, Debug)]
pub struct Line {
    folder: PathBuf,
    queue: String,
    number: u64,
}

impl Line {
    /// Whether anybody waits behind it. Costs a look at a folder.
    pub fn is_awaited(&self) -> bool {
        let behind = numbers(&self.folder, &self.queue).unwrap_or_default();
        behind.into_iter().filter(|number| *number > self.number).any(|number| {
            let path = ticket_path(&self.folder, &self.queue, number);
            FileLock::read_held(&path).is_ok_and(|held| held.is_some())
        })
    }
}

impl Ticket {
    /// Says whether the conversation is only kept, for those who wait. Without the mark they wait as long as they would anyway.
    pub(super) fn set_idle(&self, is_idle: bool) {
        let mark = idle_path(&self.folder, &self.queue, self.number);
        let _ = if is_idle { write_volatile(&mark, b"") } else { remove_file(&mark) };
    }

    pub(super) fn line(&self) -> Line {
        Line { folder: self.folder.clone(), queue: self.queue.clone(), number: self.number }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.set_idle(false);
        // Removed while it is still locked; whoever looks now sees it held or gone, never free.
        let _ = remove_file(&ticket_path(&self.folder, &self.queue, self.number));
    }
}

/// Who has a conversation right now, for people who look.
pub(super) fn current_holder(folder: &Path, name: &ConversationName) -> Option<Holder> {
    let queue = name.digest();
    let numbers = numbers(folder, &queue).ok()?;
    numbers.into_iter().find_map(|number| {
        let text = FileLock::read_held(&ticket_path(folder, &queue, number)).ok()??;
        Some(parse(&text))
    })
}

/// The tickets of one queue, lowest first.
fn numbers(folder: &Path, queue: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(queue)?.strip_prefix('.'));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn ticket_path(folder: &Path, queue: &str, number: u64) -> PathBuf {
    folder.join(format!("{queue}.{number}"))
}

fn idle_path(folder: &Path, queue: &str, number: u64) -> PathBuf {
    folder.join(format!("{queue}.{number}.idle"))
}

fn parse(text: &str) -> Holder {
    serde_json::from_str(text).unwrap_or_else(|_| Holder::unknown())
}
