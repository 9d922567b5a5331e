//! The gateway follows its files: edits, renames, symlinks, deletions and SIGHUP.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, new_debouncer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::downstream::{Key, Scope};
use super::files::InForce;
use super::gateway::Gateway;
use crate::config::GatewayFiles;

/// An editor writes a file in several steps; it is read once they are over.
const QUIET: Duration = Duration::from_millis(300);

/// Whether a running server is still what the files say. Private servers are not in the files.
pub(super) fn still_wanted(in_force: &InForce, key: &Key) -> bool {
    match &key.scope {
        Scope::Private(_) | Scope::Run { .. } => true,
        Scope::Shared => spec_matches(in_force, key),
        Scope::Agent(agent) => in_force.rules.knows(agent) && spec_matches(in_force, key),
    }
}

fn spec_matches(in_force: &InForce, key: &Key) -> bool {
    let entry = in_force.servers.get(&key.server).and_then(|entry| entry.spec.as_ref().ok());
    entry.is_some_and(|spec| spec.digest() == key.digest)
}

/// The files under watch, before anybody listens.
pub(super) struct Watch {
    paths: [PathBuf; 2],
    sender: mpsc::Sender<()>,
    changed: mpsc::Receiver<()>,
    watched: BTreeSet<PathBuf>,
    follower: Option<Follower>,
}

impl Watch {
    /// Watches from now on.
    pub(super) fn begin(files: &GatewayFiles) -> Self {
        let (sender, changed) = mpsc::channel(1);
        let paths = [files.mcp_config.path.clone(), files.rules.path.clone()];
        let mut watched = BTreeSet::new();
        let follower = watch(&paths, sender.clone(), &mut watched);
        Self { paths, sender, changed, watched, follower }
    }

    /// Reloads whenever one of the files has changed, until the gateway ends.
    pub(super) fn follow(mut self, gateway: &Arc<Gateway>) {
        let gateway = Arc::downgrade(gateway);
        tokio::spawn(async move {
            let mut hangup = signal(SignalKind::hangup()).ok();
            loop {
                let Some(closing) = gateway.upgrade().map(|gateway| gateway.closing()) else {
                    return;
                };
                tokio::select! {
                    () = closing.cancelled() => return,
                    _ = self.changed.recv() => {}
                    Some(()) = async { hangup.as_mut()?.recv().await } => {
                        tracing::info!("SIGHUP: reading the files again");
                    }
                }
                let Some(gateway) = gateway.upgrade() else { return };
                let _ = tokio::task::spawn_blocking(move || gateway.reload()).await;
                self.renew();
            }
        });
    }

    /// A symlink may point elsewhere now, or a folder may have come to be.
    fn renew(&mut self) {
        if folders(&self.paths) != self.watched {
            self.follower = None;
            self.follower = watch(&self.paths, self.sender.clone(), &mut self.watched);
        }
    }
}

type Follower = notify_debouncer_full::Debouncer<
    notify::RecommendedWatcher,
    notify_debouncer_full::RecommendedCache,
>;

fn watch(
    paths: &[PathBuf; 2],
    sender: mpsc::Sender<()>,
    watched: &mut BTreeSet<PathBuf>,
) -> Option<Follower> {
    *watched = folders(paths);
    let names: BTreeSet<PathBuf> = paths.iter().flat_map(|path| ways_to(path)).collect();
    let on_event = move |result: DebounceEventResult| {
        let concerns = match &result {
            // Only our own two names: a busy project folder must not make us read all the time.
            Ok(events) => events
                .iter()
                .filter(|event| !is_reading(event.kind))
                .any(|event| event.paths.iter().any(|path| names.contains(path))),
            Err(_) => true,
        };
        if concerns {
            // One waiting sign is enough: whoever takes it reads everything.
            let _ = sender.try_send(());
        }
    };
    let mut follower = new_debouncer(QUIET, None, on_event)
        .inspect_err(|error| {
            tracing::warn!("files cannot be watched, send SIGHUP instead: {error}");
        })
        .ok()?;
    for folder in watched.iter() {
        if let Err(error) = follower.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!("{} cannot be watched, send SIGHUP instead: {error}", folder.display());
        }
    }
    Some(follower)
}

/// Our own look at a file is told too; taken for a change, it would lead to the next look, for ever.
fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access != AccessKind::Close(AccessMode::Write),
        _ => false,
    }
}

/// The folders whose changes concern the files: their own, and those of what they point to.
fn folders(paths: &[PathBuf; 2]) -> BTreeSet<PathBuf> {
    let parent = |path: PathBuf| path.parent().map(Path::to_path_buf);
    let all = paths.iter().flat_map(|path| ways_to(path)).filter_map(parent);
    all.filter(|folder| folder.is_dir()).collect()
}

/// The file as it is named, its folder without symlinks, and what it finally points to.
fn ways_to(path: &Path) -> Vec<PathBuf> {
    let mut ways = vec![path.to_path_buf()];
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && let Ok(folder) = folder.canonicalize()
    {
        ways.push(folder.join(name));
    }
    ways.extend(path.canonicalize());
    ways
}
