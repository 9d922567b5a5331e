//! The ledger: what every run has cost, told while it runs. It is kept as safely as the conversations.
//!
//! A payment is one line in a journal (`data/costs-N.journal`), on the disk before anybody goes on. Long journals are
//! folded into `data/costs.json`, which names the journal that goes on from it: writing that one file both takes in
//! the old journal and leaves it behind, so that a crash at any moment counts nothing twice and loses nothing.
//! Several processes share it; each reads only what is new. What cannot be written counts in this process, and is written
//! when it can be.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cost_book::{Account, Book, Payment, Store, day_of, read, render};
use crate::base::{
    FileLock, LockBusy, Staged, append_durably, create_private_dir, now, read_bounded, remove_file,
    sweep_staged,
};

/// A journal of this length is folded in by whoever adds the next line.
const LONGEST_JOURNAL: usize = 1_000;
/// How long one payment waits for another process's.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 256 << 20;

/// The ledger of one project.
#[derive(Debug)]
pub struct CostLedger {
    data: PathBuf,
    image: Mutex<Image>,
}

/// What the files say, as far as they were read.
#[derive(Debug, Default)]
struct Image {
    book: Book,
    /// `None` before the first reading.
    seen: Option<Seen>,
    /// What could not be written yet.
    unsaved: Vec<Payment>,
    is_newer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    store: Option<Stamp>,
    /// Which journal goes on from the store.
    number: u64,
    journal: Option<u64>,
    end: u64,
    lines: usize,
}

/// Tells one version of a file from another.
type Stamp = (u64, u64, i64, i64);

impl CostLedger {
    /// The ledger below a project's `data/`; nothing is read yet.
    pub fn at(data: &Path) -> Self {
        Self { data: data.to_path_buf(), image: Mutex::default() }
    }

    /// Writes a payment down for good. Blocks for as long as the disk takes.
    pub fn pay(&self, payment: Payment) {
        let mut image = self.image();
        image.unsaved.push(payment);
        if let Err(error) = self.save(&mut image) {
            tracing::warn!(%error, "what a run has cost could not be written to data/costs; it is kept in memory");
        }
    }

    /// What an agent has cost on a day (`2026-11-16`).
    pub fn spent_on_day(&self, day: &str, agent: &str) -> f64 {
        let image = self.up_to_date();
        let unsaved = image.unsaved.iter().filter(|p| day_of(p.time) == day && p.agent == agent);
        image.book.on_day(day, agent) + unsaved.map(|payment| payment.cost_usd).sum::<f64>()
    }

    /// What everything that a session of the main agent has started has cost.
    pub fn spent_by_session(&self, session: &str) -> f64 {
        let image = self.up_to_date();
        let unsaved = image.unsaved.iter().filter(|payment| payment.session == session);
        image.book.of_session(session) + unsaved.map(|payment| payment.cost_usd).sum::<f64>()
    }

    /// Everything, by day, agent and session.
    pub fn accounts(&self) -> Vec<Account> {
        let image = self.up_to_date();
        let mut book = image.book.clone();
        for payment in &image.unsaved {
            book.pay(payment);
        }
        book.accounts()
    }

    fn image(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn up_to_date(&self) -> MutexGuard<'_, Image> {
        let mut image = self.image();
        // Where no lock can be had (a folder that is read-only, or not there) a reader may be a moment behind.
        let lock = self.data.is_dir().then(|| self.lock());
        let _held = lock.and_then(Result::ok);
        self.refresh(&mut image);
        image
    }

    fn lock(&self) -> Result<FileLock, LockBusy> {
        FileLock::acquire(&self.data.join("costs.lock"), PATIENCE)
    }

    fn store(&self) -> PathBuf {
        self.data.join("costs.json")
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.data.join(format!("costs-{number}.journal"))
    }

    fn save(&self, image: &mut Image) -> io::Result<()> {
        create_private_dir(&self.data)?;
        let _lock = self.lock().map_err(io::Error::other)?;
        self.refresh(image);
        if image.is_newer {
            return Err(io::Error::other("data/costs.json was written by a newer Adjutant"));
        }
        let Some(seen) = image.seen else { return Err(io::ErrorKind::NotFound.into()) };
        let mut lines = Vec::new();
        for payment in &image.unsaved {
            serde_json::to_writer(&mut lines, payment)?;
            lines.push(b'\n');
        }
        let journal = self.journal(seen.number);
        append_durably(&journal, seen.end, &lines)?;
        let paid = std::mem::take(&mut image.unsaved);
        for payment in &paid {
            image.book.pay(payment);
        }
        let seen = Seen {
            journal: inode(&journal),
            end: seen.end + lines.len() as u64,
            lines: seen.lines + paid.len(),
            ..seen
        };
        image.seen = Some(seen);
        if seen.lines >= LONGEST_JOURNAL { self.fold(image, seen) } else { Ok(()) }
    }

    /// Takes the journal into the store, under the lock.
    fn fold(&self, image: &mut Image, seen: Seen) -> io::Result<()> {
        let book = image.book.condensed(&day_of(now()));
        let number = seen.number + 1;
        Staged::private(&self.store(), &render(&book, number))?.commit()?;
        // From here on the new journal counts; the old one is only in the way.
        let _ = remove_file(&self.journal(seen.number));
        image.book = book;
        image.seen =
            Some(Seen { store: stamp(&self.store()), number, journal: None, end: 0, lines: 0 });
        Ok(())
    }

    /// Brings the image up to date with as little reading as it takes.
    fn refresh(&self, image: &mut Image) {
        let known = image.seen.filter(|seen| {
            let journal = self.journal(seen.number);
            seen.store == stamp(&self.store())
                && (seen.journal.is_none() || seen.journal == inode(&journal))
                && length(&journal) >= seen.end
        });
        let seen = match known {
            Some(seen) => seen,
            None => self.reload(image),
        };
        let journal = self.journal(seen.number);
        let tail = match length(&journal) > seen.end {
            true => read_from(&journal, seen.end).unwrap_or_default(),
            false => Vec::new(),
        };
        let (bytes, lines) = take_lines(&tail, &mut image.book);
        image.seen = Some(Seen {
            journal: inode(&journal),
            end: seen.end + bytes,
            lines: seen.lines + lines,
            ..seen
        });
    }

    /// Reads the store from its beginning; its journal follows.
    fn reload(&self, image: &mut Image) -> Seen {
        let mut seen = Seen {
            store: stamp(&self.store()),
            number: self.newest_journal(),
            journal: None,
            end: 0,
            lines: 0,
        };
        image.is_newer = false;
        image.book = match read_bounded(&self.store(), MOST_BYTES).map(|bytes| read(&bytes)) {
            Err(_) => Book::default(),
            Ok(Store::Sound(book, number)) => {
                seen.number = number;
                book
            }
            Ok(Store::Newer(book)) => {
                image.is_newer = true;
                book
            }
            Ok(Store::Damaged(book)) => {
                self.keep_damaged();
                book
            }
        };
        seen
    }

    /// Where the store does not say which journal goes on from it, it is the last one.
    fn newest_journal(&self) -> u64 {
        sweep_staged(&self.data);
        let Ok(entries) = fs::read_dir(&self.data) else { return 0 };
        let number = |name: &str| -> Option<u64> {
            name.strip_prefix("costs-")?.strip_suffix(".journal")?.parse().ok()
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| number(name.to_str()?)).max().unwrap_or(0)
    }

    /// A copy for people to look at; the next fold writes what was sound in it.
    fn keep_damaged(&self) {
        let aside = format!("costs.json.damaged-{}", now().strftime("%Y-%m-%dT%H-%M-%S%.3fZ"));
        let kept = read_bounded(&self.store(), MOST_BYTES)
            .map_err(io::Error::other)
            .and_then(|bytes| Staged::private(&self.data.join(&aside), &bytes)?.commit());
        match kept {
            Ok(()) => tracing::warn!(
                "`data/costs.json` was damaged; a copy is in `data/{aside}`, and the sound lines of it count"
            ),
            Err(error) => {
                tracing::warn!(%error, "`data/costs.json` is damaged; its sound lines count");
            }
        }
    }
}

/// Whole lines, paid into the book: how many bytes and lines they were. A line that was torn in writing stays behind.
fn take_lines(bytes: &[u8], book: &mut Book) -> (u64, usize) {
    let (mut taken, mut lines) = (0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        taken += line.len() as u64;
        lines += 1;
        match serde_json::from_slice(text) {
            Ok(payment) => book.pay(&payment),
            Err(error) => tracing::warn!(%error, "a line of the ledger cannot be read"),
        }
    }
    (taken, lines)
}

fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

fn inode(path: &Path) -> Option<u64> {
    stamp(path).map(|(inode, ..)| inode)
}

fn length(path: &Path) -> u64 {
    stamp(path).map_or(0, |(_, length, ..)| length)
}

#[cfg(test)]
#[path = "../costs/ledger_tests.rs"]
mod tests;
