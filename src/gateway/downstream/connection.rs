//! One live connection to one downstream server: one handshake, concurrent requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rmcp::model::{InitializeResult, ProgressNotificationParam};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::super::error::GatewayError;
use super::tools::ToolList;

use crate::gateway::oauth::TokenSource;
use crate::jsonrpc::{LineJson, OnProgress, RpcClient, RpcClientError, RpcError, RpcRequest};
use crate::util::{Mutex, Redactor};

/// Time from closing stdin to SIGTERM, and limit for reading the rest of the output after the exit.
pub(super) const EXIT_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// A connection; dropping the last reference ends it and its process.
pub(crate) struct DownstreamConnection {
    pub(crate) server: Arc<str>,
    pub(super) rpc_client: RpcClient,
    /// Result of `initialize`.
    pub(super) introduction: InitializeResult,
    pub(super) lifetime: ConnectionLifetime,
    /// Set if a request could not be sent; the next request opens a new connection.
    pub(super) stale: AtomicBool,
    /// Set after the first response. A server that ends before that counts as broken and gets a backoff.
    pub(super) has_responded: AtomicBool,
    pub(super) secrets: Redactor,
    pub(super) token_source: Option<Arc<TokenSource>>,
    /// Tool list and the number of list changes at which it was read.
    pub(super) tools: Mutex<Option<(u64, Arc<ToolList>)>>,
    pub(super) uses: TaskTracker,
}

/// A running call or request; a connection that is retired is ended when the last one is dropped.
pub(crate) type ConnectionUse = TaskTrackerToken;

/// Reason why a request could not be sent; `None` if the stream has ended.
type SendFailure = Option<String>;

/// End of a connection: signals and reason.
#[derive(Clone)]
pub(super) struct ConnectionLifetime {
    /// Cancelled when the stream has ended.
    pub(super) ended: CancellationToken,
    /// Cancelled to end the connection.
    pub(super) cancel: CancellationToken,
    /// Reason of the end, set after the process has exited.
    pub(super) reason: watch::Receiver<Option<String>>,
    /// Reason why the gateway ended the connection; takes precedence over `reason`.
    pub(super) gateway_cause: Arc<OnceLock<&'static str>>,
}

impl DownstreamConnection {
    /// Sends a tool call without waiting. `on_result` runs exactly once and gets the result as the server wrote it.
    ///
    /// Cancellation and timeout send `notifications/cancelled` to the server. `allowed` is the whole time of the call,
    /// for the error.
    pub(crate) fn start_call(
        self: &Arc<Self>,
        request: RpcRequest<'_>,
        allowed: Duration,
        on_result: impl FnOnce(Result<LineJson, GatewayError>) + Send + 'static,
    ) {
        let (connection, used) = (Arc::clone(self), self.begin_use());
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
        timeout: Duration,
        cancelled: Option<CancellationToken>,
    ) -> Result<Value, GatewayError> {
        let _used = self.begin_use();
        let params = LineJson::encode(&params).map_err(|error| self.invalid_json_error(&error))?;
        let deadline = Instant::now() + timeout;
        let request =
            RpcRequest { method, params: &params, deadline, cancelled, on_progress: None };
        let reply = self.rpc_client.request(request).await;
        match reply.map_err(|error| self.explain_now(error, timeout)) {
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
        self.uses.token()
    }

    /// Waits until no call and no request is running.
    pub(crate) async fn wait_until_unused(&self) {
        self.uses.close();
        while !self.uses.is_empty() {
            self.uses.wait().await;
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
    ) -> Result<GatewayError, SendFailure> {
        let is_response =
            matches!(error, RpcClientError::ErrorResponse(_) | RpcClientError::InvalidResponse(_));
        if is_response {
            self.has_responded.store(true, Ordering::Relaxed);
        }
        Ok(match error {
            RpcClientError::ErrorResponse(RpcError { code, message, data }) => {
                GatewayError::Downstream { code, message, data }
            }
            RpcClientError::InvalidResponse(reason) => self.invalid_response_error(reason),
            RpcClientError::QueueFull => {
                let reason = "it does not read fast enough: 32 MiB of requests wait for it";
                GatewayError::unavailable(&self.server, reason)
            }
            RpcClientError::Timeout => {
                GatewayError::Timeout { server: self.server.to_string(), after: allowed }
            }
            RpcClientError::Cancelled => GatewayError::Cancelled,
            RpcClientError::Gone => return Err(None),
            RpcClientError::TransportFailed(reason) => return Err(Some(reason)),
        })
    }

    /// Returns the error of a request on a broken connection. Waits at most 2.5 s for the reason.
    async fn explain_broken(self: &Arc<Self>, failure: SendFailure) -> GatewayError {
        if let Some(needed) = self.token_source.as_ref().and_then(|source| source.needed()) {
            self.mark_stale();
            return GatewayError::sign_in_needed(&self.server, needed);
        }
        // The pipe breaks before the exit of the process is noticed, and the exit reason says more.
        if let Some(reason) = failure
            && timeout(EXIT_GRACE_PERIOD, self.wait_until_ended()).await.is_err()
        {
            self.mark_stale();
            return GatewayError::unavailable(&self.server, self.secrets.redact(&reason));
        }
        GatewayError::unavailable(&self.server, self.end_reason().await)
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

/// Forwards progress in order; drops it while the receiver is full.
pub(crate) fn progress_callback(sender: mpsc::Sender<ProgressNotificationParam>) -> OnProgress {
    Arc::new(move |params| {
        if let Ok(progress) = serde_json::from_str(params.get()) {
            let _ = sender.try_send(progress);
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

    use super::super::open_connection::ConnectRequest;
    use super::super::server::{DownstreamServer, ServerKey, ServerScope};
    use super::super::state::{Backoff, ServerState};
    use super::*;
    use crate::gateway::config::{ServerEndpoint, ServerSet};
    use crate::gateway::downstream::StdioCommand;
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
        Arc::new(opening.connect_lines(read, write, life).await.unwrap())
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
