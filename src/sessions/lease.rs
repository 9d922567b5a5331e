//! Lease of a session: exclusive use by one run, and the bookkeeping of that run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::error::SessionError;
use super::queue::{QueueWatch, Ticket};
use super::resume::{ResumeDecision, new_session};
use super::session::{Session, SessionState};
use super::session_name::{SessionKey, SessionName};
use super::store::SessionStore;
use crate::util::{AgentName, RunId, Timestamp, now};

/// Request for a lease on a session.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    pub agent: AgentName,
    /// Key of the session; `default` if the call names none.
    pub key: SessionKey,
    /// True to start a new session under this key.
    pub fresh: bool,
    /// Working directory, absolute.
    pub working_dir: PathBuf,
    /// Claude Code's configuration directory, absolute.
    pub config_dir: PathBuf,
    /// Session id to use if a new session is created.
    pub new_session_id: Uuid,
    /// Digest of the agent's definition.
    pub agent_digest: String,
    pub run: RunId,
    /// Limit of the wait while another run has the session.
    pub timeout: Duration,
}

/// Way in which `claude` must be started for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// New session: `--session-id=<id>`.
    Create,
    /// Existing session: `--resume=<id>`.
    Resume,
}

/// Usage of one run in its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompletedTurn {
    pub turns: u64,
    /// Cost of this run only, in US dollars; `claude` counts over several runs.
    pub cost_usd: f64,
}

/// A lease on one session: exclusive until it is dropped or the process exits.
#[derive(Debug)]
pub struct SessionLease {
    request: LeaseRequest,
    decision: ResumeDecision,
    was_restarted: bool,
    /// Cost that Claude Code restores when it resumes the session, in US dollars; it is part of later totals.
    restored_cost_usd: f64,
    guard: LeaseGuard,
}

impl LeaseRequest {
    pub(crate) fn name(&self) -> SessionName {
        SessionName { agent: self.agent.clone(), key: self.key.clone() }
    }
}

impl SessionLease {
    pub(crate) fn new(
        request: LeaseRequest,
        decision: ResumeDecision,
        restored_cost_usd: f64,
        guard: LeaseGuard,
    ) -> Self {
        Self { request, decision, was_restarted: false, restored_cost_usd, guard }
    }

    pub fn session_id(&self) -> Uuid {
        self.decision.session.session_id
    }

    pub fn start_mode(&self) -> StartMode {
        self.decision.start_mode
    }

    /// Returns the previous run of the session.
    ///
    /// A live process that served another run last has missed messages of that run and must not be used.
    pub fn last_run(&self) -> Option<RunId> {
        self.decision.last_run
    }

    /// Returns the cost that a resuming `claude` includes in its totals, in US dollars. 0 before Claude
    /// Code 2.1.325.
    pub fn counted_before(&self) -> f64 {
        self.restored_cost_usd
    }

    /// Renews the lease for the next run, without releasing the session in between.
    ///
    /// A resumed session is not recorded until the run ends: no other process can have it, so none can miss a change.
    pub async fn renew(self, begin: LeaseRequest) -> Result<Self, SessionError> {
        let store = self.guard.store.clone();
        if let Some(ticket) = &self.guard.ticket {
            ticket.set_idle(false);
        }
        let mut lease = store.lease_with(self.guard, begin).await?;
        if lease.start_mode() == StartMode::Create {
            lease.save().await;
        }
        Ok(lease)
    }

    /// Marks the lease as idle: others wait for it instead of failing, because the holder gives it up on
    /// demand.
    ///
    /// The caller must drop the lease when [`QueueWatch::has_waiters`] returns `true`. `None` if there is no ticket, so
    /// that no other process can wait.
    pub fn mark_idle(&self) -> Option<QueueWatch> {
        let ticket = self.guard.ticket.as_ref()?;
        ticket.set_idle(true);
        Some(ticket.watch())
    }

    /// Changes the id of a session that has not started: a warm process already has an id.
    ///
    /// Ignored for resumed sessions.
    pub async fn set_session_id(&mut self, id: Uuid) {
        if self.decision.start_mode == StartMode::Create {
            self.decision.session.session_id = id;
            self.save().await;
        }
    }

    pub fn session(&self) -> &Session {
        &self.decision.session
    }

    /// Returns the notes for the caller, which become the `note` of the answer.
    pub fn notes(&self) -> &[String] {
        &self.decision.notes
    }

    /// Starts the session anew, after Claude Code did not find it.
    ///
    /// The new id is recorded before this returns.
    ///
    /// # Errors
    ///
    /// [`SessionError::AlreadyRestarted`] at the second call.
    pub async fn restart(&mut self, why: &str) -> Result<Uuid, SessionError> {
        if self.was_restarted {
            return Err(SessionError::AlreadyRestarted { name: self.decision.session.name() });
        }
        self.was_restarted = true;
        let note = format!(
            "Claude Code no longer has the earlier conversation ({why}), so a new one was begun"
        );
        let mut notes = std::mem::take(&mut self.decision.notes);
        self.decision = new_session(Some(self.session()), &self.request, now_millis(), Some(note));
        notes.append(&mut self.decision.notes);
        self.decision.notes = notes;
        self.restored_cost_usd = 0.0;
        self.save().await;
        Ok(self.session_id())
    }

    /// Records a completed turn: the session can be resumed. A write error becomes a note.
    pub async fn record_completed(&mut self, turn: CompletedTurn) {
        self.decision.session.state = SessionState::Ready;
        self.decision.start_mode = StartMode::Resume;
        self.add_usage(turn);
        self.save().await;
    }

    /// Records a turn that was interrupted and closed in order: the session can be resumed with the text so
    /// far.
    pub async fn record_interrupted(&mut self, cost_usd: f64) {
        self.record_completed(CompletedTurn { turns: 0, cost_usd }).await;
    }

    /// Records the cost of a run without a completed turn. The state of the session does not change.
    pub async fn record_failed(&mut self, cost_usd: f64) {
        self.add_usage(CompletedTurn { turns: 0, cost_usd });
        self.save().await;
    }

    fn add_usage(&mut self, turn: CompletedTurn) {
        let conversation = &mut self.decision.session;
        conversation.turns = conversation.turns.saturating_add(turn.turns);
        let cost = if turn.cost_usd.is_finite() { turn.cost_usd.max(0.0) } else { 0.0 };
        // Rounded to millionths of a dollar, to keep floating-point noise out of the file.
        conversation.cost_usd = ((conversation.cost_usd + cost) * 1e6).round() / 1e6;
        conversation.last_used = now_millis();
    }

    pub(crate) async fn save(&mut self) {
        let notes = self.guard.store.save(self.session().clone()).await;
        self.add_notes(notes);
    }

    pub(crate) fn add_notes(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.decision.notes.contains(&note) {
                self.decision.notes.push(note);
            }
        }
    }
}

/// Exclusive hold on a session.
///
/// Dropping it releases the ticket, then the lock within the process, then wakes waiters.
#[derive(Debug)]
pub(crate) struct LeaseGuard {
    pub(crate) ticket: Option<Arc<Ticket>>,
    pub(crate) local_lock: Option<OwnedMutexGuard<()>>,
    pub(crate) store: SessionStore,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.ticket = None;
        self.local_lock = None;
        self.store.notify_released();
    }
}

/// Returns the current time, rounded down to milliseconds.
pub(crate) fn now_millis() -> Timestamp {
    let now = now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
