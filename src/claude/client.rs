//! A conversation with one `claude`, over anything that can be read and written.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use super::answers::Answers;
use super::lines::LineReader;
use super::outgoing::{self, HookEvent};
use super::parent::Parent;
use super::progress::{Progress, Tracker};
use super::reader::Reader;
use super::result::ResultFrame;
use super::shared::{Ending, Outgoing, Phase, Shared, TurnEnd};

/// How a conversation is held.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hooks whose questions should come over the pipe.
    pub hooks: Vec<HookEvent>,
    /// How long the CLI waits for a hook's answer. After that it does not run the tool, and says
    /// so to the model (2.1.325) or nothing at all (2.1.197).
    pub hook_timeout_seconds: u64,
    /// Further fields of `initialize`. Seen working on 2.1.197 and 2.1.325: `systemPrompt` (instead
    /// of `--system-prompt-file`) and `sdkMcpServers` (names of tunnelled servers, instead of
    /// `--mcp-config`).
    pub initialize: Map<String, Value>,
    /// The longest line that is read.
    pub max_line_bytes: usize,
    /// How much of what the agent writes is kept for a turn that does not end well.
    pub max_partial_bytes: usize,
    /// The session that the CLI was started for; another one ends the conversation.
    pub session_id: Option<String>,
    /// The `total_cost_usd` of the session's last result, where an earlier process had one:
    /// 2.1.325 goes on counting there, and this turn must not pay for that again.
    pub session_cost_usd: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hooks: vec![HookEvent::PreToolUse],
            hook_timeout_seconds: 24 * 60 * 60,
            initialize: Map::new(),
            max_line_bytes: 64 << 20,
            max_partial_bytes: 1 << 20,
            session_id: None,
            session_cost_usd: 0.0,
        }
    }
}

/// Why a conversation could not be opened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// The stream ended first: look at the exit code and stderr.
    #[error("claude ended before it answered `initialize`")]
    StreamEnded,
    /// A line was too long.
    #[error("claude wrote a line of more than {limit} bytes before it answered `initialize`")]
    LineTooLong {
        /// The most bytes a line may have.
        limit: usize,
    },
    /// The stream could not be read.
    #[error("the output of claude cannot be read: {message}")]
    ReadFailed {
        /// Why.
        message: String,
    },
    /// The CLI works in another session.
    #[error("claude works in session `{found}` and not in `{expected}`")]
    WrongSession {
        /// The one that was asked for.
        expected: String,
        /// The one it named.
        found: String,
    },
    /// The CLI said no, in its own words.
    #[error("claude refused `initialize`: {message}")]
    Refused {
        /// What it said.
        message: String,
    },
    /// The CLI ended a turn that nobody had begun; with an unknown session to resume it does this.
    #[error("claude gave up before it answered `initialize`")]
    EndedEarly(Box<ResultFrame>),
}

/// An open conversation. Dropping it ends reading and writing; the process is not its business.
pub struct Conversation {
    handle: Handle,
    reading: AbortHandle,
}

impl Conversation {
    /// Sends `initialize` and waits for its answer. There is no deadline in here: the caller has one.
    pub async fn open<R, W>(
        stdout: R,
        stdin: W,
        parent: Arc<dyn Parent>,
        options: Options,
    ) -> Result<Self, OpenError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, receiver) = unbounded_channel();
        let tracker = Tracker::new(options.max_partial_bytes, options.session_cost_usd);
        let shared = Arc::new(Shared::new(sender, tracker));
        let initialize_id = shared.new_request_id("initialize");
        shared.send(outgoing::initialize(
            &initialize_id,
            &options.hooks,
            options.hook_timeout_seconds,
            &options.initialize,
        ));
        let reader = Reader {
            lines: LineReader::new(stdout, options.max_line_bytes),
            line_limit: options.max_line_bytes,
            answers: Answers::new(Arc::clone(&parent), Arc::clone(&shared)),
            parent,
            shared: Arc::clone(&shared),
            initialize_id,
            expected_session: options.session_id,
        };
        tokio::spawn(write_all(stdin, receiver));
        let reading = tokio::spawn(reader.run()).abort_handle();
        let conversation = Self { handle: Handle { shared }, reading };
        conversation.opened().await?;
        Ok(conversation)
    }

    /// Sends a prompt and waits for its end. There is no deadline in here either.
    ///
    /// Where a turn before was dropped in the middle, it is interrupted and waited for first, so
    /// that its result is never taken for this one's.
    pub async fn turn(&mut self, prompt: &str) -> TurnEnd {
        let shared = &self.handle.shared;
        if shared.state().phase == Phase::Running {
            self.handle.interrupt();
        }
        let over = shared
            .wait_for(|state| match &state.phase {
                Phase::Running => None,
                Phase::Over(ending) => Some(Some(ending.clone())),
                _ => Some(None),
            })
            .await;
        shared.state().tracker.begin_turn();
        if let Some(ending) = over {
            return TurnEnd { ending, progress: self.handle.progress() };
        }
        shared.set_phase(Phase::Running);
        shared.send(outgoing::user_message(prompt));
        let ending = shared.wait_for(|state| ended(&mut state.phase)).await;
        TurnEnd { ending, progress: self.handle.progress() }
    }

    /// Something to interrupt with, or to look at the progress, while a turn runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Closes the CLI's stdin, after what is still to be written: an idle one ends then.
    pub fn close(&self) {
        self.handle.close();
    }

    async fn opened(&self) -> Result<(), OpenError> {
        self.handle
            .shared
            .wait_for(|state| match &state.phase {
                Phase::Opening => None,
                Phase::Refused(message) => {
                    Some(Err(OpenError::Refused { message: message.clone() }))
                }
                Phase::Over(ending) => Some(Err(open_error(ending.clone()))),
                Phase::Idle | Phase::Running | Phase::Finished(_) => Some(Ok(())),
            })
            .await
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.reading.abort();
        self.handle.close();
    }
}

/// What can be done with a conversation while a turn runs.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Asks the CLI to end the running turn; its result still comes, with `is_aborted()`.
    pub fn interrupt(&self) {
        let id = self.shared.new_request_id("interrupt");
        self.shared.send(outgoing::interrupt(&id));
    }

    /// Sends a JSON-RPC message from a tunnelled server, such as `notifications/tools/list_changed`.
    ///
    /// Both versions accept it; 2.1.325 then asks for the tools again at once, 2.1.197 does not.
    pub fn send_mcp(&self, server: &str, message: &Value) {
        let id = self.shared.new_request_id("mcp");
        self.shared.send(outgoing::mcp_message(&id, server, message));
    }

    /// How far the running turn, or the last one, has come.
    pub fn progress(&self) -> Progress {
        self.shared.state().tracker.snapshot()
    }

    /// Closes the CLI's stdin, after what is still to be written.
    pub fn close(&self) {
        self.shared.close();
    }
}

fn ended(phase: &mut Phase) -> Option<Ending> {
    match phase {
        Phase::Over(ending) => Some(ending.clone()),
        Phase::Finished(_) => match std::mem::replace(phase, Phase::Idle) {
            Phase::Finished(result) => Some(Ending::Result(result)),
            _ => None,
        },
        Phase::Opening | Phase::Refused(_) | Phase::Idle | Phase::Running => None,
    }
}

fn open_error(ending: Ending) -> OpenError {
    match ending {
        Ending::Result(result) => OpenError::EndedEarly(result),
        Ending::StreamEnded => OpenError::StreamEnded,
        Ending::LineTooLong { limit } => OpenError::LineTooLong { limit },
        Ending::ReadFailed { message } => OpenError::ReadFailed { message },
        Ending::WrongSession { expected, found } => OpenError::WrongSession { expected, found },
    }
}

/// Writes line after line, so that nobody who has something to say waits for a full pipe.
async fn write_all<W: AsyncWrite + Unpin>(mut stdin: W, mut lines: UnboundedReceiver<Outgoing>) {
    while let Some(Outgoing::Line(line)) = lines.recv().await {
        // The other side is gone: the reading side will see that and say so.
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
    let _ = stdin.shutdown().await;
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
