//! State shared by the reader task, the running turn and the handles.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::progress::{ProgressTracker, TurnProgress};
use super::result::ResultFrame;
use crate::jsonrpc::{Frame, FrameWriter};
use crate::util::Mutex;

/// Result and progress of a finished turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    pub result: TurnResult,
    pub progress: TurnProgress,
}

/// Wire-level end of a turn. Once the stream has ended, every later turn ends with the same value.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnResult {
    /// A `result` frame, which may report a failure.
    Result(Box<ResultFrame>),
    /// EOF before a result.
    StreamEnded,
    /// A line exceeded `limit` bytes; the stream is not read any further.
    LineTooLong {
        limit: usize,
    },
    ReadFailed {
        message: String,
    },
    /// The CLI works in a session other than `expected`.
    WrongSession {
        expected: String,
        found: String,
    },
}

/// State machine of the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientPhase {
    /// `initialize` was sent.
    Opening,
    /// The CLI rejected `initialize`.
    Refused(String),
    /// No turn is running.
    Idle,
    /// A prompt was sent, its result has not arrived.
    Running,
    /// A result arrived that the turn has not taken yet.
    Finished(Box<ResultFrame>),
    /// The stream ended; final state.
    Closed(TurnResult),
}

#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) phase: ClientPhase,
    pub(crate) tracker: ProgressTracker,
}

pub(crate) struct SharedClient {
    state: Mutex<ClientState>,
    pub(crate) changed: Notify,
    pub(crate) outgoing: FrameWriter,
    next_id: AtomicU64,
}

impl SharedClient {
    pub(crate) fn new(outgoing: FrameWriter, tracker: ProgressTracker) -> Self {
        let state = ClientState { phase: ClientPhase::Opening, tracker };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            outgoing,
            next_id: AtomicU64::new(0),
        }
    }

    /// INVARIANT: never held across an `.await`, nor while a `ControlHandler` is called.
    pub(crate) fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock()
    }

    pub(crate) fn set_phase(&self, phase: ClientPhase) {
        self.state().phase = phase;
        self.changed.notify_waiters();
    }

    /// Waits until `ready` returns a value for the state. Cancel-safe.
    pub(crate) async fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&mut ClientState) -> Option<T>,
    ) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the state is checked, so that a change in between is not missed.
            changed.as_mut().enable();
            if let Some(value) = ready(&mut self.state()) {
                return value;
            }
            changed.await;
        }
    }

    /// Queues a frame without blocking. A closed pipe is reported by the reader task, not here.
    pub(crate) fn send(&self, line: &Frame) {
        let _ = self.outgoing.push(line);
    }

    pub(crate) fn close(&self) {
        self.outgoing.close();
    }

    pub(crate) fn new_request_id(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}
