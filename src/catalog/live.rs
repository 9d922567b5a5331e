//! Catalog that follows the disk: snapshots are replaced atomically.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::load;
use super::snapshot::{CatalogEntry, Snapshot};
use super::watch::CatalogWatcher;
use crate::config::Settings;
use crate::util::{AgentName, Mutex};

/// Current snapshot of the project's agents, reloaded on changes.
#[derive(Debug)]
pub struct Catalog {
    settings: Settings,
    snapshot: ArcSwap<Snapshot>,
    /// Serializes reloads, so that an older snapshot never replaces a newer one.
    reload_lock: Mutex<()>,
    generation: watch::Sender<u64>,
}

impl Catalog {
    /// Reads all agents. Changes are followed once [`Catalog::watch`] is called.
    pub fn open(settings: &Settings) -> Arc<Self> {
        let snapshot = ArcSwap::from_pointee(Snapshot::load(settings));
        let (generation, _) = watch::channel(0);
        Arc::new(Self {
            settings: settings.clone(),
            snapshot,
            reload_lock: Mutex::new(()),
            generation,
        })
    }

    /// Returns the last snapshot. Does not block.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Returns a snapshot in which the agent `name` matches the disk, even if the watcher is late.
    /// Blocks on file access.
    pub fn current(&self, name: &str) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        let fresh = snapshot.common.dependencies.are_current()
            && match snapshot.get(name) {
                // An invalid agent may have been fixed by a change to files it does not depend on.
                Some(entry) => entry.agent().is_some() && entry.dependencies.are_current(),
                None => self.agent_file(name).is_none_or(|file| !file.exists()),
            };
        if fresh { snapshot } else { self.reload() }
    }

    /// Reloads changed files and notifies subscribers if the content differs. Blocks on file access.
    pub fn reload(&self) -> Arc<Snapshot> {
        let _alone = self.reload_lock.lock();
        let before = self.snapshot();
        let after = Arc::new(load::load_snapshot(&self.settings, Some(&before)));
        self.snapshot.store(Arc::clone(&after));
        if !same_content(&before, &after) {
            self.generation.send_modify(|generation| *generation += 1);
        }
        after
    }

    /// Subscribes to new snapshots; the value counts them.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Watches the disk until the returned value is dropped.
    pub fn watch(self: &Arc<Self>) -> CatalogWatcher {
        CatalogWatcher::start(self)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the path of the agent's file, or `None` if `name` is not a valid agent name.
    fn agent_file(&self, name: &str) -> Option<PathBuf> {
        let name = name.parse::<AgentName>().ok()?;
        Some(self.settings.agents_dir().join(name.as_str()).join("agent.md"))
    }
}

/// True if both snapshots have the same content.
fn same_content(before: &Snapshot, after: &Snapshot) -> bool {
    before.common.same_content(&after.common)
        && before.diagnostics == after.diagnostics
        && before.extensions == after.extensions
        && before.entries.len() == after.entries.len()
        && before.entries.iter().zip(&after.entries).all(|(a, b)| same_entry(a, b))
}

fn same_entry(a: &Arc<CatalogEntry>, b: &Arc<CatalogEntry>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.name == b.name && a.diagnostics == b.diagnostics && a.agent() == b.agent())
}
