//! Serving clients: one on stdin and stdout, others over HTTP, with or without agents.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::serve_server_with_ct;
use tokio_util::sync::CancellationToken;

use super::callers::CallerResolver;
use super::handler::McpHandler;
use super::http::{HealthProbe, HttpServer, HttpShutdown};
use super::router::CallRouter;
use super::stdio::{CALL_GRACE_PERIOD, StdioConnection, stdin_and_stdout};
use crate::delegation::Orchestrator;
use crate::gateway::{Gateway, LogSubscription};
use crate::identity::{AttestationRegistry, Caller, HookListener};

/// Serves one client until it disconnects or the process is told to stop; then stops all runs and servers.
pub(crate) async fn serve_stdio(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
) -> Result<(), ServeError> {
    let logs = Some(Arc::clone(gateway.log_subscription()));
    let ended = Box::pin(serve_stdio_connection(&orchestrator, &gateway, caller, logs)).await;
    orchestrator.stop_all().await;
    ended
}

/// Serves clients over HTTP until the process is told to stop; then stops all runs and servers.
///
/// `caller` is the caller of requests without a token, if those are accepted.
pub(crate) async fn serve_http(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) {
    serve_http_clients(&orchestrator, &gateway, caller, server).await;
    orchestrator.stop_all().await;
}

/// Serves one client on stdin and stdout, and others over HTTP, until the stdio client disconnects or the process is
/// told to stop. All connections share one orchestrator.
pub(crate) async fn serve_stdio_and_http(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) -> Result<(), ServeError> {
    let over_http = serve_http_clients(&orchestrator, &gateway, caller.clone(), server);
    let over_stdio = async {
        // Servers are shared with HTTP clients: their log messages may belong to another client.
        let logs = None;
        let ended = Box::pin(serve_stdio_connection(&orchestrator, &gateway, caller, logs)).await;
        // The client that started us has disconnected: HTTP calls in progress complete, new ones are rejected.
        if !orchestrator.shutdown().stopping().is_cancelled() {
            orchestrator.shutdown().begin();
        }
        ended
    };
    let ((), ended) = tokio::join!(over_http, over_stdio);
    orchestrator.stop_all().await;
    ended
}

/// Serves one client on stdin and stdout until it disconnects or `stop` is cancelled; then stops all servers.
///
/// After a disconnect, running calls have 5 s to complete; after `stop` they are cancelled at once. Hooks of Claude
/// Code can attest the caller of each call.
pub(crate) async fn serve_gateway_stdio(gateway: Arc<Gateway>, stop: CancellationToken) {
    let (callers, _reception) = attested_callers(Caller::main());
    let logs = Some(Arc::clone(gateway.log_subscription()));
    let router = CallRouter { gateway: Arc::clone(&gateway), callers, needs_servers: false };
    let handler = McpHandler::new(router, None, logs);
    let (input, output) = stdin_and_stdout();
    let (connection, bridge) =
        StdioConnection::start(handler.router().clone(), handler.logs().cloned(), input, output);
    let service = bridge.service(handler);
    // A child token: rmcp cancels its token when the client closes stdin, but running calls still get their responses.
    let serving = serve_server_with_ct(service, bridge, stop.child_token());
    let served = Box::pin(serving).await;
    match served {
        Ok(service) => {
            let _ = service.waiting().await;
        }
        Err(error) if !stop.is_cancelled() => {
            tracing::warn!("the client went away before it said who it is: {error}");
        }
        Err(_) => {}
    }
    connection.close(if stop.is_cancelled() { Duration::ZERO } else { CALL_GRACE_PERIOD }).await;
    gateway.shutdown().await;
}

/// Serves clients over HTTP until shutdown, then stops all downstream servers.
pub(crate) async fn serve_gateway_http(
    gateway: Arc<Gateway>,
    server: HttpServer,
    end: HttpShutdown,
) {
    let callers = CallerResolver::without_attestations(Caller::main());
    let router = CallRouter { gateway: Arc::clone(&gateway), callers, needs_servers: false };
    let handler = McpHandler::new(router.clone(), None, None);
    let probe = HealthProbe { gateway: Arc::clone(&gateway), orchestrator: None };
    server.serve_with_router(probe, Some(router), move || handler.clone(), end).await;
    gateway.shutdown().await;
}

/// Serves one client until it disconnects, or the process is told to stop and its runs have ended.
///
/// `logs` forwards log messages of downstream servers; `None` if other clients share the servers.
async fn serve_stdio_connection(
    orchestrator: &Arc<Orchestrator>,
    gateway: &Arc<Gateway>,
    caller: Caller,
    logs: Option<Arc<LogSubscription>>,
) -> Result<(), ServeError> {
    let (callers, _reception) = attested_callers(caller);
    let router = CallRouter { gateway: Arc::clone(gateway), callers, needs_servers: true };
    let handler = McpHandler::new(router, Some(Arc::clone(orchestrator)), logs);
    let stopping = orchestrator.shutdown().stopping().clone();
    let (input, output) = stdin_and_stdout();
    let (connection, bridge) =
        StdioConnection::start(handler.router().clone(), handler.logs().cloned(), input, output);
    let service = bridge.service(handler);
    let service = tokio::select! {
        service = service.serve(bridge) => service.map_err(|error| ServeError::Handshake(Box::new(error)))?,
        () = stopping.cancelled() => return Ok(()),
    };
    let stop = service.cancellation_token();
    let waiting = service.waiting();
    tokio::pin!(waiting);
    let ended = tokio::select! {
        ended = &mut waiting => ended.map(drop),
        () = stopping.cancelled() => {
            // Active runs still deliver their results, until the shutdown's grace period ends.
            orchestrator.drain().await;
            stop.cancel();
            waiting.await.map(drop)
        }
    };
    connection
        .close(if stopping.is_cancelled() { Duration::ZERO } else { CALL_GRACE_PERIOD })
        .await;
    ended.map_err(ServeError::ConnectionTask)
}

async fn serve_http_clients(
    orchestrator: &Arc<Orchestrator>,
    gateway: &Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) {
    let shutdown = orchestrator.shutdown();
    let end =
        HttpShutdown { stopping: shutdown.stopping().clone(), ending: shutdown.ending().clone() };
    // HTTP clients do not belong to the Claude Code session that started us.
    let caller = Caller { session_id: None, ..caller };
    let callers = CallerResolver::without_attestations(caller);
    let router = CallRouter { gateway: Arc::clone(gateway), callers, needs_servers: true };
    let handler = McpHandler::new(router.clone(), Some(Arc::clone(orchestrator)), None);
    let probe =
        HealthProbe { gateway: Arc::clone(gateway), orchestrator: Some(Arc::clone(orchestrator)) };
    server.serve_with_router(probe, Some(router), move || handler.clone(), end).await;
}

/// The callers of a stdio client, whose hooks can attest each call while the listener lives.
fn attested_callers(caller: Caller) -> (CallerResolver, Option<HookListener>) {
    let attested = Arc::new(AttestationRegistry::default());
    let listener = HookListener::open(&attested);
    (CallerResolver::with_attestations(caller, attested), listener)
}

/// Failure of a stdio connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The client sent no valid MCP handshake.
    #[error("the client and the server could not agree")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The connection's task panicked or was aborted.
    #[error("the connection broke")]
    ConnectionTask(#[source] tokio::task::JoinError),
}
