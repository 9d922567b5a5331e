//! Client of one `claude` process over any reader and writer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::control_handler::ControlHandler;
use super::control_requests::ControlRequests;
use super::outgoing::{self, HookEvent};
use super::progress::{ProgressTracker, TurnProgress};
use super::reader::FrameReader;
use super::result::ResultFrame;
use super::state::{ClientPhase, SharedClient, TurnEnd, TurnResult};
use crate::jsonrpc::FrameWriter;
use crate::util::LineReader;

/// Longer than any run: the deadline of the run ends a CLI that does not read its stdin.
const WRITE_TIMEOUT: Duration = Duration::from_hours(24 * 7);

/// Options of a [`ClaudeClient`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Hook events registered as callbacks.
    pub hooks: Vec<HookEvent>,
    /// Timeout of a hook callback in seconds.
    /// On timeout the CLI does not run the tool; 2.1.325 reports that to the model, 2.1.197 does not.
    pub hook_timeout_seconds: u64,
    /// Further fields of `initialize`.
    /// Accepted by 2.1.197 and 2.1.325: `systemPrompt` (instead of `--system-prompt-file`) and `sdkMcpServers` (names
    /// of SDK servers, instead of `--mcp-config`).
    pub initialize: Map<String, Value>,
    /// Maximum length of an output line; a longer line ends the stream.
    pub max_line_bytes: usize,
    /// Maximum size of the agent's text kept for a turn without a successful result; the end is kept.
    pub max_partial_bytes: usize,
    /// Session the CLI was started for; a frame from another session ends the client.
    pub session_id: Option<String>,
    /// `total_cost_usd` of the session's last result in an earlier process.
    /// 2.1.325 continues counting from there, so this amount is subtracted from the first turn.
    pub session_cost_usd: f64,
}

impl Default for ClientOptions {
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

/// Failure of [`ClaudeClient::open`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// EOF before the answer; the cause is in the exit code and stderr.
    #[error("claude ended before it answered `initialize`")]
    StreamEnded,
    #[error("claude wrote a line of more than {limit} bytes before it answered `initialize`")]
    LineTooLong { limit: usize },
    #[error("the output of claude cannot be read: {message}")]
    ReadFailed { message: String },
    #[error("claude works in session `{found}` and not in `{expected}`")]
    WrongSession { expected: String, found: String },
    #[error("claude refused `initialize`: {message}")]
    Refused {
        /// Error text of the CLI.
        message: String,
    },
    /// A `result` frame came before the answer, as when the session to resume is unknown.
    #[error("claude gave up before it answered `initialize`")]
    EndedEarly(Box<ResultFrame>),
}

/// Open connection to a `claude` process.
///
/// Dropping the client aborts the reader task and closes stdin; it does not stop the process.
pub struct ClaudeClient {
    handle: ClaudeHandle,
    reader_task: AbortHandle,
}

impl ClaudeClient {
    /// Sends `initialize` and waits for the answer. Has no deadline of its own: the caller must set one.
    pub async fn open<R, W>(
        stdout: R,
        stdin: W,
        parent: Arc<dyn ControlHandler>,
        options: ClientOptions,
    ) -> Result<Self, OpenError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let writer = FrameWriter::default();
        let tracker = ProgressTracker::new(options.max_partial_bytes, options.session_cost_usd);
        let shared = Arc::new(SharedClient::new(writer.clone(), tracker));
        let initialize_id = shared.new_request_id("initialize");
        shared.send(&outgoing::initialize(
            &initialize_id,
            &options.hooks,
            options.hook_timeout_seconds,
            &options.initialize,
        ));
        let reader = FrameReader {
            lines: LineReader::new(stdout, options.max_line_bytes),
            max_line_bytes: options.max_line_bytes,
            control_requests: ControlRequests::new(Arc::clone(&parent), Arc::clone(&shared)),
            handler: parent,
            shared: Arc::clone(&shared),
            initialize_id,
            expected_session: options.session_id,
        };
        tokio::spawn(writer.run_writer(stdin, WRITE_TIMEOUT));
        let reading = tokio::spawn(reader.run()).abort_handle();
        let conversation = Self { handle: ClaudeHandle { shared }, reader_task: reading };
        conversation.wait_until_open().await?;
        Ok(conversation)
    }

    /// Sends a prompt and waits for the end of the turn. Has no deadline of its own.
    ///
    /// If an earlier call was dropped before its turn ended, that turn is interrupted and its result awaited first, so
    /// that the result cannot be taken for the result of this turn.
    pub async fn turn(&mut self, prompt: &str) -> TurnEnd {
        let shared = &self.handle.shared;
        if shared.state().phase == ClientPhase::Running {
            self.handle.interrupt();
        }
        let over = shared
            .wait_for(|state| match &state.phase {
                ClientPhase::Running => None,
                ClientPhase::Closed(turn_result) => Some(Some(turn_result.clone())),
                _ => Some(None),
            })
            .await;
        shared.state().tracker.begin_turn();
        if let Some(turn_result) = over {
            return TurnEnd { result: turn_result, progress: self.handle.progress() };
        }
        shared.set_phase(ClientPhase::Running);
        shared.send(&outgoing::user_message(prompt));
        let turn_result = shared.wait_for(|state| take_turn_result(&mut state.phase)).await;
        TurnEnd { result: turn_result, progress: self.handle.progress() }
    }

    /// Returns a handle to interrupt the running turn or read its progress.
    pub fn handle(&self) -> ClaudeHandle {
        self.handle.clone()
    }

    /// Closes the CLI's stdin after all queued frames; an idle CLI then exits.
    pub fn close(&self) {
        self.handle.close();
    }

    async fn wait_until_open(&self) -> Result<(), OpenError> {
        self.handle
            .shared
            .wait_for(|state| match &state.phase {
                ClientPhase::Opening => None,
                ClientPhase::Refused(message) => {
                    Some(Err(OpenError::Refused { message: message.clone() }))
                }
                ClientPhase::Closed(turn_result) => Some(Err(open_error(turn_result.clone()))),
                ClientPhase::Idle | ClientPhase::Running | ClientPhase::Finished(_) => Some(Ok(())),
            })
            .await
    }
}

impl Drop for ClaudeClient {
    fn drop(&mut self) {
        self.reader_task.abort();
        self.handle.close();
    }
}

/// Cloneable sender of a [`ClaudeClient`], usable while a turn runs.
#[derive(Clone)]
pub struct ClaudeHandle {
    shared: Arc<SharedClient>,
}

impl ClaudeHandle {
    /// Asks the CLI to end the running turn; its result still arrives, with `is_aborted()`.
    pub fn interrupt(&self) {
        let id = self.shared.new_request_id("interrupt");
        self.shared.send(&outgoing::interrupt(&id));
    }

    /// Sends a JSON-RPC message from an SDK server, such as `notifications/tools/list_changed`.
    ///
    /// Both versions accept it; 2.1.325 then lists the tools again at once, 2.1.197 does not.
    pub fn send_mcp(&self, server: &str, message: &Value) {
        let id = self.shared.new_request_id("mcp");
        self.shared.send(&outgoing::mcp_message(&id, server, message));
    }

    /// Returns the progress of the running turn, or of the last one.
    pub fn progress(&self) -> TurnProgress {
        self.shared.state().tracker.snapshot()
    }

    /// Closes the CLI's stdin after all queued frames.
    pub fn close(&self) {
        self.shared.close();
    }
}

fn take_turn_result(phase: &mut ClientPhase) -> Option<TurnResult> {
    match phase {
        ClientPhase::Closed(turn_result) => Some(turn_result.clone()),
        ClientPhase::Finished(_) => match std::mem::replace(phase, ClientPhase::Idle) {
            ClientPhase::Finished(result) => Some(TurnResult::Result(result)),
            _ => None,
        },
        ClientPhase::Opening
        | ClientPhase::Refused(_)
        | ClientPhase::Idle
        | ClientPhase::Running => None,
    }
}

fn open_error(turn_result: TurnResult) -> OpenError {
    match turn_result {
        TurnResult::Result(result) => OpenError::EndedEarly(result),
        TurnResult::StreamEnded => OpenError::StreamEnded,
        TurnResult::LineTooLong { limit } => OpenError::LineTooLong { limit },
        TurnResult::ReadFailed { message } => OpenError::ReadFailed { message },
        TurnResult::WrongSession { expected, found } => OpenError::WrongSession { expected, found },
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
