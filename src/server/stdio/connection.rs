//! The stdio connection of a client: reads lines, routes them to the gateway or to rmcp, writes the responses.
//!
//! `execute_tool` goes to the [`CallRouter`], because rmcp's typed values and tasks cost several times the call itself. All
//! other messages, and the first ones of a connection, go to rmcp through the [`TypedBridge`].
//!
//! - Every line is parsed here first. An invalid one is audited if it names a tool, and answered with a JSON-RPC error:
//!   at most 10 parse errors in any second.
//! - A request id stays in use until its work has ended; a second request with that id is rejected.
//! - Backpressure: reading pauses above 4096 concurrent calls of `execute_tool` or 1 MiB of unwritten output.
//! - A line longer than 64 MiB is rejected and not kept in memory.

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage, ProgressNotificationParam};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active_requests::ActiveRequests;
use super::streams::{ClientInput, stdin_and_stdout};
use super::typed_bridge::{BridgedService, TypedBridge};
use crate::gateway::LogSubscription;
use crate::jsonrpc::{Frame, FrameWriter, Id, InvalidMessage, LineJson, Message};
use crate::server::handler::McpHandler;
use crate::server::router::{
    CallRouter, ExecuteToolCall, ProtocolRevision, is_stateless_start, response_frame,
    without_raw_arguments,
};
use crate::server::{change_notifications, invalid_message};

/// Size of the read buffer.
const BUFFER_BYTES: usize = 64 * 1024;
/// Messages that rmcp has not taken yet; above it, reading pauses.
const MAX_BRIDGED_MESSAGES: usize = 8;
/// The longest line that is accepted, 64 MiB.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Bytes kept of a longer line, from which its id and tool are recovered.
const RECOVERY_PREFIX_BYTES: usize = 4 << 10;
/// Responses to parse errors in any second; further errors get none, so that garbage input causes little output.
const MAX_PARSE_ERRORS_PER_SECOND: usize = 10;
/// Capacity to which the line buffer is shrunk after each line.
const MAX_KEPT_BUFFER: usize = 256 << 10;
/// Concurrent calls of `execute_tool`; at this number no further line is read until one has ended.
const MAX_CONCURRENT_CALLS: usize = 4096;
/// Time after which a write that the client does not read fails the connection.
const CLIENT_READ_TIMEOUT: Duration = Duration::from_mins(10);
/// Time for running calls to complete after the client has closed stdin.
const CALL_GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Time to write the remaining responses before the connection is closed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The stdio connection of one client.
pub(crate) struct StdioConnection {
    writer: FrameWriter,
    calls: TaskTracker,
    requests: ActiveRequests,
}

impl StdioConnection {
    /// Opens stdin and stdout and starts the reader and writer tasks; returns the connection, and the service and
    /// transport for rmcp.
    pub(crate) fn open(handler: McpHandler) -> (Self, BridgedService<McpHandler>, TypedBridge) {
        let (input, output) = stdin_and_stdout();
        let (writer, requests) = (FrameWriter::default(), ActiveRequests::default());
        let calls = TaskTracker::new();
        tokio::spawn(writer.clone().run_writer(output, CLIENT_READ_TIMEOUT));
        let (to_rmcp, messages) = mpsc::channel(MAX_BRIDGED_MESSAGES);
        let lines = LineRouter {
            router: handler.router.clone(),
            logs: handler.logs.clone(),
            to_rmcp,
            writer: writer.clone(),
            calls: calls.clone(),
            requests: requests.clone(),
            parse_errors: ParseErrorLimiter::default(),
            lifecycle: Lifecycle::Unselected,
        };
        tokio::spawn(lines.run(BufReader::with_capacity(BUFFER_BYTES, input)));
        let bridge = TypedBridge { messages, writer: writer.clone(), requests: requests.clone() };
        (Self { writer, calls, requests }, bridge.service(handler), bridge)
    }

    /// Closes the connection: waits at most 5 s for calls of `execute_tool`, not at all if `stop` is cancelled, and cancels
    /// the rest; then waits at most 2 s until the responses are written.
    pub(crate) async fn close(self, stop: &CancellationToken) {
        let grace = if stop.is_cancelled() { Duration::ZERO } else { CALL_GRACE_PERIOD };
        self.calls.close();
        if timeout(grace, self.calls.wait()).await.is_err() {
            self.requests.cancel_all();
        }
        let _ = timeout(FLUSH_TIMEOUT, self.writer.wait_until_flushed()).await;
        self.writer.close();
    }
}

/// The reader task: validates each line and routes it.
struct LineRouter {
    router: CallRouter,
    /// The log messages of downstream servers; `None` if this client does not get any.
    logs: Option<Arc<LogSubscription>>,
    to_rmcp: mpsc::Sender<ClientJsonRpcMessage>,
    writer: FrameWriter,
    calls: TaskTracker,
    requests: ActiveRequests,
    parse_errors: ParseErrorLimiter,
    lifecycle: Lifecycle,
}

/// The lifecycle of a connection. rmcp must see the request that selects it before anything else is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Unselected,
    /// `initialize` was sent, `notifications/initialized` was not.
    Initializing,
    Selected(ProtocolRevision),
}

/// Limits the responses to parse errors to [`MAX_PARSE_ERRORS_PER_SECOND`] in any second (sliding window).
#[derive(Default)]
struct ParseErrorLimiter {
    /// Times of the last responses, oldest first; at most [`MAX_PARSE_ERRORS_PER_SECOND`].
    response_times: VecDeque<Instant>,
    /// Set while errors get no response, so that this is logged once.
    is_over_limit: bool,
}

impl ParseErrorLimiter {
    /// Returns `true` if the parse error may be answered, and counts it.
    fn try_acquire(&mut self, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < Duration::from_secs(1);
        while self.response_times.front().is_some_and(|at| !is_recent(at)) {
            self.response_times.pop_front();
        }
        let may_answer = self.response_times.len() < MAX_PARSE_ERRORS_PER_SECOND;
        if may_answer {
            self.response_times.push_back(now);
        } else if !self.is_over_limit {
            tracing::warn!("the client sends many lines that are not JSON; most get no response");
        }
        self.is_over_limit = !may_answer;
        may_answer
    }
}

/// The message if it goes to rmcp, `None` if it was handled here; an invalid one is rejected.
type LineRoute = Result<Option<Box<ClientJsonRpcMessage>>, InvalidMessage>;

impl LineRouter {
    async fn run(mut self, mut input: BufReader<ClientInput>) {
        let mut partial_line = Vec::new();
        let mut is_too_long = false;
        loop {
            let Ok(available) = input.fill_buf().await else { return };
            if available.is_empty() {
                // The last line may lack its LF.
                let _ = match is_too_long {
                    true => self.reject_too_long(&partial_line),
                    false => self.handle_line(&partial_line).await,
                };
                return;
            }
            let end = memchr::memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            let piece = available.get(..taken).unwrap_or_default();
            let handled = if end.is_some() && partial_line.is_empty() {
                self.handle_line(piece).await
            } else {
                if !is_too_long {
                    partial_line.extend_from_slice(piece);
                }
                if partial_line.len() > MAX_LINE_BYTES {
                    is_too_long = true;
                    partial_line.truncate(RECOVERY_PREFIX_BYTES);
                    partial_line.shrink_to_fit();
                }
                match end {
                    None => Ok(()),
                    Some(_) if std::mem::take(&mut is_too_long) => {
                        self.reject_too_long(&partial_line)
                    }
                    Some(_) => self.handle_line(&partial_line).await,
                }
            };
            if end.is_some() {
                partial_line.clear();
                partial_line.shrink_to(MAX_KEPT_BUFFER);
            }
            input.consume(taken);
            if handled.is_err() || (end.is_some() && self.wait_for_room().await.is_err()) {
                return;
            }
        }
    }

    async fn handle_line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match self.route(line) {
            Ok(None) => Ok(()),
            Ok(Some(message)) => {
                self.to_rmcp.send(*message).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
            Err(refused) => self.reject(&refused),
        }
    }

    fn reject_too_long(&mut self, begin: &[u8]) -> io::Result<()> {
        let sentence = format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20);
        self.reject(&InvalidMessage::parse_error(begin, &sentence))
    }

    fn reject(&mut self, refused: &InvalidMessage) -> io::Result<()> {
        if let Some(entry) = invalid_message::rejection_entry(refused, None) {
            self.router.gateway.try_write_audit_entry(entry);
        }
        let is_parse_error = refused.code == InvalidMessage::PARSE_ERROR;
        if is_parse_error && !self.parse_errors.try_acquire(Instant::now()) {
            return Ok(());
        }
        self.writer.push(&refused.response())
    }

    /// Waits until fewer than 4096 calls of `execute_tool` are active and the output queue has room.
    async fn wait_for_room(&self) -> io::Result<()> {
        while self.calls.len() >= MAX_CONCURRENT_CALLS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.writer.wait_for_room().await
    }

    fn route(&mut self, line: &[u8]) -> LineRoute {
        match Message::parse(line)? {
            Message::Request { id, method, params } => {
                self.route_request(line, &id, &method, params)
            }
            Message::Notification { method, params } => {
                self.route_notification(line, &method, params)
            }
            Message::Response => route_to_rmcp(line).map_err(|mut refused| {
                // Ids of our requests and of the client's overlap.
                refused.recovered.id = None;
                refused
            }),
        }
    }

    fn route_request(
        &mut self,
        line: &[u8],
        id: &Id,
        method: &str,
        params: Option<&RawValue>,
    ) -> LineRoute {
        if self.requests.is_in_use(id) {
            return Err(InvalidMessage::id_in_use(line, id));
        }
        if method == "tools/call"
            && let Some(call) = ExecuteToolCall::parse(params)
            && self.lifecycle == Lifecycle::Selected(call.revision)
            && self.router.is_offered()
            && self.execute(id, &call)
        {
            return Ok(None);
        }
        let message = typed_request(line, method, params).map_err(|refused| refused.with_id(id))?;
        if self.lifecycle == Lifecycle::Unselected {
            if is_stateless_start(method, params) {
                self.lifecycle = Lifecycle::Selected(ProtocolRevision::Stateless);
            } else if method == "initialize" {
                self.lifecycle = Lifecycle::Initializing;
            }
        }
        self.requests.register(id, None);
        Ok(Some(Box::new(message)))
    }

    fn route_notification(
        &mut self,
        line: &[u8],
        method: &str,
        params: Option<&RawValue>,
    ) -> LineRoute {
        match method {
            "notifications/initialized" => self.complete_handshake(),
            "notifications/cancelled" if self.cancel_request(params) => return Ok(None),
            _ => {}
        }
        route_to_rmcp(line)
    }

    /// Marks the connection as initialized.
    ///
    /// Not left to rmcp's handler, which may run later: the next line can be a call whose server logs at once.
    fn complete_handshake(&mut self) {
        if self.lifecycle != Lifecycle::Initializing {
            return;
        }
        self.lifecycle = Lifecycle::Selected(ProtocolRevision::Handshake);
        if let Some(logs) = &self.logs {
            change_notifications::forward_to_client(logs, self.writer.clone());
        }
    }

    /// Cancels a request; `false` if no active request has this id.
    ///
    /// The notification is not forwarded: rmcp would forget the id at once, and answer the next request with that id
    /// with the result of the cancelled one.
    fn cancel_request(&self, params: Option<&RawValue>) -> bool {
        let read = |params: &RawValue| {
            let cancelled: CancelledParams<'_> = serde_json::from_str(params.get()).ok()?;
            Id::parse(cancelled.id.get())
        };
        params.and_then(read).is_some_and(|id| self.requests.cancel(&id))
    }

    /// Executes a call of `execute_tool`; `false` if the connection is closing.
    fn execute(&self, id: &Id, call: &ExecuteToolCall<'_>) -> bool {
        let cancelled = CancellationToken::new();
        if !self.requests.register(id, Some(cancelled.clone())) {
            return false;
        }
        let sender = || self.router.callers.default_caller.clone();
        let parsed = self.router.parse(id, call, sender, cancelled);
        let (writer, requests) = (self.writer.clone(), self.requests.clone());
        let (id, revision, tracker_token) = (id.clone(), call.revision, self.calls.token());
        let on_answer = move |answer| {
            if requests.remove(&id) {
                let _ = writer.push(&response_frame(&id, revision, answer));
            }
            drop(tracker_token);
        };
        match (parsed, call.progress_token) {
            (Err(invalid), _) => {
                let router = self.router.clone();
                tokio::spawn(async move { on_answer(router.refuse(invalid).await) });
            }
            (Ok(parsed), None) => self.router.execute(parsed, on_answer),
            (Ok(parsed), Some(token)) => {
                let (router, writer, token) =
                    (self.router.clone(), self.writer.clone(), token.to_owned());
                tokio::spawn(async move {
                    let tell = |news| {
                        if let Some(progress) = progress_notification(&token, news) {
                            let _ = writer.push(&progress);
                        }
                        ready(())
                    };
                    on_answer(router.execute_with_progress(parsed, tell).await);
                });
            }
        }
        true
    }
}

/// Converts a request to rmcp's type; rmcp does not see the arguments of the gateway's tools.
fn typed_request(
    line: &[u8],
    method: &str,
    params: Option<&RawValue>,
) -> Result<ClientJsonRpcMessage, InvalidMessage> {
    let raw = (method == "tools/call").then(|| without_raw_arguments(line, params)).flatten();
    let Some((text, arguments)) = raw else { return invalid_message::to_typed(line, line) };
    let mut message = invalid_message::to_typed(&text, line)?;
    if let JsonRpcMessage::Request(request) = &mut message {
        request.request.extensions_mut().insert(arguments);
    }
    Ok(message)
}

/// Routes a message to rmcp if rmcp can deserialize it.
fn route_to_rmcp(line: &[u8]) -> LineRoute {
    invalid_message::to_typed(line, line).map(|message| Some(Box::new(message)))
}

#[derive(Deserialize)]
struct CancelledParams<'a> {
    #[serde(borrow, rename = "requestId")]
    id: &'a RawValue,
}

fn progress_notification(token: &RawValue, news: ProgressNotificationParam) -> Option<Frame> {
    let mut params = serde_json::to_value(news).ok()?;
    let token = serde_json::from_str(token.get()).unwrap_or_default();
    params.as_object_mut()?.insert("progressToken".to_owned(), token);
    let params = LineJson::encode(&params).ok()?;
    Some(Frame::notification("notifications/progress", &params))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_ten_parse_errors_are_answered_in_any_second() {
        let mut errors = ParseErrorLimiter::default();
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let answered = |errors: &mut ParseErrorLimiter, ms: u64| {
            (0..100).filter(|_| errors.try_acquire(at(ms))).count()
        };
        assert!(errors.try_acquire(at(0)));
        assert_eq!(answered(&mut errors, 900), 9);
        assert_eq!(answered(&mut errors, 999), 0);
        assert_eq!(answered(&mut errors, 1_000), 1, "only the first is a second ago");
        assert_eq!(answered(&mut errors, 1_899), 0);
        assert_eq!(answered(&mut errors, 1_900), 9);
    }
}
