//! What the reading task, the turn and the handles have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::progress::{Progress, Tracker};
use super::result::ResultFrame;

/// How a turn ended, and what had come of it by then.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// How it ended.
    pub ending: Ending,
    /// What the agent had written, how many round trips, what it cost.
    pub progress: Progress,
}

/// The ways a turn can end.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The CLI said how the turn ended; that may still be a failure.
    Result(Box<ResultFrame>),
    /// The stream ended without a result.
    StreamEnded,
    /// A line was longer than `limit` bytes; the stream is not read any further.
    LineTooLong {
        /// The most bytes a line may have.
        limit: usize,
    },
    /// The stream could not be read.
    ReadFailed {
        /// Why.
        message: String,
    },
    /// The CLI works in another session than it was started for.
    WrongSession {
        /// The one that was asked for.
        expected: String,
        /// The one it named.
        found: String,
    },
}

/// Where the conversation stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// `initialize` was sent.
    Opening,
    /// The CLI refused `initialize`.
    Refused(String),
    /// Nothing runs.
    Idle,
    /// A prompt was sent and its result has not come.
    Running,
    /// A result came and nobody has taken it yet.
    Finished(Box<ResultFrame>),
    /// Nothing will come any more.
    Over(Ending),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) tracker: Tracker,
}

pub(super) enum Outgoing {
    Line(Vec<u8>),
    Close,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Notify,
    outgoing: UnboundedSender<Outgoing>,
    next_id: AtomicU64,
}

impl Shared {
    pub(super) fn new(outgoing: UnboundedSender<Outgoing>, tracker: Tracker) -> Self {
        let state = State { phase: Phase::Opening, tracker };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            outgoing,
            next_id: AtomicU64::new(0),
        }
    }

    /// INVARIANT: never held across an `.await`, nor while the parent is called.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.state().phase = phase;
        self.changed.notify_waiters();
    }

    /// Waits until `ready` gives something for the state.
    pub(super) async fn wait_for<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Enlisted before looking: a change in between is not missed.
            changed.as_mut().enable();
            if let Some(value) = ready(&mut self.state()) {
                return value;
            }
            changed.await;
        }
    }

    /// Queues a line; where the other side is gone, the reading side will tell.
    pub(super) fn send(&self, line: Vec<u8>) {
        let _ = self.outgoing.send(Outgoing::Line(line));
    }

    pub(super) fn close(&self) {
        let _ = self.outgoing.send(Outgoing::Close);
    }

    pub(super) fn new_request_id(&self, what: &str) -> String {
        format!("{what}-{}", self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}
