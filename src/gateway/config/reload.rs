//! Watches the configuration files and the manifests of extensions, and reloads them.
//!
//! Covers edits, renames, symlinks, deletions and SIGHUP.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::super::gateway::Gateway;
use super::active::ActiveConfig;
use crate::catalog::extension_manifests;
use crate::config::GatewayFiles;
use crate::gateway::downstream::{ServerKey, ServerScope};

/// Time without further events before a reload: an editor writes a file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// Maximum delay of a reload while events keep arriving.
const MAX_DEBOUNCE: Duration = Duration::from_secs(2);

/// Returns true if a running server still matches the configuration. Private servers always do.
pub(crate) fn is_still_configured(in_force: &ActiveConfig, key: &ServerKey) -> bool {
    match &key.scope {
        ServerScope::Private(_) | ServerScope::Run { .. } => true,
        ServerScope::Shared => spec_matches(in_force, key),
        ServerScope::Agent(agent) => in_force.rules.has_agent(agent) && spec_matches(in_force, key),
    }
}

fn spec_matches(in_force: &ActiveConfig, key: &ServerKey) -> bool {
    let entry = in_force.servers.get(&key.server).and_then(|entry| entry.spec.as_ref().ok());
    entry.is_some_and(|spec| spec.digest == key.digest)
}

/// Active file watches whose events are not read yet.
pub(crate) struct WatchSet {
    files: GatewayFiles,
    sender: mpsc::Sender<()>,
    changed: mpsc::Receiver<()>,
    watched: WatchedPaths,
    watcher: Option<RecommendedWatcher>,
}

impl WatchSet {
    /// Starts watching.
    pub(crate) fn start(files: &GatewayFiles) -> Self {
        let (sender, changed) = mpsc::channel(1);
        let watched = WatchedPaths::of(files);
        let watcher = watch(&watched, sender.clone());
        Self { files: files.clone(), sender, changed, watched, watcher }
    }

    /// Reloads after every relevant change until the gateway shuts down.
    pub(crate) fn reload_on_change(mut self, gateway: &Arc<Gateway>) {
        let gateway = Arc::downgrade(gateway);
        tokio::spawn(async move {
            let mut hangup = signal(SignalKind::hangup()).ok();
            loop {
                let Some(closing) = gateway.upgrade().map(|gateway| gateway.closing()) else {
                    return;
                };
                tokio::select! {
                    () = closing.cancelled() => return,
                    _ = self.changed.recv() => self.debounce().await,
                    Some(()) = async { hangup.as_mut()?.recv().await } => {
                        tracing::info!("SIGHUP: reading the files again");
                    }
                }
                let Some(gateway) = gateway.upgrade() else { return };
                // Watch before reading, so that files written into a new directory are not missed.
                self.rewatch();
                let _ = tokio::task::spawn_blocking(move || gateway.reload()).await;
            }
        });
    }

    /// Waits until 300 ms pass without events, at most 2 s.
    async fn debounce(&mut self) {
        let began = Instant::now();
        while began.elapsed() < MAX_DEBOUNCE {
            if timeout(DEBOUNCE, self.changed.recv()).await.is_err() {
                return;
            }
        }
    }

    /// Watches again if a symlink has another target or a directory was created.
    fn rewatch(&mut self) {
        let places = WatchedPaths::of(&self.files);
        if places != self.watched {
            self.watcher = None;
            self.watcher = watch(&places, self.sender.clone());
            self.watched = places;
        }
    }
}

/// Watched directories, and the paths in them that are relevant.
#[derive(Clone, PartialEq, Eq)]
struct WatchedPaths {
    dirs: BTreeSet<PathBuf>,
    /// Only changes of these paths cause a reload; a project directory changes all the time.
    paths: BTreeSet<PathBuf>,
    /// `extensions/`: every change in it is relevant, since a new directory may be an extension.
    extension_dir: Option<PathBuf>,
}

impl WatchedPaths {
    fn of(files: &GatewayFiles) -> Self {
        let extensions = files.root.join("extensions");
        // All candidate paths: a file may be created where none was found.
        let own = files.mcp_config.candidates.iter().chain(&files.rules.candidates);
        let manifests = extension_manifests(&files.root);
        let paths: BTreeSet<PathBuf> = own
            .chain([&extensions])
            .chain(&manifests)
            .flat_map(|path| resolution_steps(path))
            .collect();
        let extension_dir = resolution_steps(&extensions).pop();
        let parents = paths.iter().filter_map(|path| path.parent()).map(Path::to_path_buf);
        let folders = parents.chain(extension_dir.clone());
        Self { dirs: folders.filter(|folder| folder.is_dir()).collect(), paths, extension_dir }
    }

    fn contains(&self, path: &Path) -> bool {
        let is_inside = self.extension_dir.as_deref().is_some_and(|dir| path.parent() == Some(dir));
        is_inside || self.paths.contains(path)
    }
}

fn watch(places: &WatchedPaths, sender: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let concerned = places.clone();
    let on_event = move |event: notify::Result<Event>| {
        // An error or an overflow may hide any change.
        let concerns = event.map_or(true, |event| {
            event.need_rescan()
                || !is_read_event(event.kind)
                    && event.paths.iter().any(|path| concerned.contains(path))
        });
        if concerns {
            // One queued signal is enough: its receiver reads all files.
            let _ = sender.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(on_event)
        .inspect_err(|error| {
            tracing::warn!("files cannot be watched, send SIGHUP instead: {error}");
        })
        .ok()?;
    for folder in &places.dirs {
        if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!("{} cannot be watched, send SIGHUP instead: {error}", folder.display());
        }
    }
    Some(watcher)
}

/// Returns true for events caused by reading, including our own. Reloading on them would loop forever.
fn is_read_event(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access != AccessKind::Close(AccessMode::Write),
        _ => false,
    }
}

/// Maximum number of symlinks on the way to a file, as in the Linux kernel.
const MAX_SYMLINKS: usize = 40;

/// Returns every path that decides which file `path` resolves to.
///
/// These are all symlinks on the way, and the file itself or the first missing directory. The parent of each contains
/// no symlinks and is the directory to watch.
fn resolution_steps(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut steps = Vec::new();
    let mut here = PathBuf::from("/");
    let mut ahead = reversed_components(&path);
    while let Some(part) = ahead.pop() {
        // `..` after a symlink is relative to the target, so the path must not be normalized before.
        if part == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&part);
        if let Ok(target) = fs::read_link(&next) {
            steps.push(next);
            if steps.len() > MAX_SYMLINKS {
                break;
            }
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            ahead.extend(reversed_components(&target));
        } else if ahead.is_empty() || !next.is_dir() {
            steps.push(next);
            break;
        } else {
            here = next;
        }
    }
    steps
}

/// Returns the components of a path in reverse order.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}
