//! The right to use one conversation, and the bookkeeping of the call that has it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::conversation::{Conversation, State};
use super::decide::{Decision, anew};
use super::error::SessionError;
use super::name::SessionKey;
use super::queue::{Line, Ticket};
use super::store::SessionStore;
use crate::base::{AgentName, RunId, Timestamp, now};

/// What a call says about the conversation it wants.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The agent.
    pub agent: AgentName,
    /// Which of its conversations; the default where the call names none.
    pub key: SessionKey,
    /// Whether to start over on purpose.
    pub fresh: bool,
    /// The working folder, absolute.
    pub folder: PathBuf,
    /// Claude Code's configuration folder, absolute.
    pub config_dir: PathBuf,
    /// The id of a conversation that begins with this call.
    pub new_id: Uuid,
    /// Digest of everything the agent's file grants and says.
    pub contract: String,
    /// The run this is for.
    pub run: RunId,
    /// How long to wait for the conversation if somebody else has it.
    pub patience: Duration,
}

/// How `claude` is to be started for a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// `--session-id=<id>`.
    Create,
    /// `--resume=<id>`.
    Resume,
}

/// What one call added to its conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompletedTurn {
    /// How many turns.
    pub turns: u64,
    /// What this call cost; not what `claude` has counted up over several.
    pub cost_usd: f64,
}

/// A conversation in use: nobody else has it until this is dropped, or this process ends in any way.
#[derive(Debug)]
pub struct Lease {
    store: SessionStore,
    begin: Begin,
    conversation: Conversation,
    last_run: Option<RunId>,
    start: Start,
    restarted: bool,
    counted_before: f64,
    notes: Vec<String>,
    hold: Hold,
}

/// What was found out about a conversation at the beginning of a call.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) decision: Decision,
    /// The run that used it before.
    pub(super) last_run: Option<RunId>,
    /// What Claude Code has already counted for it, and will count again.
    pub(super) counted_before: f64,
}

impl Lease {
    pub(super) fn new(store: SessionStore, begin: Begin, beginning: Beginning, hold: Hold) -> Self {
        let Beginning { decision, last_run, counted_before } = beginning;
        let Decision { conversation, start, notes } = decision;
        let restarted = false;
        Self { store, begin, conversation, last_run, start, restarted, counted_before, notes, hold }
    }

    /// Claude Code's id of the conversation.
    pub fn session_id(&self) -> Uuid {
        self.conversation.session_id
    }

    /// How `claude` is to be started.
    pub fn start(&self) -> Start {
        self.start
    }

    /// The run that last used the conversation, before this one. A live process that served
    /// another run last has missed what was said since, and must not be used for this call.
    pub fn last_run(&self) -> Option<RunId> {
        self.last_run
    }

    /// What a newer `claude` that resumes the conversation has already counted for it, and counts again.
    pub fn counted_before(&self) -> f64 {
        self.counted_before
    }

    /// The next call in the same conversation, which nobody else had in between: decided as at the first. One that goes on
    /// has nothing to record before its end: nobody else can have a process that would miss something.
    pub async fn again(self, begin: Begin) -> Self {
        let Self { store, hold, .. } = self;
        if let Some(ticket) = &hold.ticket {
            ticket.set_idle(false);
        }
        let mut lease = store.begin_with(hold, begin).await;
        if lease.start == Start::Create {
            lease.record().await;
        }
        lease
    }

    /// Keeps the conversation without using it: whoever waits may count on getting it soon, if this is dropped when the
    /// line says that somebody does. `None` where nobody can wait.
    pub fn rest(&self) -> Option<Line> {
        let ticket = self.hold.ticket.as_ref()?;
        ticket.set_idle(true);
        Some(ticket.line())
    }

    /// Takes another id for a conversation that is about to begin: that of a process which waits under it.
    pub async fn take_id(&mut self, id: Uuid) {
        if self.start == Start::Create {
            self.conversation.session_id = id;
            self.record().await;
        }
    }

    /// The conversation as it is recorded.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// What the caller must be told: it goes into the answer's `note`.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Claude Code does not know the conversation any more: takes a new id, recorded before this returns.
    /// Once per call; `why` is what Claude Code said.
    pub async fn restart_fresh(&mut self, why: &str) -> Result<Uuid, SessionError> {
        if self.restarted {
            return Err(SessionError::AlreadyRestarted { name: self.conversation.name() });
        }
        self.restarted = true;
        let note = format!(
            "Claude Code no longer has the earlier conversation ({why}), so a new one was begun"
        );
        let decision = anew(Some(&self.conversation), &self.begin, moment(), Some(note));
        self.conversation = decision.conversation;
        self.start = decision.start;
        self.last_run = None;
        self.counted_before = 0.0;
        self.notes.extend(decision.notes);
        self.record().await;
        Ok(self.session_id())
    }

    /// A turn has been completed: from now on the conversation can go on. A failure to write that down is a note.
    pub async fn completed(&mut self, turn: CompletedTurn) {
        self.conversation.state = State::Ready;
        self.start = Start::Resume;
        self.add(turn);
        self.record().await;
    }

    /// The turn was stopped from outside and closed in order: the next call goes on from what was said until then.
    pub async fn interrupted(&mut self, cost_usd: f64) {
        self.completed(CompletedTurn { turns: 0, cost_usd }).await;
    }

    /// The call ended without a completed turn: what it cost is counted, the conversation is as usable as before.
    pub async fn failed(&mut self, cost_usd: f64) {
        self.add(CompletedTurn { turns: 0, cost_usd });
        self.record().await;
    }

    fn add(&mut self, turn: CompletedTurn) {
        let conversation = &mut self.conversation;
        conversation.turns = conversation.turns.saturating_add(turn.turns);
        let cost = if turn.cost_usd.is_finite() { turn.cost_usd.max(0.0) } else { 0.0 };
        // Millionths of a dollar: sums stay readable.
        conversation.cost_usd = ((conversation.cost_usd + cost) * 1e6).round() / 1e6;
        conversation.last_used = moment();
    }

    pub(super) async fn record(&mut self) {
        let notes = self.store.record(self.conversation.clone()).await;
        self.note(notes);
    }

    pub(super) fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// What keeps others out. The ticket goes first, then those who wait in this process are told.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) ticket: Option<Ticket>,
    pub(super) local: Option<OwnedMutexGuard<()>>,
    pub(super) store: SessionStore,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.ticket = None;
        self.local = None;
        self.store.announce_release();
    }
}

/// Now, to the millisecond: people read it.
pub(super) fn moment() -> Timestamp {
    let now = now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
