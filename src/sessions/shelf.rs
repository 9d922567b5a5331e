//! The store on the disk and its image in memory. Everything here blocks; `store.rs` says where.
//!
//! Up to [`DIRECT`] conversations every change rewrites `sessions.json`, which is then always up to date.
//! Beyond that a change is a line in `sessions.journal`, folded in moments later. What cannot be
//! written stays in memory, so that a conversation goes on in this process, and is written when it can be.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::NotSaved;
use super::examine::{Found, MOST_BYTES, Stamp, Strange, examine, read_from, stamp};
use super::file::{self, Reading, View};
use super::journal::{self, Change, Lines};
use super::name::ConversationName;
use crate::base::{
    FileLock, ReadRefused, Staged, append_durably, create_private_dir, now, read_bounded,
    set_aside, sweep_staged,
};

/// With more conversations than this, changes go to the journal first: rewriting 200 takes less than a
/// millisecond more than rewriting one.
const DIRECT: usize = 200;
/// A journal longer than this is folded in by whoever adds the next line.
const LONGEST_JOURNAL: usize = 4_000;
/// How long one change waits for another process's.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the store is.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) data: PathBuf,
    pub(super) store: PathBuf,
    pub(super) journal: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) leases: PathBuf,
}

impl Paths {
    pub(super) fn new(data: &Path) -> Self {
        Self {
            data: data.to_path_buf(),
            store: data.join("sessions.json"),
            journal: data.join("sessions.journal"),
            lock: data.join("sessions.lock"),
            leases: data.join("leases"),
        }
    }
}

/// The image of the store, and how it was found.
#[derive(Debug)]
pub(super) struct Shelf {
    paths: Paths,
    view: View,
    /// What `view` was read from; `None` before the first reading.
    seen: Option<Seen>,
    unsaved: BTreeMap<ConversationName, Change>,
    obstacle: Option<Obstacle>,
    warnings: Vec<String>,
}

/// The files as they were when they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    store: Option<Stamp>,
    journal_inode: Option<u64>,
    journal_end: u64,
    journal_lines: usize,
}

/// Why nothing may be written.
#[derive(Debug)]
enum Obstacle {
    Newer(u64),
    InPlace(&'static str),
    Unreadable(ReadRefused),
}

/// Whether other processes are kept out while the files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Locked,
    Unlocked,
}

/// What a fold writes, made without holding any lock.
#[derive(Debug)]
pub(super) struct Fold {
    view: View,
    seen: Seen,
}

impl Fold {
    /// Writes the new store beside the old one: the long part.
    pub(super) fn stage(&self, paths: &Paths) -> io::Result<Staged> {
        Staged::private(&paths.store, &file::render(&self.view))
    }
}

impl Shelf {
    pub(super) fn new(paths: Paths) -> Self {
        Self {
            paths,
            view: View::new(),
            seen: None,
            unsaved: BTreeMap::new(),
            obstacle: None,
            warnings: Vec::new(),
        }
    }

    /// All conversations as they are now, this process's unsaved changes included.
    pub(super) fn view(&mut self) -> &View {
        match self.paths.store.parent().filter(|data| data.is_dir()) {
            // Read-only folders have no lock to take; without one a reader may be a moment behind.
            Some(_) => match FileLock::acquire(&self.paths.lock, PATIENCE) {
                Ok(_lock) => self.refresh(Access::Locked),
                Err(_) => self.refresh(Access::Unlocked),
            },
            None => self.refresh(Access::Unlocked),
        }
        &self.view
    }

    /// Makes changes last. What fails here is kept in memory.
    pub(super) fn save(&mut self, changes: Vec<Change>) -> Result<(), NotSaved> {
        for change in changes {
            change.apply(&mut self.view);
            self.unsaved.insert(change.name(), change);
        }
        create_private_dir(&self.paths.data)?;
        let _lock = FileLock::acquire(&self.paths.lock, PATIENCE)?;
        self.refresh(Access::Locked);
        self.check_obstacle()?;
        self.write()?;
        self.unsaved.clear();
        Ok(())
    }

    /// What there is to say since the last time, each thing once.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Whether the journal has lines that people cannot see in `sessions.json`.
    pub(super) fn wants_folding(&self) -> bool {
        self.seen.is_some_and(|seen| seen.journal_lines > 0)
    }

    /// The first step of a fold: what is to be written.
    pub(super) fn plan_fold(&mut self) -> Option<Fold> {
        let _lock = FileLock::acquire(&self.paths.lock, PATIENCE).ok()?;
        self.refresh(Access::Locked);
        let seen = self.seen.filter(|seen| seen.journal_lines > 0)?;
        let free = self.obstacle.is_none() && self.unsaved.is_empty();
        free.then(|| Fold { view: self.view.clone(), seen })
    }

    /// The last step: puts the new store in its place and keeps the lines that came meanwhile.
    pub(super) fn finish_fold(&mut self, fold: &Fold, staged: Staged) -> Result<(), NotSaved> {
        let _lock = FileLock::acquire(&self.paths.lock, PATIENCE)?;
        self.refresh(Access::Locked);
        let untouched = self.seen.is_some_and(|seen| seen.store == fold.seen.store);
        if !untouched || self.obstacle.is_some() {
            return Ok(()); // Another process has folded: its store is newer than ours.
        }
        staged.commit()?;
        let mut tail = read_from(&self.paths.journal, fold.seen.journal_end)?;
        let lines = journal::read(&tail);
        tail.truncate(lines.bytes);
        if tail.is_empty() {
            append_durably(&self.paths.journal, 0, b"")?;
        } else {
            Staged::private(&self.paths.journal, &tail)?.commit()?;
        }
        self.remember_files(tail.len() as u64, lines.changes.len());
        Ok(())
    }

    fn check_obstacle(&mut self) -> Result<(), NotSaved> {
        match &self.obstacle {
            None => Ok(()),
            Some(Obstacle::Newer(found)) => Err(NotSaved::NewerFormat { found: *found }),
            Some(Obstacle::InPlace(file)) => {
                Err(NotSaved::DamagedInPlace { file: (*file).to_owned() })
            }
            Some(Obstacle::Unreadable(_)) => match self.obstacle.take() {
                Some(Obstacle::Unreadable(why)) => Err(NotSaved::Unreadable(why)),
                _ => Ok(()),
            },
        }
    }

    fn write(&mut self) -> Result<(), NotSaved> {
        let lines = self.seen.map_or(0, |seen| seen.journal_lines);
        if self.view.len() <= DIRECT || lines >= LONGEST_JOURNAL {
            self.write_whole()
        } else {
            self.write_lines()
        }
    }

    fn write_whole(&mut self) -> Result<(), NotSaved> {
        Staged::private(&self.paths.store, &file::render(&self.view))?.commit()?;
        if self.seen.is_some_and(|seen| seen.journal_end > 0) {
            append_durably(&self.paths.journal, 0, b"")?;
        }
        self.remember_files(0, 0);
        Ok(())
    }

    fn write_lines(&mut self) -> Result<(), NotSaved> {
        let seen = self.seen.unwrap_or_default();
        let text = journal::render(self.unsaved.values());
        append_durably(&self.paths.journal, seen.journal_end, &text)?;
        let end = seen.journal_end + text.len() as u64;
        self.remember_files(end, seen.journal_lines + self.unsaved.len());
        Ok(())
    }

    fn remember_files(&mut self, journal_end: u64, journal_lines: usize) {
        self.seen = Some(Seen {
            store: stamp(&self.paths.store),
            journal_inode: stamp(&self.paths.journal).map(|stamp| stamp.inode),
            journal_end,
            journal_lines,
        });
    }

    /// Brings the image up to date with as little reading as it takes.
    fn refresh(&mut self, access: Access) {
        if self.seen.is_none() && access == Access::Locked {
            sweep_staged(&self.paths.data);
        }
        let journal = stamp(&self.paths.journal);
        let known = self.seen.filter(|seen| {
            seen.store == stamp(&self.paths.store)
                && seen.journal_inode == journal.map(|stamp| stamp.inode)
                && seen.journal_end <= journal.map_or(0, |stamp| stamp.length)
        });
        match known {
            Some(seen) if seen.journal_end == journal.map_or(0, |stamp| stamp.length) => {}
            Some(seen) => self.read_on(seen, access),
            None => self.reload(access),
        }
    }

    /// Reads the lines that others added since.
    fn read_on(&mut self, seen: Seen, access: Access) {
        let Ok(tail) = read_from(&self.paths.journal, seen.journal_end) else {
            return self.reload(access);
        };
        let lines = journal::read(&tail);
        if lines.damaged > 0 {
            return self.reload(access);
        }
        self.apply(&lines);
        self.seen = Some(Seen {
            journal_end: seen.journal_end + lines.bytes as u64,
            journal_lines: seen.journal_lines + lines.changes.len(),
            ..seen
        });
    }

    fn apply(&mut self, lines: &Lines) {
        for change in lines.changes.iter().chain(self.unsaved.values()) {
            change.apply(&mut self.view);
        }
    }

    fn reload(&mut self, access: Access) {
        self.obstacle = None;
        let store_damage = self.load_store();
        let (lines, journal_damage) = self.load_journal();
        self.apply(&lines);
        self.remember_files(lines.bytes as u64, lines.changes.len());
        for damage in store_damage.into_iter().chain(journal_damage) {
            self.repair(&damage, access);
        }
    }

    fn load_store(&mut self) -> Option<Damage> {
        self.view = View::new();
        let (bytes, strange) = self.read_file(&self.paths.store.clone())?;
        let (view, why) = match file::read(&bytes) {
            Reading::Sound(view) => (view, None),
            Reading::Damaged { why, view } => (view, Some(why)),
            Reading::Newer { format, view } => {
                self.obstacle = Some(Obstacle::Newer(format));
                self.view = view;
                return None;
            }
        };
        self.view = view;
        Damage::of("sessions.json", strange, why)
    }

    fn load_journal(&mut self) -> (Lines, Option<Damage>) {
        let Some((bytes, strange)) = self.read_file(&self.paths.journal.clone()) else {
            return (Lines::default(), None);
        };
        let lines = journal::read(&bytes);
        let unread = lines.damaged;
        let why = (unread > 0).then(|| format!("{unread} of its lines cannot be read"));
        (lines, Damage::of("sessions.journal", strange, why))
    }

    fn read_file(&mut self, path: &Path) -> Option<(Vec<u8>, Option<Strange>)> {
        match examine(path) {
            Found::Nothing => None,
            Found::Text { bytes, strange } => Some((bytes, strange)),
            Found::Unreadable(why) => {
                self.obstacle = Some(Obstacle::Unreadable(why));
                None
            }
        }
    }

    /// Sets a damaged file aside and writes what was sound in it. Says so, loudly.
    fn repair(&mut self, damage: &Damage, access: Access) {
        let aside = format!("{}.damaged-{}", damage.file, now().strftime("%Y-%m-%dT%H-%M-%S%.3fZ"));
        let done = match access {
            Access::Locked => self.replace(damage, &self.paths.data.join(&aside)),
            Access::Unlocked => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let kept = self.view.len();
        let (file, why) = (damage.file, &damage.why);
        let warning = match done {
            Ok(()) => {
                format!(
                    "`data/{file}` was damaged ({why}); it was set aside as `data/{aside}`, \
                     and {kept} sound conversations were kept"
                )
            }
            Err(error) => {
                self.obstacle = Some(Obstacle::InPlace(damage.file));
                format!(
                    "`data/{file}` is damaged ({why}) and could not be set aside ({error}); \
                     {kept} sound conversations in it are used, and nothing is written over it"
                )
            }
        };
        tracing::warn!(target: "adjutant::sessions", "{warning}");
        self.warnings.push(warning);
    }

    fn replace(&mut self, damage: &Damage, aside: &Path) -> io::Result<()> {
        let path = self.paths.data.join(damage.file);
        // What is sound is safe on the disk before the damaged file is touched.
        let staged = Staged::private(&self.paths.store, &file::render(&self.view))?;
        match damage.keep {
            Keep::Copy => {
                let bytes = read_bounded(&path, MOST_BYTES).map_err(io::Error::other)?;
                Staged::private(aside, &bytes)?.commit()?;
            }
            Keep::Itself => set_aside(&path, aside)?,
        }
        staged.commit()?;
        if stamp(&self.paths.journal).is_some() {
            append_durably(&self.paths.journal, 0, b"")?;
        }
        self.remember_files(0, 0);
        Ok(())
    }
}

/// A file that is not as we wrote it.
#[derive(Debug)]
struct Damage {
    file: &'static str,
    why: String,
    keep: Keep,
}

impl Damage {
    /// Damage there is only if the file is strange or its text is.
    fn of(file: &'static str, strange: Option<Strange>, why: Option<String>) -> Option<Self> {
        match (strange, why) {
            (None, None) => None,
            (None, Some(why)) => Some(Self { file, why, keep: Keep::Copy }),
            (Some(strange), _) => {
                let keep = if strange.copy { Keep::Copy } else { Keep::Itself };
                Some(Self { file, why: strange.what.to_owned(), keep })
            }
        }
    }
}

/// How a damaged file is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Its content under another name: at no moment is there no store.
    Copy,
    /// It is moved, because it is no file that could be copied.
    Itself,
}
