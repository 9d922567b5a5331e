//! Notices that agents were added, edited, renamed or deleted; where the system cannot tell, it looks.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::live::Catalog;
use super::stamp::Stamp;

/// Editors save in several steps; when nothing happens for this long, they are over.
const QUIET: Duration = Duration::from_millis(60);
/// A folder that is never quiet is read all the same after this time.
const MOST_WAIT: Duration = Duration::from_millis(500);
/// How often the disk is looked at where it cannot be watched.
const POLL: Duration = Duration::from_millis(500);
/// How often it is looked at besides being watched: a network disk tells nobody what others change on it.
const SAFETY_POLL: Duration = Duration::from_secs(10);

/// Follows the disk until it is dropped.
#[derive(Debug)]
pub struct Watching {
    messages: Sender<Message>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Message {
    Look,
    Stop,
}

impl Watching {
    pub(super) fn start(catalog: &Arc<Catalog>) -> Self {
        let (messages, inbox) = channel();
        let mut follower = Follower {
            root: catalog.settings().root.clone(),
            folders: [catalog.settings().agents_dir(), catalog.settings().extensions_dir()],
            catalog: Arc::downgrade(catalog),
            messages: messages.clone(),
            watched: None,
        };
        // The watch stands before this returns, so that no edit after it is missed.
        follower.renew();
        let started = thread::Builder::new()
            .name("catalog-watch".to_owned())
            .spawn(move || follower.run(&inbox));
        if let Err(error) = started {
            tracing::warn!(%error, "agents are read again only when they are called");
        }
        Self { messages }
    }
}

/// A watch, or none where the system refused one, and the folder it is about.
struct Watched {
    watcher: Option<RecommendedWatcher>,
    folders: [Option<Stamp>; 2],
}

struct Follower {
    root: PathBuf,
    /// `agents/` and `extensions/`.
    folders: [PathBuf; 2],
    catalog: Weak<Catalog>,
    messages: Sender<Message>,
    watched: Option<Watched>,
}

impl Follower {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let told = self.watched.as_ref().is_some_and(|watched| watched.watcher.is_some());
            let news = match inbox.recv_timeout(if told { SAFETY_POLL } else { POLL }) {
                Ok(Message::Look) => until_quiet(inbox),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => Message::Stop,
                Err(RecvTimeoutError::Timeout) => Message::Look,
            };
            let Some(catalog) = self.catalog.upgrade().filter(|_| news == Message::Look) else {
                return;
            };
            self.renew();
            catalog.reload();
        }
    }

    /// Watches again if one of the folders is another than before, or was not there.
    fn renew(&mut self) {
        let folders = self.folders.each_ref().map(|folder| identity(folder));
        if self.watched.as_ref().is_some_and(|watched| watched.folders == folders) {
            return;
        }
        let watcher = self.watch();
        if let Err(error) = &watcher {
            tracing::warn!(%error, "the agents folder cannot be watched; looking at it instead");
        }
        self.watched = Some(Watched { watcher: watcher.ok(), folders });
    }

    fn watch(&self) -> notify::Result<RecommendedWatcher> {
        let messages = self.messages.clone();
        let targets: Vec<PathBuf> =
            self.folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        let folders: Vec<PathBuf> = targets.iter().chain(&self.folders).cloned().collect();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // What the watcher could not tell may have been anything.
            if event.is_ok_and(|event| !is_change(&event, &folders)) {
                return;
            }
            let _ = messages.send(Message::Look);
        })?;
        // The root tells when one of them itself comes, goes or is replaced.
        watcher.watch(&self.root, RecursiveMode::NonRecursive)?;
        for target in targets {
            watcher.watch(&target, RecursiveMode::Recursive)?;
        }
        Ok(watcher)
    }
}

/// Whether something below the folders may be other than before. Reading changes nothing: taken for a change,
/// every look at the folder would lead to the next one.
fn is_change(event: &Event, folders: &[PathBuf]) -> bool {
    let only_read = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    let concerns = |path: &PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    event.need_rescan() || (!only_read && event.paths.iter().any(concerns))
}

/// Waits until a burst of news is over.
fn until_quiet(inbox: &Receiver<Message>) -> Message {
    let began = Instant::now();
    while began.elapsed() < MOST_WAIT {
        match inbox.recv_timeout(QUIET) {
            Ok(Message::Look) => {}
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return Message::Stop,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    Message::Look
}

/// Which folder stands at `path`: its contents may change, the folder itself stays the same.
fn identity(path: &Path) -> Option<Stamp> {
    Stamp::now(path).map(Stamp::identity)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Otherwise a catalog that reads because it was told to would be told again, for ever.
    #[test]
    fn reading_is_no_news_and_writing_is() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let file = root.join("agents/one/agent.md");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "first").unwrap();
        let (messages, inbox) = channel();
        let folders = [root.join("agents"), root.join("extensions")];
        let catalog = Weak::new();
        let mut follower = Follower { root, folders, catalog, messages, watched: None };
        follower.renew();
        for _ in 0..10 {
            assert_eq!(fs::read_dir(&follower.folders[0]).unwrap().count(), 1);
            assert_eq!(fs::read(&file).unwrap(), b"first");
        }
        let news = inbox.recv_timeout(Duration::from_millis(200));
        assert_eq!(news, Err(RecvTimeoutError::Timeout));
        fs::write(&file, "second").unwrap();
        assert_eq!(inbox.recv_timeout(Duration::from_secs(20)), Ok(Message::Look));
    }
}
