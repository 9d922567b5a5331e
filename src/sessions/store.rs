//! The session store: leases sessions, lists them, forgets them.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::error::SessionError;
use super::lease::{LeaseGuard, LeaseRequest, SessionLease, StartMode, now_millis};
use super::queue::{Ticket, TicketHolder, current_holder};
use super::resume::{ResumeDecision, TranscriptState, decide};
use super::session::Session;
use super::session_name::SessionName;
use super::table::{SessionChange, SessionMap};
use super::transcript::{find_transcript, has_completed_turn, restored_cost, transcripts_dir};
use crate::store::{Journal, JournalError, LockError, remove_tree};
use crate::util::{Mutex, Timestamp};

/// Interval at which a waiting run checks for a release by another process; releases in this process
/// are notified.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which an idle holder releases its session: one check of the queue, and the shutdown of a
/// process.
const IDLE_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay of a compaction, to combine several changes.
const COMPACTION_DELAY: Duration = Duration::from_secs(1);
/// Number of in-process queues above which unused ones are removed.
const MAX_IDLE_QUEUES: usize = 64;

/// Sessions of one project. Cheap to clone; clones share one store.
#[derive(Clone, Debug)]
pub struct SessionStore {
    inner: Arc<SessionStoreInner>,
}

#[derive(Debug)]
struct SessionStoreInner {
    journal: Journal<SessionMap>,
    data_dir: PathBuf,
    /// Directory of the queues.
    leases: PathBuf,
    /// Held while a ticket is drawn, to draw tickets in order of arrival.
    draw_order: tokio::sync::Mutex<()>,
    /// Locks between runs of this process, which hold even if no ticket could be drawn.
    local_queues: Mutex<HashMap<SessionName, Arc<tokio::sync::Mutex<()>>>>,
    released: Notify,
    compaction_is_due: AtomicBool,
}

/// Result of listing sessions.
#[derive(Debug)]
pub struct SessionListing {
    /// Sorted by agent and key.
    pub sessions: Vec<ListedSession>,
    /// Damage that was found, and the action taken.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ListedSession {
    pub session: Arc<Session>,
    /// Current owner of the lease.
    pub holder: Option<TicketHolder>,
}

/// Result of forgetting sessions.
#[derive(Debug, Default)]
pub struct ForgetReport {
    /// Removed from the store.
    pub removed: Vec<Arc<Session>>,
    /// Left, because they are in use.
    pub busy: Vec<(SessionName, TicketHolder)>,
    /// Not in the store.
    pub unknown: Vec<SessionName>,
}

impl SessionStore {
    /// Opens the store in a `data/` directory, which need not exist.
    ///
    /// Errors are reported by the methods that use it.
    pub fn open(data_dir: &Path) -> Self {
        let inner = SessionStoreInner {
            journal: Journal::open(data_dir),
            data_dir: data_dir.to_path_buf(),
            leases: data_dir.join("leases"),
            draw_order: tokio::sync::Mutex::new(()),
            local_queues: Mutex::new(HashMap::new()),
            released: Notify::new(),
            compaction_is_due: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for the session and leases it.
    ///
    /// The decision to start or resume is recorded before this returns.
    ///
    /// Dropping the future gives up the position in the queue.
    pub async fn lease(&self, begin: LeaseRequest) -> Result<SessionLease, SessionError> {
        let name = begin.name();
        let (hold, unshared) = self.acquire(&name, &begin).await?;
        let mut lease = self.lease_with(hold, begin).await?;
        // Recorded also for a resumed session: if this run crashes, the next one sees it as `last_run`.
        lease.save().await;
        lease.add_notes(unshared);
        Ok(lease)
    }

    /// Predicts the session id of a run without taking a lease. Blocks on file I/O.
    pub fn predict_session_id(&self, begin: &LeaseRequest) -> Uuid {
        let name = begin.name();
        let known = self.known(&name).unwrap_or_default();
        let state = |session: &Session| self.transcript_state(session);
        decide(known.as_deref(), begin, now_millis(), state).session.session_id
    }

    /// Decides for a run that already holds the session.
    pub(crate) async fn lease_with(
        &self,
        hold: LeaseGuard,
        begin: LeaseRequest,
    ) -> Result<SessionLease, SessionError> {
        let name = begin.name();
        let store = self.clone();
        let asked = begin.clone();
        let ((decision, restored_cost_usd), warnings) = run_blocking(move || {
            let known = store.known(&name)?;
            Ok((store.decide_start(known.as_deref(), &asked), store.inner.journal.take_warnings()))
        })
        .await?;
        let mut lease = SessionLease::new(begin, decision, restored_cost_usd, hold);
        lease.add_notes(warnings);
        Ok(lease)
    }

    /// Lists all sessions. Blocks on file I/O.
    pub fn list(&self) -> Result<SessionListing, SessionError> {
        self.list_if(|_| true)
    }

    /// Lists the sessions that were last used before `before`. Blocks on file I/O.
    pub fn unused_since(&self, before: Timestamp) -> Result<SessionListing, SessionError> {
        self.list_if(|session| session.last_used < before)
    }

    fn list_if(&self, wanted: impl Fn(&Session) -> bool) -> Result<SessionListing, SessionError> {
        let all = self.inner.journal.read(SessionMap::clone).map_err(SessionError::Unreadable)?;
        let wanted = all.into_iter().filter(|(_, session)| wanted(session));
        let listed = wanted.map(|(name, session)| {
            let holder = current_holder(&self.inner.leases, &name)
                .map_err(|error| queue_unavailable(&name, error))?;
            Ok(ListedSession { session, holder })
        });
        let sessions = listed.collect::<Result<_, SessionError>>()?;
        Ok(SessionListing { sessions, notes: self.inner.journal.take_warnings() })
    }

    /// Forgets sessions that were not used for `retention`, except those in use. Blocks on file I/O.
    pub fn forget_unused(&self, retention: Duration) -> Result<ForgetReport, SessionError> {
        let Ok(before) = now_millis().checked_sub(retention) else {
            return Ok(ForgetReport::default());
        };
        let old = self.unused_since(before)?.sessions;
        let names: Vec<SessionName> = old.iter().map(|listed| listed.session.name()).collect();
        self.forget(&names)
    }

    /// Forgets sessions, except those in use.
    ///
    /// Transcripts stay with Claude Code, except those of agents in sandboxes, which are removed. Blocks; waits 5 s for an
    /// idle holder.
    pub fn forget(&self, names: &[SessionName]) -> Result<ForgetReport, SessionError> {
        let mut forgotten = ForgetReport::default();
        let mut held = Vec::new();
        for name in names {
            match (self.known(name)?, self.try_acquire(name)) {
                (None, _) => forgotten.unknown.push(name.clone()),
                (_, Err(SessionError::Busy { holder, .. })) => {
                    forgotten.busy.push((name.clone(), holder));
                }
                (_, Err(error)) => return Err(error),
                (Some(conversation), Ok(ticket)) => {
                    held.extend(ticket);
                    forgotten.removed.push(conversation);
                }
            }
        }
        let changes: Vec<SessionChange> =
            forgotten.removed.iter().map(|gone| SessionChange::Forget(gone.name())).collect();
        if !changes.is_empty() {
            self.inner.journal.append(changes).map_err(SessionError::NotSaved)?;
        }
        for gone in &forgotten.removed {
            let dir = transcripts_dir(&self.inner.data_dir, gone.session_id);
            if let Err(error) = remove_tree(&dir) {
                tracing::warn!(%error, "a transcript could not be removed: `{}`", dir.display());
            }
        }
        Ok(forgotten)
    }

    /// Returns the transcript of a session, if it exists. Blocks on file I/O.
    pub(crate) fn find_transcript(&self, session: &Session) -> Option<PathBuf> {
        find_transcript(&self.inner.data_dir, session)
    }

    fn transcript_state(&self, session: &Session) -> TranscriptState {
        match self.find_transcript(session) {
            Some(path) if has_completed_turn(&path) => TranscriptState::CompletedTurn,
            _ => TranscriptState::NoCompletedTurn,
        }
    }

    /// Decides, and reads the transcript if needed. Also returns the cost that Claude Code restores, in US dollars.
    fn decide_start(
        &self,
        known: Option<&Session>,
        request: &LeaseRequest,
    ) -> (ResumeDecision, f64) {
        let state = |session: &Session| self.transcript_state(session);
        let decision = decide(known, request, now_millis(), state);
        let resumed = known.filter(|_| decision.start_mode == StartMode::Resume);
        let transcript = resumed.and_then(|session| self.find_transcript(session));
        (decision, transcript.map_or(0.0, |it| restored_cost(&it)))
    }

    /// Returns the path of `sessions.json`.
    pub fn path(&self) -> &Path {
        self.inner.journal.snapshot_path()
    }

    /// Writes a session. Returns warnings and write errors as notes.
    pub(crate) async fn save(&self, conversation: Session) -> Vec<String> {
        let store = self.clone();
        let (saved, mut notes) = run_blocking(move || {
            let journal = &store.inner.journal;
            let saved = journal.append(vec![SessionChange::Put(Arc::new(conversation))]);
            if journal.needs_compaction() {
                store.schedule_compaction();
            }
            (saved, journal.take_warnings())
        })
        .await;
        if let Err(problem) = saved {
            let note = save_failed_note(&problem);
            tracing::warn!(target: "adjutant::sessions", "{note}");
            notes.push(note);
        }
        notes
    }

    pub(crate) fn notify_released(&self) {
        self.inner.released.notify_waiters();
    }

    fn known(&self, name: &SessionName) -> Result<Option<Arc<Session>>, SessionError> {
        let known = self.inner.journal.read(|sessions| sessions.get(name).cloned());
        known.map_err(SessionError::Unreadable)
    }

    /// Waits for the session. Returns a note if other processes cannot be excluded.
    async fn acquire(
        &self,
        name: &SessionName,
        begin: &LeaseRequest,
    ) -> Result<(LeaseGuard, Option<String>), SessionError> {
        let started = Instant::now();
        let deadline = started + begin.timeout;
        let busy =
            |holder| SessionError::Busy { name: name.clone(), holder, waited: started.elapsed() };
        let holder = TicketHolder::this_process(Some(begin.run));
        let (ticket, unshared) = match self.draw_ticket(name.clone(), holder.clone()).await {
            Ok(ticket) => (Some(Arc::new(ticket)), None),
            Err(LockError::Io(error)) if cannot_queue(&error) => {
                (None, Some(unshared_note(&error.to_string())))
            }
            Err(reason) => {
                return Err(SessionError::QueueUnavailable { name: name.clone(), reason });
            }
        };
        // From here on, dropping this future releases the ticket.
        let mut hold = LeaseGuard { ticket, local_lock: None, store: self.clone() };
        if let Some(ticket) = &hold.ticket {
            match self.wait_for_ticket(ticket, deadline).await {
                Ok(None) => {}
                Ok(Some(holder)) => return Err(busy(holder)),
                Err(error) => return Err(queue_unavailable(name, error)),
            }
        }
        let local = timeout_at(deadline, self.local_queue(name).lock_owned());
        let guard: OwnedMutexGuard<()> = local.await.map_err(|_| busy(holder))?;
        hold.local_lock = Some(guard);
        Ok((hold, unshared))
    }

    async fn draw_ticket(
        &self,
        name: SessionName,
        holder: TicketHolder,
    ) -> Result<Ticket, LockError> {
        let _in_order = self.inner.draw_order.lock().await;
        let leases = self.inner.leases.clone();
        run_blocking(move || Ticket::draw(&leases, &name, &holder)).await
    }

    /// Waits until the ticket owns the session. Returns the current owner on timeout.
    async fn wait_for_ticket(
        &self,
        ticket: &Arc<Ticket>,
        deadline: Instant,
    ) -> io::Result<Option<TicketHolder>> {
        let given_up = Instant::now() + IDLE_RELEASE_TIMEOUT;
        loop {
            let released = self.inner.released.notified();
            // Shared with the blocking thread: the ticket is held as long as its queue is being read.
            let held = Arc::clone(ticket);
            let Some(holder) = run_blocking(move || held.owner_ahead()).await? else {
                return Ok(None);
            };
            // An idle holder is about to release the session: wait at least 5 s for it.
            let until = if holder.is_idle { deadline.max(given_up) } else { deadline };
            if Instant::now() >= until {
                return Ok(Some(holder));
            }
            let _ = timeout_at(until.min(Instant::now() + POLL_INTERVAL), released).await;
        }
    }

    fn local_queue(&self, name: &SessionName) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.inner.local_queues.lock();
        if queues.len() >= MAX_IDLE_QUEUES {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry(name.clone()).or_default())
    }

    /// Takes a ticket if the session is free.
    ///
    /// `None` in a directory without a queue, where nothing can be saved either.
    fn try_acquire(&self, name: &SessionName) -> Result<Option<Ticket>, SessionError> {
        let holder = TicketHolder::this_process(None);
        let ticket = match Ticket::draw(&self.inner.leases, name, &holder) {
            Ok(ticket) => ticket,
            Err(LockError::Io(error)) if cannot_queue(&error) => return Ok(None),
            Err(reason) => {
                return Err(SessionError::QueueUnavailable { name: name.clone(), reason });
            }
        };
        let started = Instant::now();
        while let Some(holder) =
            ticket.owner_ahead().map_err(|error| queue_unavailable(name, error))?
        {
            if !holder.is_idle || started.elapsed() >= IDLE_RELEASE_TIMEOUT {
                let (name, waited) = (name.clone(), started.elapsed());
                return Err(SessionError::Busy { name, holder, waited });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(Some(ticket))
    }

    /// Schedules a compaction after 1 s, unless one is scheduled.
    fn schedule_compaction(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.inner.compaction_is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let store = self.clone();
        runtime.spawn(async move {
            sleep(COMPACTION_DELAY).await;
            store.inner.compaction_is_due.store(false, Ordering::Release);
            store.flush().await;
        });
    }

    /// Compacts the journal, so that `sessions.json` is complete. An error is logged.
    pub async fn flush(&self) {
        let store = self.clone();
        if let Err(problem) = run_blocking(move || store.inner.journal.compact()).await {
            tracing::warn!(target: "adjutant::sessions", "{}", save_failed_note(&problem));
        }
    }

    /// Compacts the journal into `sessions.json`.
    ///
    /// Runs continue meanwhile: no lock is held while the file is written.
    pub fn compact_now(&self) -> Result<(), SessionError> {
        self.inner.journal.compact().map_err(SessionError::NotSaved)
    }
}

fn save_failed_note(problem: &JournalError) -> String {
    format!("the conversation could not be kept: {problem}")
}

fn queue_unavailable(name: &SessionName, error: io::Error) -> SessionError {
    SessionError::QueueUnavailable { name: name.clone(), reason: error.into() }
}

/// Returns `true` if no process can queue there: the disk is full, or the directory cannot be written.
///
/// A run then continues without a ticket. After any other error another process could have a ticket.
fn cannot_queue(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
    )
}

fn unshared_note(problem: &str) -> String {
    format!("other processes could not be kept out of this conversation: {problem}")
}

/// Runs blocking `work` on a blocking thread and resumes its panic.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
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
