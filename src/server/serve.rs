//! Serving clients: one on stdin and stdout, others over HTTP, with or without agents.

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::serve_server_with_ct;
use tokio_util::sync::CancellationToken;

use super::callers::CallerResolver;
use super::handler::McpHandler;
use super::http::{HealthProbe, HttpServer, HttpShutdown};
use super::router::CallRouter;
use super::stdio::StdioConnection;
use crate::delegation::Orchestrator;
use crate::gateway::{Gateway, LogSubscription};
use crate::identity::{AttestationRegistry, Caller, HookListener};

/// The server of `adjutant serve`. Its connections share one orchestrator; when it ends, all runs and servers are stopped.
pub(crate) struct AgentServer {
    pub(crate) orchestrator: Arc<Orchestrator>,
    pub(crate) gateway: Arc<Gateway>,
    /// The caller of requests that no token or attestation identifies.
    pub(crate) caller: Caller,
}

impl AgentServer {
    /// Serves one client on stdin and stdout until it disconnects or the process is told to stop.
    pub(crate) async fn serve_stdio(self) -> Result<(), ServeError> {
        let logs = Some(Arc::clone(self.gateway.log_subscription()));
        let ended = Box::pin(self.serve_stdio_client(logs)).await;
        self.orchestrator.stop_all().await;
        ended
    }

    /// Serves clients over HTTP until the process is told to stop.
    pub(crate) async fn serve_http(self, server: HttpServer) {
        self.serve_http_clients(server).await;
        self.orchestrator.stop_all().await;
    }

    /// Serves one client on stdin and stdout, and others over HTTP, until the stdio client disconnects or the process is
    /// told to stop.
    pub(crate) async fn serve_stdio_and_http(self, server: HttpServer) -> Result<(), ServeError> {
        let over_stdio = async {
            // Servers are shared with HTTP clients: their log messages may belong to another client.
            let ended = Box::pin(self.serve_stdio_client(None)).await;
            // The client that started us has disconnected: HTTP calls in progress complete, new ones are rejected.
            if !self.orchestrator.shutdown().stopping().is_cancelled() {
                self.orchestrator.shutdown().begin();
            }
            ended
        };
        let ((), ended) = tokio::join!(self.serve_http_clients(server), over_stdio);
        self.orchestrator.stop_all().await;
        ended
    }

    /// Serves one client until it disconnects, or the process is told to stop and its runs have ended.
    ///
    /// `logs` forwards log messages of downstream servers; `None` if other clients share the servers.
    async fn serve_stdio_client(
        &self,
        logs: Option<Arc<LogSubscription>>,
    ) -> Result<(), ServeError> {
        let (callers, _listener) = attested_callers(self.caller.clone());
        let stopping = self.orchestrator.shutdown().stopping();
        let (connection, service, bridge) = StdioConnection::open(self.handler(callers, logs));
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
                self.orchestrator.drain().await;
                stop.cancel();
                waiting.await.map(drop)
            }
        };
        connection.close(stopping).await;
        ended.map_err(ServeError::ConnectionTask)
    }

    async fn serve_http_clients(&self, server: HttpServer) {
        let shutdown = self.orchestrator.shutdown();
        let (stopping, ending) = (shutdown.stopping().clone(), shutdown.ending().clone());
        // HTTP clients do not belong to the Claude Code session that started us.
        let caller = Caller { session_id: None, ..self.caller.clone() };
        let handler = self.handler(CallerResolver::without_attestations(caller), None);
        let probe = HealthProbe {
            gateway: Arc::clone(&self.gateway),
            orchestrator: Some(Arc::clone(&self.orchestrator)),
        };
        let (router, end) = (handler.router.clone(), HttpShutdown { stopping, ending });
        server.serve_with_router(probe, Some(router), move || handler.clone(), end).await;
    }

    fn handler(&self, callers: CallerResolver, logs: Option<Arc<LogSubscription>>) -> McpHandler {
        let router =
            CallRouter { gateway: Arc::clone(&self.gateway), callers, needs_servers: true };
        McpHandler::new(router, Some(Arc::clone(&self.orchestrator)), logs)
    }
}

/// Serves one client on stdin and stdout until it disconnects or `stop` is cancelled; then stops all servers.
///
/// After a disconnect, running calls have 5 s to complete; after `stop` they are cancelled at once. Hooks of Claude
/// Code can attest the caller of each call.
pub(crate) async fn serve_gateway_stdio(gateway: Arc<Gateway>, stop: CancellationToken) {
    let (callers, _listener) = attested_callers(Caller::main());
    let logs = Some(Arc::clone(gateway.log_subscription()));
    let router = CallRouter { gateway: Arc::clone(&gateway), callers, needs_servers: false };
    let (connection, service, bridge) = StdioConnection::open(McpHandler::new(router, None, logs));
    // A child token: rmcp cancels its token when the client closes stdin, but running calls still get their responses.
    match Box::pin(serve_server_with_ct(service, bridge, stop.child_token())).await {
        Ok(service) => drop(service.waiting().await),
        Err(error) if !stop.is_cancelled() => {
            tracing::warn!("the client went away before it said who it is: {error}");
        }
        Err(_) => {}
    }
    connection.close(&stop).await;
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
