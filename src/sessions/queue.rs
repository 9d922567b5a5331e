//! Queue of a session, first come first served, within a process and across processes.
//!
//! A position is a [`Ticket`]: a numbered file in `data/leases/`, flocked by its owner. The lowest locked number owns
//! the session. The kernel releases the lock when the process dies, so no ticket goes stale.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use super::session_name::SessionName;
use crate::api::SessionHolder;
use crate::store::{FileLock, LockError, create_private_dir, remove_file, write_volatile};
use crate::util::{RunId, Timestamp, now};

/// Limit of the wait for the directory lock, which is held for microseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Owner of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketHolder {
    /// Process id; 0 if unknown.
    pub process: u32,
    /// Time at which the ticket was drawn.
    pub since: Timestamp,
    /// Run that holds the ticket; `None` for a command such as `sessions forget`.
    pub run: Option<RunId>,
    /// True if the holder only keeps the session for its next turn, and releases it when another process
    /// waits.
    #[serde(skip)]
    pub is_idle: bool,
}

impl TicketHolder {
    pub(crate) fn this_process(run: Option<RunId>) -> Self {
        Self { process: std::process::id(), since: now(), run, is_idle: false }
    }

    pub(crate) fn to_object(&self) -> SessionHolder {
        SessionHolder {
            pid: (self.process != 0).then_some(self.process),
            since_at: self.since.into(),
            run_id: self.run,
        }
    }
}

impl fmt::Display for TicketHolder {
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

/// A position in a session's queue: a numbered file in `data/leases/`, flocked by its owner.
///
/// Dropping it deletes the file.
#[derive(Debug)]
pub(crate) struct Ticket {
    dir: PathBuf,
    queue: String,
    number: u64,
    _lock: FileLock,
}

impl Ticket {
    /// Draws the next number. Blocks for at most 5 s.
    pub(crate) fn draw(
        folder: &Path,
        name: &SessionName,
        holder: &TicketHolder,
    ) -> Result<Self, LockError> {
        create_private_dir(folder)?;
        let _drawing = FileLock::acquire(&folder.join("lock"), LOCK_TIMEOUT)?;
        let queue = name.digest();
        let number = ticket_numbers(folder, &queue)?.last().map_or(1, |last| last + 1);
        let text = serde_json::to_string(holder).map_err(io::Error::other)?;
        let path = ticket_path(folder, &queue, number);
        let lock = FileLock::create(&path, &text).inspect_err(|_| {
            let _ = remove_file(&path);
        })?;
        Ok(Self { dir: folder.to_path_buf(), queue, number, _lock: lock })
    }

    /// Returns the owner of the lowest locked ticket before this one; `None` if this ticket owns the
    /// session.
    ///
    /// Deletes tickets of dead processes. Blocks on file I/O.
    pub(crate) fn owner_ahead(&self) -> io::Result<Option<TicketHolder>> {
        for number in
            ticket_numbers(&self.dir, &self.queue)?.into_iter().take_while(|n| *n < self.number)
        {
            let path = ticket_path(&self.dir, &self.queue, number);
            let idle = idle_mark_path(&self.dir, &self.queue, number);
            if let Some(text) = FileLock::read_held(&path)? {
                return Ok(Some(TicketHolder { is_idle: idle.exists(), ..parse_holder(&text) }));
            }
            // The owner died. INVARIANT: new numbers are higher than ours, so this name is never used again.
            let _ = remove_file(&idle);
            remove_file(&path)?;
        }
        Ok(None)
    }

    /// Sets or removes the mark of an idle holder.
    ///
    /// A write error is ignored: waiters then use their normal timeout.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        let mark = idle_mark_path(&self.dir, &self.queue, self.number);
        let _ = if is_idle { write_volatile(&mark, b"") } else { remove_file(&mark) };
    }

    pub(crate) fn watch(&self) -> QueueWatch {
        QueueWatch { dir: self.dir.clone(), queue: self.queue.clone(), number: self.number }
    }
}

/// View of a queue from the position of a ticket.
#[derive(Clone, Debug)]
pub struct QueueWatch {
    dir: PathBuf,
    queue: String,
    number: u64,
}

impl QueueWatch {
    /// Returns `true` if another process waits behind the ticket. Blocks on file I/O.
    pub fn has_waiters(&self) -> io::Result<bool> {
        let numbers = ticket_numbers(&self.dir, &self.queue)?;
        let behind = numbers.into_iter().filter(|number| *number > self.number);
        Ok(first_held(&self.dir, &self.queue, behind)?.is_some())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.set_idle(false);
        // Deleted while still locked: other processes see the ticket as held or gone, never as free.
        let _ = remove_file(&ticket_path(&self.dir, &self.queue, self.number));
    }
}

/// Returns the current owner of a session, for display. Blocks on file I/O.
pub(crate) fn current_holder(dir: &Path, name: &SessionName) -> io::Result<Option<TicketHolder>> {
    let queue = name.digest();
    let numbers = match ticket_numbers(dir, &queue) {
        Err(error) if is_missing(&error) => return Ok(None),
        numbers => numbers?,
    };
    Ok(first_held(dir, &queue, numbers)?.map(|text| parse_holder(&text)))
}

/// Returns the first of these tickets that its owner has locked, and its text.
fn first_held(
    dir: &Path,
    queue: &str,
    numbers: impl IntoIterator<Item = u64>,
) -> io::Result<Option<String>> {
    for number in numbers {
        if let Some(text) = FileLock::read_held(&ticket_path(dir, queue, number))? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Returns true if there is no such directory: then nobody can have a ticket.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the ticket numbers of one queue in ascending order.
fn ticket_numbers(folder: &Path, queue: &str) -> io::Result<Vec<u64>> {
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

fn idle_mark_path(folder: &Path, queue: &str, number: u64) -> PathBuf {
    folder.join(format!("{queue}.{number}.idle"))
}

fn parse_holder(text: &str) -> TicketHolder {
    serde_json::from_str(text)
        .unwrap_or_else(|_| TicketHolder { process: 0, ..TicketHolder::this_process(None) })
}
