//! Notices that agents were added, edited, renamed or deleted; where the system cannot tell, it looks.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, RecommendedCache, new_debouncer};

use super::live::Catalog;
use super::stamp::Stamp;

/// Editors save in several steps; they are over within this time.
const QUIET: Duration = Duration::from_millis(60);
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

enum Message {
    Look,
    Stop,
}

impl Watching {
    pub(super) fn start(catalog: &Arc<Catalog>) -> Self {
        let (messages, inbox) = channel();
        let agents = catalog.settings().agents_dir();
        let mut follower = Follower {
            root: catalog.settings().root.clone(),
            agents,
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
    debouncer: Option<Debouncer<RecommendedWatcher, RecommendedCache>>,
    folder: Option<Stamp>,
}

struct Follower {
    root: PathBuf,
    agents: PathBuf,
    catalog: Weak<Catalog>,
    messages: Sender<Message>,
    watched: Option<Watched>,
}

impl Follower {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let told = self.watched.as_ref().is_some_and(|watched| watched.debouncer.is_some());
            let patience = if told { SAFETY_POLL } else { POLL };
            match inbox.recv_timeout(patience) {
                Ok(Message::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(catalog) = self.catalog.upgrade() else { return };
            self.renew();
            catalog.reload();
        }
    }

    /// Watches again if `agents/` is another folder than before, or was not there.
    fn renew(&mut self) {
        let folder = identity(&self.agents);
        if self.watched.as_ref().is_some_and(|watched| watched.folder == folder) {
            return;
        }
        let debouncer = self.watch();
        if let Err(error) = &debouncer {
            tracing::warn!(%error, "the agents folder cannot be watched; looking at it instead");
        }
        self.watched = Some(Watched { debouncer: debouncer.ok(), folder });
    }

    fn watch(&self) -> notify::Result<Debouncer<RecommendedWatcher, RecommendedCache>> {
        let messages = self.messages.clone();
        let agents = self.agents.clone();
        let target = agents.canonicalize().ok();
        let below = target.clone();
        let mut debouncer = new_debouncer(QUIET, None, move |result: DebounceEventResult| {
            let concerns = |path: &PathBuf| {
                path.starts_with(&agents)
                    || below.as_ref().is_some_and(|below| path.starts_with(below))
            };
            // What the watcher could not tell may have been anything.
            let look = match result {
                Ok(events) => events
                    .iter()
                    .any(|event| event.need_rescan() || event.paths.iter().any(concerns)),
                Err(_) => true,
            };
            if look {
                let _ = messages.send(Message::Look);
            }
        })?;
        // The root tells when `agents/` itself comes, goes or is replaced.
        debouncer.watch(&self.root, RecursiveMode::NonRecursive)?;
        if let Some(target) = target {
            debouncer.watch(&target, RecursiveMode::Recursive)?;
        }
        Ok(debouncer)
    }
}

/// Which folder stands at `path`: its contents may change, the folder itself stays the same.
fn identity(path: &Path) -> Option<Stamp> {
    Stamp::now(path).map(Stamp::identity)
}
