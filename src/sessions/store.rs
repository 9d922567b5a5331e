//! The store as the rest of Adjutant knows it: begin a conversation, look at them, forget some.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::conversation::Conversation;
use super::decide::{Trace, decide};
use super::error::{NotSaved, SessionError};
use super::journal::Change;
use super::lease::{Begin, Beginning, Hold, Lease, Start, moment};
use super::name::ConversationName;
use super::queue::{Holder, Ticket, current_holder};
use super::shelf::{Paths, Shelf};
use super::transcript::{cost_counted_before, has_completed_turn, locate_transcript};
use crate::base::Timestamp;

/// How often a waiting call looks whether another process is done; within one it is told at once.
const POLL: Duration = Duration::from_millis(20);
/// How long a server that keeps a conversation without using it has to give it up: a look at the line, and the end of a process.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(5);
/// How long changes are gathered before they are folded into `sessions.json`.
const FOLD_AFTER: Duration = Duration::from_secs(1);
/// Queues of this process that are kept before idle ones are dropped.
const MOST_IDLE_QUEUES: usize = 64;

/// The conversations of one project. Cheap to clone; all clones are one store.
#[derive(Clone, Debug)]
pub struct SessionStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    paths: Paths,
    shelf: Mutex<Shelf>,
    /// Makes tickets be drawn in the order in which calls came.
    arrivals: tokio::sync::Mutex<()>,
    /// Keeps calls of this process apart where no ticket could be drawn.
    local: Mutex<HashMap<ConversationName, Arc<tokio::sync::Mutex<()>>>>,
    released: Notify,
    fold_is_due: AtomicBool,
}

/// The conversations, and what there is to say about the store.
#[derive(Debug)]
pub struct Listing {
    /// All of them, by agent and key.
    pub conversations: Vec<Listed>,
    /// Damage that was found, and what was done about it.
    pub notes: Vec<String>,
}

/// One conversation and whether it is in use.
#[derive(Clone, Debug)]
pub struct Listed {
    /// As it is recorded.
    pub conversation: Arc<Conversation>,
    /// Who is using it right now.
    pub holder: Option<Holder>,
}

/// What was done about conversations that were to be forgotten.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// These are no longer remembered.
    pub conversations: Vec<Arc<Conversation>>,
    /// These are in use and were left.
    pub busy: Vec<(ConversationName, Holder)>,
    /// These there are none of.
    pub unknown: Vec<ConversationName>,
}

impl SessionStore {
    /// The store in a `data/` folder, which need not exist yet. What is wrong with it is said by those who use it.
    pub fn open(data_dir: &Path) -> Self {
        let paths = Paths::new(data_dir);
        let inner = Inner {
            shelf: Mutex::new(Shelf::new(paths.clone())),
            paths,
            arrivals: tokio::sync::Mutex::new(()),
            local: Mutex::new(HashMap::new()),
            released: Notify::new(),
            fold_is_due: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for the conversation, and decides whether it goes on or begins; that is recorded before this returns.
    pub async fn begin(&self, begin: Begin) -> Result<Lease, SessionError> {
        let name = ConversationName { agent: begin.agent.clone(), key: begin.key.clone() };
        let (hold, unshared) = self.wait_for(&name, &begin).await?;
        let mut lease = self.begin_with(hold, begin).await;
        // Also when it goes on: what a crash interrupts may have been said, and `last_run` tells.
        lease.record().await;
        lease.note(unshared);
        Ok(lease)
    }

    /// Which conversation a call will be part of, as things are now; somebody may still be using it. Blocks for a moment.
    pub fn foresee(&self, begin: &Begin) -> Uuid {
        let name = ConversationName { agent: begin.agent.clone(), key: begin.key.clone() };
        let known = self.records().view().get(&name).cloned();
        decide(known.as_deref(), begin, moment(), trace_of).conversation.session_id
    }

    /// Decides for a call that has the conversation already.
    pub(super) async fn begin_with(&self, hold: Hold, begin: Begin) -> Lease {
        let name = ConversationName { agent: begin.agent.clone(), key: begin.key.clone() };
        let store = self.clone();
        let asked = begin.clone();
        let (beginning, warnings) = blocking(move || {
            let mut records = store.records();
            let known = records.view().get(&name).cloned();
            let warnings = records.take_warnings();
            drop(records);
            (examine(known.as_deref(), &asked), warnings)
        })
        .await;
        let mut lease = Lease::new(self.clone(), begin, beginning, hold);
        lease.note(warnings);
        lease
    }

    /// All conversations. Blocks for a moment.
    pub fn list(&self) -> Listing {
        let mut records = self.records();
        let view = records.view().clone();
        let notes = records.take_warnings();
        drop(records);
        let conversations = view
            .into_iter()
            .map(|(name, conversation)| Listed {
                holder: current_holder(&self.inner.paths.leases, &name),
                conversation,
            })
            .collect();
        Listing { conversations, notes }
    }

    /// Those that nobody has used since `before`.
    pub fn unused_since(&self, before: Timestamp) -> Listing {
        let mut listing = self.list();
        listing.conversations.retain(|listed| listed.conversation.last_used < before);
        listing
    }

    /// Forgets those that nobody has used for `retention`, except those in use. Blocks for a moment.
    pub fn retire(&self, retention: Duration) -> Result<Forgotten, SessionError> {
        let Ok(before) = moment().checked_sub(retention) else { return Ok(Forgotten::default()) };
        let old = self.unused_since(before).conversations;
        let names: Vec<ConversationName> =
            old.iter().map(|listed| listed.conversation.name()).collect();
        self.forget(&names)
    }

    /// Forgets conversations, except those in use. Their transcripts stay with Claude Code. Blocks for a moment.
    pub fn forget(&self, names: &[ConversationName]) -> Result<Forgotten, SessionError> {
        let mut forgotten = Forgotten::default();
        let mut held = Vec::new();
        for name in names {
            let known = self.records().view().get(name).cloned();
            match (known, self.try_hold(name)) {
                (None, _) => forgotten.unknown.push(name.clone()),
                (_, Err(holder)) => forgotten.busy.push((name.clone(), holder)),
                (Some(conversation), Ok(ticket)) => {
                    held.extend(ticket);
                    forgotten.conversations.push(conversation);
                }
            }
        }
        let changes: Vec<Change> =
            forgotten.conversations.iter().map(|gone| Change::Forget(gone.name())).collect();
        if !changes.is_empty() {
            self.records().save(changes).map_err(SessionError::NotSaved)?;
        }
        Ok(forgotten)
    }

    /// Where the store is.
    pub fn file(&self) -> &Path {
        &self.inner.paths.store
    }

    /// Writes a conversation down; what went wrong with that is for the caller to read.
    pub(super) async fn record(&self, conversation: Conversation) -> Vec<String> {
        let store = self.clone();
        let (saved, mut notes) = blocking(move || {
            let mut records = store.records();
            let saved = records.save(vec![Change::Put(Arc::new(conversation))]);
            if records.wants_folding() {
                store.fold_soon();
            }
            (saved, records.take_warnings())
        })
        .await;
        if let Err(problem) = saved {
            let note = not_kept(&problem);
            tracing::warn!(target: "adjutant::sessions", "{note}");
            notes.push(note);
        }
        notes
    }

    pub(super) fn announce_release(&self) {
        self.inner.released.notify_waiters();
    }

    fn records(&self) -> MutexGuard<'_, Shelf> {
        // A panic elsewhere leaves the image as it was: every change is applied whole.
        self.inner.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conversation, once it is this call's turn; and a note if other processes were not asked.
    async fn wait_for(
        &self,
        name: &ConversationName,
        begin: &Begin,
    ) -> Result<(Hold, Option<String>), SessionError> {
        let started = Instant::now();
        let deadline = started + begin.patience;
        let busy =
            |holder| SessionError::Busy { name: name.clone(), holder, waited: started.elapsed() };
        let holder = Holder::this_process(Some(begin.run));
        let (ticket, unshared) = match self.draw(name.clone(), holder.clone()).await {
            Ok(ticket) => (Some(ticket), None),
            Err(problem) => (None, Some(unshared_note(&problem))),
        };
        // From here on dropping this future gives the place up.
        let mut hold = Hold { ticket, local: None, store: self.clone() };
        if let Some(ticket) = &hold.ticket {
            self.wait_in_line(ticket, deadline).await.map_err(busy)?;
        }
        let local = timeout_at(deadline, self.local_queue(name).lock_owned());
        let guard: OwnedMutexGuard<()> = local.await.map_err(|_| busy(holder))?;
        hold.local = Some(guard);
        Ok((hold, unshared))
    }

    async fn draw(&self, name: ConversationName, holder: Holder) -> Result<Ticket, String> {
        let _in_order = self.inner.arrivals.lock().await;
        let leases = self.inner.paths.leases.clone();
        let drawn = blocking(move || Ticket::draw(&leases, &name, &holder)).await;
        drawn.map_err(|problem| problem.to_string())
    }

    async fn wait_in_line(&self, ticket: &Ticket, deadline: Instant) -> Result<(), Holder> {
        let given_up = Instant::now() + GIVEN_UP_WITHIN;
        loop {
            let released = self.inner.released.notified();
            // A queue that cannot be read cannot be waited in: the lock within this process remains.
            let Some(holder) = ticket.ahead().unwrap_or(None) else { return Ok(()) };
            // Whoever only keeps it is about to give it up: that is no reason to be refused.
            let until = if holder.is_idle { deadline.max(given_up) } else { deadline };
            if Instant::now() >= until {
                return Err(holder);
            }
            let _ = timeout_at(until.min(Instant::now() + POLL), released).await;
        }
    }

    fn local_queue(&self, name: &ConversationName) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.inner.local.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= MOST_IDLE_QUEUES {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(name.clone()).or_default())
    }

    /// The conversation if nobody has it. Without a queue (a read-only folder) nothing can be saved either.
    fn try_hold(&self, name: &ConversationName) -> Result<Option<Ticket>, Holder> {
        let holder = Holder::this_process(None);
        let Ok(ticket) = Ticket::draw(&self.inner.paths.leases, name, &holder) else {
            return Ok(None);
        };
        let started = Instant::now();
        while let Some(holder) = ticket.ahead().unwrap_or(None) {
            if !holder.is_idle || started.elapsed() >= GIVEN_UP_WITHIN {
                return Err(holder);
            }
            std::thread::sleep(POLL);
        }
        Ok(Some(ticket))
    }

    /// Folds the journal in a little later, once for all changes until then.
    fn fold_soon(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.inner.fold_is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let store = self.clone();
        runtime.spawn(async move {
            sleep(FOLD_AFTER).await;
            store.inner.fold_is_due.store(false, Ordering::Release);
            if let Err(problem) = blocking(move || store.fold()).await {
                tracing::warn!(target: "adjutant::sessions", "{}", not_kept(&problem));
            }
        });
    }

    /// Leaves `sessions.json` up to date for those who read it after this process has ended.
    pub async fn settle(&self) {
        let store = self.clone();
        if let Err(problem) = blocking(move || store.fold()).await {
            tracing::warn!(target: "adjutant::sessions", "{}", not_kept(&problem));
        }
    }

    /// Writes the journal into `sessions.json`. Calls go on meanwhile: the long part holds no lock.
    pub fn fold_now(&self) -> Result<(), SessionError> {
        self.fold().map_err(SessionError::NotSaved)
    }

    fn fold(&self) -> Result<(), NotSaved> {
        let Some(fold) = self.records().plan_fold() else { return Ok(()) };
        let staged = fold.stage(&self.inner.paths)?;
        self.records().finish_fold(&fold, staged)
    }
}

/// Decides, with a look at the transcript where that matters.
fn examine(known: Option<&Conversation>, begin: &Begin) -> Beginning {
    let decision = decide(known, begin, moment(), trace_of);
    let resumed = known.filter(|_| decision.start == Start::Resume);
    let counted_before =
        resumed.and_then(transcript_of).map_or(0.0, |path| cost_counted_before(&path));
    Beginning { last_run: resumed.map(|known| known.last_run), counted_before, decision }
}

fn trace_of(conversation: &Conversation) -> Trace {
    match transcript_of(conversation) {
        Some(path) if has_completed_turn(&path) => Trace::CompletedTurn,
        _ => Trace::Nothing,
    }
}

fn transcript_of(conversation: &Conversation) -> Option<PathBuf> {
    let (config_dir, folder) =
        (Path::new(&conversation.config_dir), Path::new(&conversation.folder));
    locate_transcript(config_dir, folder, conversation.session_id)
}

fn not_kept(problem: &NotSaved) -> String {
    let mut note = format!("the conversation could not be kept: {problem}");
    let mut cause = problem.source();
    while let Some(source) = cause {
        let _ = write!(note, ": {source}");
        cause = source.source();
    }
    note
}

fn unshared_note(problem: &str) -> String {
    format!("other processes could not be kept out of this conversation: {problem}")
}

/// Runs what waits for the disk where waiting is fine.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        // The runtime is shutting down, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
