//! The catalog that follows the disk: readers hold one whole snapshot, and a newer one takes its place at once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::load;
use super::snapshot::{Entry, Snapshot};
use super::watch::Watching;
use crate::base::AgentName;
use crate::config::Settings;

/// The project's agents, kept as the disk has them.
#[derive(Debug)]
pub struct Catalog {
    settings: Settings,
    snapshot: ArcSwap<Snapshot>,
    /// Held while reading, so that an older reading never replaces a newer one.
    reading: Mutex<()>,
    generation: watch::Sender<u64>,
}

impl Catalog {
    /// Reads the project's agents. They follow the disk once [`Catalog::watch`] is called.
    pub fn open(settings: &Settings) -> Arc<Self> {
        let snapshot = ArcSwap::from_pointee(Snapshot::load(settings));
        let (generation, _) = watch::channel(0);
        Arc::new(Self { settings: settings.clone(), snapshot, reading: Mutex::new(()), generation })
    }

    /// All agents as they were last read; it never changes under its holder.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// As [`Catalog::snapshot`], with this agent as the disk has it now, however long the watcher takes.
    pub fn current(&self, name: &str) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        let fresh = snapshot.common.stamps.hold()
            && match snapshot.get(name) {
                // A broken one may have been mended in a way that its own files do not show.
                Some(entry) => entry.agent().is_some() && entry.stamps.hold(),
                None => self.file_of(name).is_none_or(|file| !file.exists()),
            };
        if fresh { snapshot } else { self.reload() }
    }

    /// Reads again what changed on the disk.
    pub fn reload(&self) -> Arc<Snapshot> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        let after = Arc::new(load::load(&self.settings, Some(&before)));
        self.snapshot.store(Arc::clone(&after));
        if !same(&before, &after) {
            self.generation.send_modify(|generation| *generation += 1);
        }
        after
    }

    /// Tells when there is a new snapshot.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Follows the disk until the returned value is dropped.
    pub fn watch(self: &Arc<Self>) -> Watching {
        Watching::start(self)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where an agent of this name would be; nothing is looked up for what is no name.
    fn file_of(&self, name: &str) -> Option<PathBuf> {
        let name = name.parse::<AgentName>().ok()?;
        Some(self.settings.agents_dir().join(name.as_str()).join("agent.md"))
    }
}

/// Whether two readings say the same.
fn same(before: &Snapshot, after: &Snapshot) -> bool {
    before.common.says_the_same(&after.common)
        && before.diagnostics == after.diagnostics
        && before.extensions == after.extensions
        && before.entries.len() == after.entries.len()
        && before.entries.iter().zip(&after.entries).all(|(a, b)| same_entry(a, b))
}

fn same_entry(a: &Arc<Entry>, b: &Arc<Entry>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.name == b.name && a.diagnostics == b.diagnostics && a.agent() == b.agent())
}
