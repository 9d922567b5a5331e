//! Opens connections to downstream servers: transport, handshake, supervision of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, InitializeResult, ProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{ConnectionLifetime, DownstreamConnection, EXIT_GRACE_PERIOD};
use super::log_forwarder::LogForwarder;
use super::notifications::{ListChangeCounters, ServerInbox, ServerLogWriter};
use super::transport::{LineStream, ServerProcess, StdioCommand, http};
use crate::catalog::HttpTransportKind;
use crate::gateway::config::{HttpEndpoint, ServerEndpoint};
use crate::gateway::oauth::{SignInNeeded, TokenSource};
use crate::jsonrpc::{
    FrameSink, FrameStream, FrameWriter, LineJson, RpcClient, RpcClientError, RpcRequest, StreamEnd,
};
use crate::util::{Mutex, Redactor, one_line, shorten};

/// Limit for a write that makes no progress; then the connection counts as broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Later than any `startup_timeout_ms`, which ends the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_hours(24);
const ANSWERS_NOT_READ: &str = "it does not read the answers to its own requests";
const INVALID_HANDSHAKE: &str = "its answer to `initialize` makes no sense";

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
pub(crate) struct ConnectError {
    /// One line, secrets redacted.
    pub(crate) reason: String,
    /// Set if a person has to sign in.
    pub(crate) sign_in: Option<SignInNeeded>,
}

impl ConnectRequest {
    /// Starts or contacts the server and performs the handshake; `cancel` ends the connection.
    pub(crate) async fn open(
        self,
        cancel: CancellationToken,
    ) -> Result<Arc<DownstreamConnection>, ConnectError> {
        let (reason_sender, reason) = watch::channel(None);
        let ended = CancellationToken::new();
        let life = ConnectionLifetime { ended, cancel, reason, gateway_cause: Arc::default() };
        let opened = match &self.endpoint {
            ServerEndpoint::Stdio(launch) => self.connect_stdio(launch, life, reason_sender).await,
            ServerEndpoint::Http(place) if place.transport == HttpTransportKind::Sse => {
                self.connect_sse(place, life, reason_sender).await
            }
            ServerEndpoint::Http(place) => {
                match http::connect_streamable(place, self.token_source.clone()) {
                    Ok((sink, stream)) => self.connect(sink, stream, life).await,
                    Err(reason) => Err(reason),
                }
            }
        };
        opened.map(Arc::new).map_err(|reason| {
            let sign_in = self.token_source.as_ref().and_then(|source| source.needed());
            ConnectError { reason: self.secrets.redact(&reason), sign_in }
        })
    }

    async fn connect_stdio(
        &self,
        launch: &StdioCommand,
        life: ConnectionLifetime,
        reason_sender: watch::Sender<Option<String>>,
    ) -> Result<DownstreamConnection, String> {
        let log = ServerLogWriter::new(Arc::clone(&self.server), self.secrets.clone());
        let (process, stdout, stdin) = ServerProcess::start(&self.server, launch, log).await?;
        tokio::spawn(supervise_process(process, life.clone(), reason_sender));
        self.connect_lines(stdout, stdin, life).await
    }

    async fn connect_sse(
        &self,
        place: &HttpEndpoint,
        life: ConnectionLifetime,
        reason_sender: watch::Sender<Option<String>>,
    ) -> Result<DownstreamConnection, String> {
        let connecting = http::connect_sse(place, self.token_source.clone(), reason_sender);
        let opened = timeout(self.connect_timeout, connecting).await.map_err(|_| {
            let waited = self.connect_timeout.as_millis();
            format!("it did not open its event stream within {waited} ms")
        })?;
        let (incoming, outgoing) = opened?;
        self.connect_lines(incoming, outgoing, life).await
    }

    /// Connects over two streams of lines. After a failure, the exit reason of the process is added.
    pub(super) async fn connect_lines(
        &self,
        incoming: impl AsyncRead + Send + Unpin + 'static,
        outgoing: impl AsyncWrite + Send + Unpin + 'static,
        life: ConnectionLifetime,
    ) -> Result<DownstreamConnection, String> {
        let writer = FrameWriter::default();
        tokio::spawn(writer.clone().run_writer(outgoing, WRITE_TIMEOUT));
        let stream = LineStream::new(Arc::clone(&self.server), incoming);
        match self.connect(writer, stream, life.clone()).await {
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
        &self,
        sink: impl FrameSink,
        stream: impl FrameStream,
        life: ConnectionLifetime,
    ) -> Result<DownstreamConnection, String> {
        let rpc_client = RpcClient::new(sink);
        let inbox = ServerInbox {
            server: Arc::clone(&self.server),
            changes: Arc::clone(&self.changes),
            log: ServerLogWriter::new(Arc::clone(&self.server), self.secrets.clone()),
            forwarder: self.log_forwarder.clone(),
            stray_lines: AtomicU64::new(0),
            rejections: AtomicU64::new(0),
        };
        tokio::spawn(run_reader(rpc_client.clone(), stream, inbox, life.clone()));
        let greeting = timeout(self.connect_timeout, handshake(&rpc_client)).await;
        let greeting = greeting.unwrap_or_else(|_| {
            let waited = self.connect_timeout.as_millis();
            Err(format!("it did not answer `initialize` within {waited} ms"))
        });
        let introduction = greeting.inspect_err(|_| life.ended.cancel())?;
        Ok(DownstreamConnection {
            server: Arc::clone(&self.server),
            rpc_client,
            introduction,
            lifetime: life,
            stale: AtomicBool::new(false),
            has_responded: AtomicBool::new(false),
            secrets: self.secrets.clone(),
            token_source: self.token_source.clone(),
            tools: Mutex::default(),
            uses: TaskTracker::new(),
        })
    }
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
    let result: InitializeResult =
        serde_json::from_str(raw.as_str()).map_err(|_| INVALID_HANDSHAKE.to_owned())?;
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
        RpcClientError::InvalidResponse(_) => INVALID_HANDSHAKE.to_owned(),
        RpcClientError::TransportFailed(reason) => {
            format!("`initialize` did not reach it: {}", one_line(&shorten(reason, 400)))
        }
        RpcClientError::Gone
        | RpcClientError::QueueFull
        | RpcClientError::Timeout
        | RpcClientError::Cancelled => "it ended before `initialize`".to_owned(),
    }
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
        // Most servers exit when their stdin is closed, without a signal.
        None => match timeout(EXIT_GRACE_PERIOD, process.wait()).await {
            Ok(how) => how,
            Err(_) => process.stop().await,
        },
    };
    let by_gateway = || "it was ended by the gateway".to_owned();
    let _ = reason.send(Some(if cancelled_by_gateway { by_gateway() } else { how }));
    life.ended.cancel();
    life.cancel.cancel();
}
