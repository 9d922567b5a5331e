//! Watches `agents/` and `extensions/` with `notify`, and polls where that is not possible.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::live::Catalog;
use crate::store::FileVersion;

/// Debounce: editors save in several steps.
const DEBOUNCE: Duration = Duration::from_millis(60);
/// Maximum delay of a reload while changes keep arriving.
const MAX_DEBOUNCE: Duration = Duration::from_millis(500);
/// Poll interval without a watch.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Poll interval beside a watch: network file systems do not report changes by other machines.
const SAFETY_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Background thread that reloads the catalog on changes. Stops when dropped.
#[derive(Debug)]
pub struct CatalogWatcher {
    messages: Sender<WatchMessage>,
}

impl Drop for CatalogWatcher {
    fn drop(&mut self) {
        let _ = self.messages.send(WatchMessage::Stop);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum WatchMessage {
    Reload,
    Stop,
}

impl CatalogWatcher {
    pub(crate) fn start(catalog: &Arc<Catalog>) -> Self {
        let (messages, receiver) = channel();
        let mut follower = ChangeFollower {
            root: catalog.settings().root.clone(),
            dirs: [catalog.settings().agents_dir(), catalog.settings().extensions_dir()],
            catalog: Arc::downgrade(catalog),
            messages: messages.clone(),
            watched: None,
        };
        // Watches before returning, so that no later edit is missed.
        follower.renew_watch();
        let started = thread::Builder::new()
            .name("catalog-watch".to_owned())
            .spawn(move || follower.run(&receiver));
        if let Err(error) = started {
            tracing::warn!(%error, "agents are read again only when they are called");
        }
        Self { messages }
    }
}

/// A watch, `None` if the system refused it, and the identity of the watched directories.
struct WatchedDir {
    watcher: Option<RecommendedWatcher>,
    identities: [Option<FileVersion>; 2],
}

struct ChangeFollower {
    root: PathBuf,
    /// `agents/` and `extensions/`.
    dirs: [PathBuf; 2],
    catalog: Weak<Catalog>,
    messages: Sender<WatchMessage>,
    watched: Option<WatchedDir>,
}

impl ChangeFollower {
    fn run(mut self, receiver: &Receiver<WatchMessage>) {
        loop {
            let is_watched = self.watched.as_ref().is_some_and(|watched| watched.watcher.is_some());
            let message = match receiver.recv_timeout(if is_watched {
                SAFETY_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            }) {
                Ok(WatchMessage::Reload) => debounce(receiver),
                Ok(WatchMessage::Stop) | Err(RecvTimeoutError::Disconnected) => WatchMessage::Stop,
                Err(RecvTimeoutError::Timeout) => WatchMessage::Reload,
            };
            let Some(catalog) = self.catalog.upgrade().filter(|_| message == WatchMessage::Reload)
            else {
                return;
            };
            self.renew_watch();
            catalog.reload();
        }
    }

    /// Renews the watch if a directory was created or replaced.
    fn renew_watch(&mut self) {
        let dirs = self.dirs.each_ref().map(|dir| dir_identity(dir));
        if self.watched.as_ref().is_some_and(|watched| watched.identities == dirs) {
            return;
        }
        let watcher = self.watch();
        if let Err(error) = &watcher {
            tracing::warn!(%error, "the agents folder cannot be watched; looking at it instead");
        }
        self.watched = Some(WatchedDir { watcher: watcher.ok(), identities: dirs });
    }

    fn watch(&self) -> notify::Result<RecommendedWatcher> {
        let messages = self.messages.clone();
        let targets: Vec<PathBuf> =
            self.dirs.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
        let dirs: Vec<PathBuf> = targets.iter().chain(&self.dirs).cloned().collect();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error may hide any change.
            if event.is_ok_and(|event| !is_change(&event, &dirs)) {
                return;
            }
            let _ = messages.send(WatchMessage::Reload);
        })?;
        // The root reports creation, removal and replacement of the directories themselves.
        watcher.watch(&self.root, RecursiveMode::NonRecursive)?;
        for target in targets {
            watcher.watch(&target, RecursiveMode::Recursive)?;
        }
        Ok(watcher)
    }
}

/// True for changes below the directories.
/// Read access is ignored: each reload would otherwise trigger the next one.
fn is_change(event: &Event, dirs: &[PathBuf]) -> bool {
    let only_read = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    let concerns = |path: &PathBuf| dirs.iter().any(|dir| path.starts_with(dir));
    event.need_rescan() || (!only_read && event.paths.iter().any(concerns))
}

/// Waits until 60 ms pass without changes, at most 500 ms.
fn debounce(receiver: &Receiver<WatchMessage>) -> WatchMessage {
    let began = Instant::now();
    while began.elapsed() < MAX_DEBOUNCE {
        match receiver.recv_timeout(DEBOUNCE) {
            Ok(WatchMessage::Reload) => {}
            Ok(WatchMessage::Stop) | Err(RecvTimeoutError::Disconnected) => {
                return WatchMessage::Stop;
            }
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    WatchMessage::Reload
}

/// Device and inode of the directory at `path`.
fn dir_identity(path: &Path) -> Option<FileVersion> {
    FileVersion::read(path).map(FileVersion::identity)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Otherwise every reload would trigger the next one.
    #[test]
    fn writes_are_reported_and_reads_are_not() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let file = root.join("agents/one/agent.md");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "first").unwrap();
        let (messages, receiver) = channel();
        let dirs = [root.join("agents"), root.join("extensions")];
        let catalog = Weak::new();
        let mut follower = ChangeFollower { root, dirs, catalog, messages, watched: None };
        follower.renew_watch();
        for _ in 0..10 {
            assert_eq!(fs::read_dir(&follower.dirs[0]).unwrap().count(), 1);
            assert_eq!(fs::read(&file).unwrap(), b"first");
        }
        let message = receiver.recv_timeout(Duration::from_millis(200));
        assert_eq!(message, Err(RecvTimeoutError::Timeout));
        fs::write(&file, "second").unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(WatchMessage::Reload));
    }
}
