//! The gateway follows its files and those of extensions: edits, renames, symlinks, deletions and SIGHUP.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
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
use crate::catalog::extension_manifests;
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

/// What is under watch, before anybody listens.
pub(super) struct Watch {
    files: GatewayFiles,
    sender: mpsc::Sender<()>,
    changed: mpsc::Receiver<()>,
    watched: Places,
    follower: Option<Follower>,
}

impl Watch {
    /// Watches from now on.
    pub(super) fn begin(files: &GatewayFiles) -> Self {
        let (sender, changed) = mpsc::channel(1);
        let watched = Places::of(files);
        let follower = watch(&watched, sender.clone());
        Self { files: files.clone(), sender, changed, watched, follower }
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
                // Watched first: what is written into a new folder before it is watched is read after.
                self.renew();
                let _ = tokio::task::spawn_blocking(move || gateway.reload()).await;
            }
        });
    }

    /// A symlink may point elsewhere now, or a folder may have come to be.
    fn renew(&mut self) {
        let places = Places::of(&self.files);
        if places != self.watched {
            self.follower = None;
            self.follower = watch(&places, self.sender.clone());
            self.watched = places;
        }
    }
}

/// Where changes are looked for, and which of them count.
#[derive(Clone, PartialEq, Eq)]
struct Places {
    folders: BTreeSet<PathBuf>,
    /// Only these: a busy project folder must not make us read all the time.
    names: BTreeSet<PathBuf>,
    /// `extensions/`, in which everything counts: a new folder may be an extension.
    extensions: BTreeSet<PathBuf>,
}

impl Places {
    fn of(files: &GatewayFiles) -> Self {
        let extensions = files.root.join("extensions");
        // All places: a file may come to be where it was looked for and not found.
        let own = files.mcp_config.places.iter().chain(&files.rules.places);
        let manifests = extension_manifests(&files.root);
        let names: BTreeSet<PathBuf> =
            own.chain([&extensions]).chain(&manifests).flat_map(|path| steps_to(path)).collect();
        let extensions: BTreeSet<PathBuf> = steps_to(&extensions).pop().into_iter().collect();
        let parents = names.iter().filter_map(|path| path.parent()).map(Path::to_path_buf);
        let folders = parents.chain(extensions.iter().cloned());
        Self { folders: folders.filter(|folder| folder.is_dir()).collect(), names, extensions }
    }

    fn concern(&self, path: &Path) -> bool {
        let is_inside = path.parent().is_some_and(|parent| self.extensions.contains(parent));
        is_inside || self.names.contains(path)
    }
}

type Follower = notify_debouncer_full::Debouncer<
    notify::RecommendedWatcher,
    notify_debouncer_full::RecommendedCache,
>;

fn watch(places: &Places, sender: mpsc::Sender<()>) -> Option<Follower> {
    let concerned = places.clone();
    let on_event = move |result: DebounceEventResult| {
        let concerns = match &result {
            Ok(events) => events
                .iter()
                .filter(|event| !is_reading(event.kind))
                .any(|event| event.paths.iter().any(|path| concerned.concern(path))),
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
    for folder in &places.folders {
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

/// The most links on the way to a file, as for the system itself.
const MOST_LINKS: usize = 40;

/// Every name that decides what is found at `path`: each link on the way, wherever it stands, and at the end the file, or the
/// first folder that is not there. All of them stand in folders without links, which are the ones to watch.
fn steps_to(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut steps = Vec::new();
    let mut here = PathBuf::from("/");
    let mut ahead = parts(&path);
    while let Some(part) = ahead.pop() {
        // `..` leaves the folder that a link has led into, so it must not be taken away before.
        if part == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&part);
        if let Ok(target) = fs::read_link(&next) {
            steps.push(next);
            if steps.len() > MOST_LINKS {
                break;
            }
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            ahead.extend(parts(&target));
        } else if ahead.is_empty() || !next.is_dir() {
            steps.push(next);
            break;
        } else {
            here = next;
        }
    }
    steps
}

/// The names of a path, the last first.
fn parts(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}
