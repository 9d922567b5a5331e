//! One live connection to one downstream server: one handshake, concurrent requests.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, InitializeResult, ProgressNotificationParam,
    ProtocolVersion,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::error::GatewayError;
use super::log_forwarder::LogForwarder;
use super::notifications::{ListChangeCounters, ServerInbox, ServerLogWriter};
use super::tools::ToolList;
use crate::catalog::HttpTransportKind;
use crate::gateway::config::{HttpEndpoint, ServerEndpoint};
use crate::gateway::downstream::transport::{LineStream, ServerProcess, StdioCommand, http};
use crate::gateway::oauth::{SignInNeeded, TokenSource};
use crate::jsonrpc::{
    FrameSink, FrameStream, FrameWriter, LineJson, OnProgress, RpcClient, RpcClientError, RpcError,
    RpcRequest, StreamEnd,
};
use crate::util::{Mutex, Redactor, one_line, shorten};

/// Time from closing stdin to SIGTERM, and limit for reading the rest of the output after the exit.
const EXIT_GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Limit for a write that makes no progress; then the connection counts as broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Later than any `startup_timeout_ms`, which ends the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_hours(24);
const ANSWERS_NOT_READ: &str = "it does not read the answers to its own requests";

/// A connection; dropping the last reference ends it and its process.
pub(crate) struct DownstreamConnection {
    pub(crate) server: Arc<str>,
    rpc_client: RpcClient,
    /// Result of `initialize`.
    introduction: InitializeResult,
    lifetime: ConnectionLifetime,
    /// Set if a request could not be sent; the next request opens a new connection.
    stale: AtomicBool,
    /// Set after the first response. A server that ends before that counts as broken and gets a backoff.
    has_responded: AtomicBool,
    secrets: Redactor,
    token_source: Option<Arc<TokenSource>>,
    /// Tool list and the number of list changes at which it was read.
    tools: Mutex<Option<(u64, Arc<ToolList>)>>,
    uses: Arc<UseCount>,
}

/// End of a connection: signals and reason.
#[derive(Clone)]
struct ConnectionLifetime {
    /// Cancelled when the stream has ended.
    ended: CancellationToken,
    /// Cancelled to end the connection.
    cancel: CancellationToken,
    /// Reason of the end, set after the process has exited.
    reason: watch::Receiver<Option<String>>,
    /// Reason why the gateway ended the connection; takes precedence over `reason`.
    gateway_cause: Arc<OnceLock<&'static str>>,
}

/// Number of calls and requests that use a connection.
#[derive(Default)]
struct UseCount {
    running: AtomicUsize,
    idle: Notify,
}

/// A running call or request; a connection that is retired is ended when the last one is dropped.
pub(crate) struct ConnectionUse(Arc<UseCount>);

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Options of one request.
pub(crate) struct RequestOptions {
    /// Maximum time from now to the response.
    pub(crate) timeout: Duration,
    /// Cancelled by the caller.
    pub(crate) cancelled: CancellationToken,
}

impl RequestOptions {
    /// Returns options for a request that nobody cancels.
    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        Self { timeout, cancelled: CancellationToken::new() }
    }
}

/// One tool call.
pub(crate) struct DownstreamCall<'a> {
    /// `name` and `arguments`.
    pub(crate) params: &'a LineJson,
    /// End of the time that the caller allows, and its length.
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
    /// Cancelled by the caller.
    pub(crate) cancelled: CancellationToken,
    /// Receiver of progress notifications, in order; notifications are dropped while it is full.
    pub(crate) progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

/// Input of a connection attempt.
pub(crate) struct ConnectRequest {
    pub(crate) server: Arc<str>,
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) secrets: Redactor,
    pub(crate) changes: Arc<ListChangeCounters>,
    /// Forwarder of log messages to the client, if the client may receive them.
    pub(crate) log_forwarder: Option<Arc<LogForwarder>>,
    /// OAuth tokens; only for an HTTP server without an `Authorization` header of its own.
    pub(crate) token_source: Option<Arc<TokenSource>>,
    /// Maximum time from the start of the server to its response to `initialize`.
    pub(crate) connect_timeout: Duration,
}

/// Reason for a failed connection attempt.
pub(crate) enum ConnectError {
    /// One line, secrets redacted.
    Failed(String),
    /// A person has to sign in.
    SignInNeeded(SignInNeeded),
}

impl DownstreamConnection {
    /// Starts or contacts the server and performs the handshake.
    pub(crate) async fn open(
        opening: ConnectRequest,
        leave: CancellationToken,
    ) -> Result<Arc<Self>, ConnectError> {
        let (reason_sender, reason) = watch::channel(None);
        let life = ConnectionLifetime {
            ended: CancellationToken::new(),
            cancel: leave,
            reason,
            gateway_cause: Arc::default(),
        };
        let secrets = opening.secrets.clone();
        let opened = match &opening.endpoint {
            ServerEndpoint::Stdio(launch) => {
                connect_stdio(&opening, launch, life, reason_sender).await
            }
            ServerEndpoint::Http(place) if place.transport == HttpTransportKind::Sse => {
                connect_sse(&opening, place, life, reason_sender).await
            }
            ServerEndpoint::Http(place) => connect_http(&opening, place, life).await,
        };
        opened.map(Arc::new).map_err(|reason| {
            let needed = opening.token_source.as_ref().and_then(|source| source.needed());
            needed.map_or_else(
                || ConnectError::Failed(secrets.redact(&reason)),
                ConnectError::SignInNeeded,
            )
        })
    }

    /// Sends a tool call without waiting. `on_result` runs exactly once and gets the result as the server wrote it.
    ///
    /// Cancellation and timeout send `notifications/cancelled` to the server.
    pub(crate) fn start_call(
        self: &Arc<Self>,
        call: DownstreamCall<'_>,
        on_result: impl FnOnce(Result<LineJson, GatewayError>) + Send + 'static,
    ) {
        let request = RpcRequest {
            method: "tools/call",
            params: call.params,
            deadline: call.deadline,
            cancelled: Some(call.cancelled),
            on_progress: call.progress.map(progress_callback),
        };
        let (connection, used, allowed) = (Arc::clone(self), self.begin_use(), call.timeout);
        let on_reply = move |reply: Result<LineJson, RpcClientError>| {
            let _used = used;
            match reply.map_err(|error| connection.explain_now(error, allowed)) {
                Ok(raw) => on_result(connection.check_result(raw)),
                Err(Ok(error)) => on_result(Err(error)),
                Err(Err(broken)) => drop(tokio::spawn(async move {
                    on_result(Err(connection.explain_broken(broken).await));
                })),
            }
        };
        self.rpc_client.start(request, Box::new(on_reply));
    }

    /// Sends one request and returns the result.
    ///
    /// Cancellation, timeout and dropping the future send `notifications/cancelled` to the server.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Value,
        options: RequestOptions,
    ) -> Result<Value, GatewayError> {
        let _used = self.begin_use();
        let params = LineJson::encode(&params).map_err(|error| self.invalid_json_error(&error))?;
        let reply = self.rpc_client.request(RpcRequest {
            method,
            params: &params,
            deadline: Instant::now() + options.timeout,
            cancelled: Some(options.cancelled),
            on_progress: None,
        });
        match reply.await.map_err(|error| self.explain_now(error, options.timeout)) {
            Ok(raw) => {
                self.has_responded.store(true, Ordering::Relaxed);
                serde_json::from_str(raw.as_str()).map_err(|error| self.invalid_json_error(&error))
            }
            Err(Ok(error)) => Err(error),
            Err(Err(broken)) => Err(self.explain_broken(broken).await),
        }
    }

    /// Counts a call or request from now until the returned value is dropped.
    pub(crate) fn begin_use(&self) -> ConnectionUse {
        self.uses.running.fetch_add(1, Ordering::AcqRel);
        ConnectionUse(Arc::clone(&self.uses))
    }

    /// Waits until no call and no request is running.
    pub(crate) async fn wait_until_unused(&self) {
        loop {
            let mut idle = std::pin::pin!(self.uses.idle.notified());
            idle.as_mut().enable();
            if self.uses.running.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    fn invalid_json_error(&self, error: &serde_json::Error) -> GatewayError {
        self.invalid_response_error(format!("its answer is no JSON: {error}"))
    }

    /// Returns the error for a response that cannot be used.
    pub(crate) fn invalid_response_error(&self, reason: impl Into<String>) -> GatewayError {
        GatewayError::unavailable(&self.server, reason)
    }

    /// Notes that the connection works, and checks that the result of a tool is an object.
    fn check_result(&self, raw: LineJson) -> Result<LineJson, GatewayError> {
        self.has_responded.store(true, Ordering::Relaxed);
        match raw.as_str().starts_with('{') {
            true => Ok(raw),
            false => Err(self.invalid_response_error("its answer is not the result of a tool")),
        }
    }

    /// Converts an error of a request; fails for a broken connection, whose reason is known later.
    fn explain_now(
        &self,
        error: RpcClientError,
        allowed: Duration,
    ) -> Result<GatewayError, BrokenConnection> {
        match error {
            RpcClientError::ErrorResponse(error) => {
                self.has_responded.store(true, Ordering::Relaxed);
                let RpcError { code, message, data } = error;
                Ok(GatewayError::Downstream { code, message, data })
            }
            RpcClientError::InvalidResponse(reason) => {
                self.has_responded.store(true, Ordering::Relaxed);
                Ok(self.invalid_response_error(reason))
            }
            RpcClientError::QueueFull => Ok(GatewayError::unavailable(
                &self.server,
                "it does not read fast enough: 32 MiB of requests wait for it",
            )),
            RpcClientError::Timeout => {
                Ok(GatewayError::Timeout { server: self.server.to_string(), after: allowed })
            }
            RpcClientError::Cancelled => Ok(GatewayError::Cancelled),
            RpcClientError::Gone => Err(BrokenConnection::Ended),
            RpcClientError::TransportFailed(reason) => Err(BrokenConnection::NotSent(reason)),
        }
    }

    /// Returns the error of a request on a broken connection. Waits at most 2.5 s for the reason.
    async fn explain_broken(self: &Arc<Self>, broken: BrokenConnection) -> GatewayError {
        if let Some(needed) = self.token_source.as_ref().and_then(|source| source.needed()) {
            self.mark_stale();
            return GatewayError::sign_in_needed(&self.server, needed);
        }
        let reason = match broken {
            BrokenConnection::Ended => None,
            // The pipe breaks before the exit of the process is noticed; wait up to 500 ms because the exit reason says
            // more.
            BrokenConnection::NotSent(reason) => {
                timeout(EXIT_GRACE_PERIOD, self.wait_until_ended()).await.is_err().then_some(reason)
            }
        };
        match reason {
            Some(reason) => {
                self.mark_stale();
                GatewayError::unavailable(&self.server, self.secrets.redact(&reason))
            }
            None => GatewayError::unavailable(&self.server, self.end_reason().await),
        }
    }

    /// Makes the next request open a new connection; this one is ended when its requests have ended.
    fn mark_stale(self: &Arc<Self>) {
        if !self.stale.swap(true, Ordering::Relaxed) {
            let connection = Arc::clone(self);
            tokio::spawn(async move {
                connection.wait_until_unused().await;
                connection.lifetime.cancel.cancel();
            });
        }
    }

    /// Returns the reason of the end.
    ///
    /// Waits at most 2 s, since the process exits after its stream has ended.
    pub(crate) async fn end_reason(&self) -> String {
        let mut reason = self.lifetime.reason.clone();
        let _ = timeout(4 * EXIT_GRACE_PERIOD, reason.wait_for(Option::is_some)).await;
        if let Some(cause) = self.lifetime.gateway_cause.get() {
            return (*cause).to_owned();
        }
        let known = reason.borrow().clone();
        self.secrets.redact(&known.unwrap_or_else(|| "the connection was closed".to_owned()))
    }

    /// Returns the tool list if it was read at change number `change`.
    pub(crate) fn cached_tools(&self, change: u64) -> Option<Arc<ToolList>> {
        let known = self.tools.lock();
        known.as_ref().filter(|(seen, _)| *seen == change).map(|(_, tools)| Arc::clone(tools))
    }

    pub(crate) fn cache_tools(&self, change: u64, tools: Arc<ToolList>) {
        *self.tools.lock() = Some((change, tools));
    }

    /// Returns true while requests can be sent.
    pub(crate) fn is_alive(&self) -> bool {
        !self.lifetime.ended.is_cancelled() && !self.stale.load(Ordering::Relaxed)
    }

    /// Returns true after the first response.
    pub(crate) fn has_responded(&self) -> bool {
        self.has_responded.load(Ordering::Relaxed)
    }

    /// Resolves when the stream has ended.
    pub(crate) async fn wait_until_ended(&self) {
        self.lifetime.ended.cancelled().await;
    }

    /// Ends the connection and its process and waits for the end, at most 2 s.
    pub(crate) async fn close(&self) {
        self.lifetime.cancel.cancel();
        self.end_reason().await;
    }

    /// Returns true if the server declared this capability in the handshake.
    pub(crate) fn has_capability(&self, capability: &str) -> bool {
        let known = serde_json::to_value(&self.introduction.capabilities).ok();
        known.is_some_and(|known| known.get(capability).is_some_and(|value| !value.is_null()))
    }

    /// Returns the `instructions` that the server sent in the handshake.
    pub(crate) fn instructions(&self) -> Option<String> {
        self.introduction.instructions.clone()
    }
}

impl Drop for DownstreamConnection {
    fn drop(&mut self) {
        self.lifetime.cancel.cancel();
    }
}

/// Reason why a request has no response, before the end of the connection is known.
enum BrokenConnection {
    /// The stream has ended.
    Ended,
    /// The transport failed, with the reason.
    NotSent(String),
}

async fn connect_stdio(
    opening: &ConnectRequest,
    launch: &StdioCommand,
    life: ConnectionLifetime,
    reason_sender: watch::Sender<Option<String>>,
) -> Result<DownstreamConnection, String> {
    let log = ServerLogWriter::new(Arc::clone(&opening.server), opening.secrets.clone());
    let (process, stdout, stdin) = ServerProcess::start(&opening.server, launch, log).await?;
    tokio::spawn(supervise_process(process, life.clone(), reason_sender));
    connect_lines(opening, stdout, stdin, life).await
}

async fn connect_http(
    opening: &ConnectRequest,
    place: &HttpEndpoint,
    life: ConnectionLifetime,
) -> Result<DownstreamConnection, String> {
    let (sink, stream) = http::connect_streamable(place, opening.token_source.clone())?;
    connect(opening, sink, stream, life).await
}

async fn connect_sse(
    opening: &ConnectRequest,
    place: &HttpEndpoint,
    life: ConnectionLifetime,
    reason_sender: watch::Sender<Option<String>>,
) -> Result<DownstreamConnection, String> {
    let connecting = http::connect_sse(place, opening.token_source.clone(), reason_sender);
    let opened = timeout(opening.connect_timeout, connecting).await.map_err(|_| {
        let waited = opening.connect_timeout.as_millis();
        format!("it did not open its event stream within {waited} ms")
    })?;
    let (incoming, outgoing) = opened?;
    connect_lines(opening, incoming, outgoing, life).await
}

/// Connects over two streams of lines. After a failure, the exit reason of the process is added.
async fn connect_lines(
    opening: &ConnectRequest,
    incoming: impl AsyncRead + Send + Unpin + 'static,
    outgoing: impl AsyncWrite + Send + Unpin + 'static,
    life: ConnectionLifetime,
) -> Result<DownstreamConnection, String> {
    let writer = FrameWriter::default();
    tokio::spawn(writer.clone().run_writer(outgoing, WRITE_TIMEOUT));
    let stream = LineStream::new(Arc::clone(&opening.server), incoming);
    match connect(opening, writer, stream, life.clone()).await {
        Ok(connection) => Ok(connection),
        Err(said) => {
            // The exit reason of the process says more than the end of its stream.
            let mut reason = life.reason;
            let _ = timeout(EXIT_GRACE_PERIOD, reason.wait_for(Option::is_some)).await;
            life.cancel.cancel();
            let ended = reason.borrow().clone();
            Err(ended.map_or(said.clone(), |ended| format!("{said}; {ended}")))
        }
    }
}

/// Starts the reader of a connection and performs the handshake.
async fn connect(
    opening: &ConnectRequest,
    sink: impl FrameSink,
    stream: impl FrameStream,
    life: ConnectionLifetime,
) -> Result<DownstreamConnection, String> {
    let rpc_client = RpcClient::new(sink);
    let inbox = ServerInbox {
        server: Arc::clone(&opening.server),
        changes: Arc::clone(&opening.changes),
        log: ServerLogWriter::new(Arc::clone(&opening.server), opening.secrets.clone()),
        forwarder: opening.log_forwarder.clone(),
        stray_lines: AtomicU64::new(0),
    };
    tokio::spawn(run_reader(rpc_client.clone(), stream, inbox, life.clone()));
    let greeting = timeout(opening.connect_timeout, handshake(&rpc_client)).await;
    let greeting = greeting.unwrap_or_else(|_| {
        let waited = opening.connect_timeout.as_millis();
        Err(format!("it did not answer `initialize` within {waited} ms"))
    });
    let introduction = greeting.inspect_err(|_| life.ended.cancel())?;
    Ok(DownstreamConnection {
        server: Arc::clone(&opening.server),
        rpc_client,
        introduction,
        lifetime: life,
        stale: AtomicBool::new(false),
        has_responded: AtomicBool::new(false),
        secrets: opening.secrets.clone(),
        token_source: opening.token_source.clone(),
        tools: Mutex::new(None),
        uses: Arc::default(),
    })
}

/// Reads the stream until it ends or the connection is ended.
async fn run_reader(
    rpc_client: RpcClient,
    stream: impl FrameStream,
    inbox: ServerInbox,
    life: ConnectionLifetime,
) {
    let end = tokio::select! {
        end = rpc_client.run(stream, &inbox) => Some(end),
        () = life.cancel.cancelled() => None,
        // A failed handshake, or a process that has exited while another one holds its stdout.
        () = life.ended.cancelled() => None,
    };
    if end == Some(StreamEnd::AnswersNotRead) {
        let cause = *life.gateway_cause.get_or_init(|| ANSWERS_NOT_READ);
        tracing::warn!(server = %inbox.server, "the connection is ended: {cause}");
    }
    life.ended.cancel();
    rpc_client.close();
}

/// Performs the handshake; has no timeout of its own. The error is one line.
async fn handshake(rpc_client: &RpcClient) -> Result<InitializeResult, String> {
    let us = Implementation::new("adjutant", env!("CARGO_PKG_VERSION"));
    let params = ClientConfig::new(ClientCapabilities::default(), us)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let params = LineJson::encode(&params).map_err(|error| error.to_string())?;
    let (sender, reply) = oneshot::channel();
    let request = RpcRequest {
        method: "initialize",
        params: &params,
        // Not `RpcClient::request`: `initialize` must not be cancelled.
        deadline: Instant::now() + HANDSHAKE_DEADLINE,
        cancelled: None,
        on_progress: None,
    };
    rpc_client.start(request, Box::new(|reply| drop(sender.send(reply))));
    let reply = reply.await.unwrap_or(Err(RpcClientError::Gone));
    let raw = reply.map_err(|error| handshake_error(&error))?;
    let result: InitializeResult = serde_json::from_str(raw.as_str())
        .map_err(|_| "its answer to `initialize` makes no sense".to_owned())?;
    if !result.protocol_version.has_initialize() {
        let version = one_line(&shorten(result.protocol_version.as_str(), 60));
        return Err(format!("it answered `initialize` with the protocol version `{version}`"));
    }
    rpc_client.notify("notifications/initialized", &LineJson::object(&[]));
    Ok(result)
}

fn handshake_error(error: &RpcClientError) -> String {
    match error {
        RpcClientError::ErrorResponse(error) => {
            format!("it refused `initialize`: {}", one_line(&shorten(&error.message, 200)))
        }
        RpcClientError::InvalidResponse(_) => {
            "its answer to `initialize` makes no sense".to_owned()
        }
        RpcClientError::TransportFailed(reason) => {
            format!("`initialize` did not reach it: {}", one_line(&shorten(reason, 400)))
        }
        RpcClientError::Gone
        | RpcClientError::QueueFull
        | RpcClientError::Timeout
        | RpcClientError::Cancelled => "it ended before `initialize`".to_owned(),
    }
}

/// Forwards progress in order; drops it while the receiver is full.
fn progress_callback(sender: mpsc::Sender<ProgressNotificationParam>) -> OnProgress {
    Arc::new(move |params| {
        if let Ok(progress) = serde_json::from_str(params.get()) {
            let _ = sender.try_send(progress);
        }
    })
}

/// Owns the server process: reports its exit and ends it when the connection ends.
///
/// After its stdin is closed the process has 500 ms to exit; then SIGTERM, 500 ms, SIGKILL.
async fn supervise_process(
    mut process: ServerProcess,
    life: ConnectionLifetime,
    reason: watch::Sender<Option<String>>,
) {
    let by_itself = tokio::select! {
        how = process.wait() => Some(how),
        () = life.ended.cancelled() => None,
        () = life.cancel.cancelled() => None,
    };
    let cancelled_by_gateway = life.cancel.is_cancelled();
    let how = match by_itself {
        Some(how) => {
            // Read the remaining output, at most 500 ms.
            let _ = timeout(EXIT_GRACE_PERIOD, life.ended.cancelled()).await;
            how
        }
        None => {
            // Most servers exit when their stdin is closed, without a signal.
            match timeout(EXIT_GRACE_PERIOD, process.wait()).await {
                Ok(how) => how,
                Err(_) => process.stop().await,
            }
        }
    };
    let _ = reason.send(Some(if cancelled_by_gateway {
        "it was ended by the gateway".to_owned()
    } else {
        how
    }));
    life.ended.cancel();
    life.cancel.cancel();
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

    use super::super::backoff::Backoff;
    use super::super::server::{DownstreamServer, ServerKey, ServerScope};
    use super::super::state::ServerState;
    use super::*;
    use crate::gateway::config::ServerSet;
    use crate::util::now;

    /// Server that answers `initialize` and nothing else.
    async fn answer_initialize_only(stream: DuplexStream) {
        let (read, mut write) = split(stream);
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == "initialize" {
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "serverInfo": { "name": "s", "version": "1" },
                }});
                write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        }
    }

    async fn test_connection() -> Arc<DownstreamConnection> {
        let (near, far) = duplex(1 << 16);
        tokio::spawn(answer_initialize_only(far));
        let launch = StdioCommand {
            program: String::new(),
            arguments: Vec::new(),
            variables: std::collections::BTreeMap::new(),
            dir: std::path::PathBuf::new(),
        };
        let opening = ConnectRequest {
            server: "s".into(),
            endpoint: ServerEndpoint::Stdio(launch),
            secrets: Redactor::default(),
            changes: Arc::default(),
            log_forwarder: None,
            token_source: None,
            connect_timeout: Duration::from_secs(20),
        };
        let (ended, cancel) = (CancellationToken::new(), CancellationToken::new());
        let (reason, gateway_cause) = (watch::channel(None).1, Arc::default());
        let life = ConnectionLifetime { ended, cancel, reason, gateway_cause };
        let (read, write) = split(near);
        Arc::new(connect_lines(&opening, read, write, life).await.unwrap())
    }

    fn test_downstream(connection: &Arc<DownstreamConnection>) -> Arc<DownstreamServer> {
        let servers = ServerSet::parse(r#"{"mcpServers": {"s": {"command": "true"}}}"#).unwrap();
        let spec = servers.get("s").unwrap().spec.as_ref().unwrap();
        let key =
            ServerKey { scope: ServerScope::Shared, server: "s".to_owned(), digest: String::new() };
        let server = DownstreamServer::new(key, Arc::clone(spec), "/".into(), None, None);
        let (connection, failures) = (Arc::clone(connection), Backoff::default());
        server.state_sender.send_replace(ServerState::Ready { connection, since: now(), failures });
        server
    }

    #[tokio::test]
    async fn retiring_waits_for_running_calls_and_for_no_other_holder() {
        // Stands for the task that watches the connection.
        let watched = test_connection().await;
        let retire = || {
            let retiring = test_downstream(&watched).retire(Duration::from_mins(1));
            timeout(Duration::from_secs(2), retiring)
        };
        let _holder = Arc::clone(&watched);
        let used = watched.begin_use();
        assert!(retire().await.is_err(), "a call is running");
        drop(used);
        assert!(retire().await.is_ok(), "no call is running");
    }
}
