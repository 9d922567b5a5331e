//! HTTP server: listener, TLS, accept loop and graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{any, get};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rmcp::handler::server::ServerHandler;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::{Error, InconsistentKeys, ServerConfig};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::MAX_BODY_BYTES;
use super::connection::{CONNECTION_TIMEOUTS, ConnectionServer};
use super::connection_table::ConnectionTable;
use super::frontend::{HttpFrontend, handle_mcp};
use super::health::{self, HealthProbe};
use super::host_origin_token::AuthLayer;
use super::http_sessions::{HttpSessions, InFlight, SESSION_LIMITS};
use super::options::{HttpOptions, OptionsError, TlsFiles};
use super::rate_limit::RateLimits;
use super::refusal::RefusalLog;
use crate::identity::TokenStore;
use crate::server::router::CallRouter;

/// Soft limit of open files to ask for; every connection needs one.
const WANTED_OPEN_FILES: u64 = 16_384;
/// Limit on connections, reduced to half of the limit of open files: runs and servers need files too.
const MAX_CONNECTIONS: u64 = 8_192;
/// Connections that the kernel queues before the server accepts them.
///
/// With the 128 of `TcpListener::bind` a burst of clients loses packets, and each client retries only after 1 s.
const BACKLOG: u32 = 1_024;
/// Retention of the response of a finished call, for a client that reconnects.
const RESULT_RETENTION: Duration = Duration::from_secs(10);
/// Interval of the search for idle sessions.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// Pause after a system error of `accept`, such as too many open files.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for sending the last responses after all calls have ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound listener that is not served yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    options: HttpOptions,
    auth: AuthLayer,
    tls: Option<TlsAcceptor>,
}

/// Shutdown signals of the server.
#[derive(Clone, Debug)]
pub struct HttpShutdown {
    /// Accept no new calls; running calls may finish.
    pub stopping: CancellationToken,
    /// Stop waiting for running calls.
    pub ending: CancellationToken,
}

fn bind_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl HttpServer {
    /// Binds the listener. Rejects unsafe options: see `OptionsError`.
    ///
    /// Must be called within a Tokio runtime.
    pub fn bind(data_dir: &Path, options: HttpOptions) -> Result<Self, HttpError> {
        let auth = AuthLayer::new(&options, TokenStore::new(data_dir));
        let tokens = auth.usable_tokens().map_err(|reason| HttpError::Tokens { reason })?;
        options.validate(tokens)?;
        let tls = options.tls.as_ref().map(tls_acceptor).transpose()?;
        let cannot = |source| HttpError::Listen { address: options.address, source };
        let listener = bind_listener(options.address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Self { listener, address, options, auth, tls })
    }

    /// Returns the URL of the MCP endpoint.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/mcp", self.address)
    }

    /// Serves until `end`, with a handler for each session or request.
    ///
    /// After `stopping` it waits for running calls until `ending`, then at most 2 s for their responses.
    pub async fn serve<S: ServerHandler>(
        self,
        probe: HealthProbe,
        handler: impl Fn() -> S + Send + Sync + 'static,
        end: HttpShutdown,
    ) {
        self.serve_with_router(probe, None, handler, end).await;
    }

    /// Like [`Self::serve`], with a router for the gateway's tools that `handler` offers.
    pub(crate) async fn serve_with_router<S: ServerHandler>(
        self,
        probe: HealthProbe,
        router: Option<CallRouter>,
        handler: impl Fn() -> S + Send + Sync + 'static,
        end: HttpShutdown,
    ) {
        let table = ConnectionTable::new(max_connections(raise_open_files()));
        // Cancelled after all calls have ended; ends event streams, which would stay open otherwise.
        let closing = CancellationToken::new();
        let listener = self.listener;
        let handlers = (router, handler);
        let front = build_frontend(&self.options, self.auth, probe, handlers, &end, &closing);
        let sweeping = tokio::spawn(close_idle_sessions(Arc::clone(&front), closing.clone()));
        let connections = TaskTracker::new();
        let server = ConnectionServer {
            router: build_router(&front),
            tls: self.tls,
            closing: closing.clone(),
            timeouts: CONNECTION_TIMEOUTS,
        };
        let accepting = async {
            loop {
                let (stream, peer) = accept_next(&listener).await;
                let connection = table.add().await;
                connections.spawn(server.clone().serve(stream, peer, connection));
            }
        };
        tokio::select! {
            () = accepting => {}
            () = end.stopping.cancelled() => {}
        }
        drop(listener);
        front.calls.close();
        tokio::select! {
            () = front.calls.wait() => {}
            () = end.ending.cancelled() => {}
        }
        closing.cancel();
        connections.close();
        let _ = timeout(DRAIN_TIMEOUT, connections.wait()).await;
        sweeping.abort();
    }
}

fn build_frontend<S: ServerHandler>(
    options: &HttpOptions,
    auth: AuthLayer,
    probe: HealthProbe,
    (router, handler): (Option<CallRouter>, impl Fn() -> S + Send + Sync + 'static),
    end: &HttpShutdown,
    closing: &CancellationToken,
) -> Arc<HttpFrontend<S>> {
    let mut sessions = LocalSessionManager::default();
    // rmcp does not count a call in progress as use of its session; `HttpSessions` does and closes idle ones.
    sessions.session_config.keep_alive = None;
    sessions.session_config.completed_cache_ttl = RESULT_RETENTION;
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_BODY_BYTES)
        // Defence in depth: the authentication layer has already checked both.
        .with_allowed_hosts(options.accepted_hosts())
        .with_allowed_origins(options.accepted_origins())
        .enforce_origin_validation()
        .with_cancellation_token(closing.clone());
    Arc::new(HttpFrontend {
        mcp: StreamableHttpService::new(move || Ok(handler()), Arc::clone(&sessions), config),
        router,
        session_manager: sessions,
        http_sessions: HttpSessions::new(SESSION_LIMITS),
        auth,
        rate_limits: RateLimits::new(options.requests_per_second, options.runs_at_once),
        refusals: RefusalLog::new(Arc::clone(&probe.gateway)),
        in_flight: InFlight::default(),
        calls: TaskTracker::new(),
        stopping: end.stopping.clone(),
        probe,
        metrics_need_token: options.metrics_need_token,
    })
}

fn build_router<S: ServerHandler>(front: &Arc<HttpFrontend<S>>) -> Router {
    Router::new()
        .route("/mcp", any(handle_mcp::<S>))
        .route("/healthz", get(health::health))
        .route("/readyz", get(health::ready::<S>))
        .route("/metrics", get(health::metrics::<S>))
        .with_state(Arc::clone(front))
}

/// Accepts a connection. An error concerns one client or is temporary, so it is logged and retried.
async fn accept_next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

/// Closes idle sessions once a minute.
async fn close_idle_sessions<S: ServerHandler>(
    front: Arc<HttpFrontend<S>>,
    closing: CancellationToken,
) {
    let mut ticks = interval(SWEEP_INTERVAL);
    while closing.run_until_cancelled(ticks.tick()).await.is_some() {
        for id in front.http_sessions.idle_sessions(Instant::now()) {
            front.close_session(&id).await;
        }
    }
}

/// Raises the soft limit of open files, 1,024 on many systems, and returns the limit in force.
fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return WANTED_OPEN_FILES };
    let wanted = WANTED_OPEN_FILES.min(hard);
    if soft >= wanted {
        return soft;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::debug!(%error, "only {soft} files can be open at once");
            soft
        }
    }
}

fn max_connections(open_files: u64) -> usize {
    usize::try_from(MAX_CONNECTIONS.min(open_files / 2)).unwrap_or(usize::MAX).max(1)
}

/// Error of starting the HTTP server.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The options are invalid or unsafe.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The tokens cannot be read.
    #[error("{reason}")]
    Tokens {
        /// The file and what is wrong with it.
        reason: String,
    },
    /// The address cannot be bound.
    #[error("{address} cannot be listened at: is something else there already?")]
    Listen {
        /// The listen address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The certificate or the key cannot be used.
    #[error("`{}` cannot be used for TLS: {reason}; give a certificate and its key as PEM files", path.display())]
    Tls {
        /// File of the certificate or the key.
        path: PathBuf,
        /// Reason, for the user.
        reason: String,
    },
}

/// Returns an acceptor with the certificate and key of `files`.
pub(crate) fn tls_acceptor(files: &TlsFiles) -> Result<TlsAcceptor, HttpError> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&files.certificate, &error, "certificate"))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable(&files.key, &error, "private key"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| unusable(files, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: &pem::Error, wanted: &str) -> HttpError {
    let reason = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("there is no {wanted} in it"),
        other => other.to_string(),
    };
    HttpError::Tls { path: path.to_path_buf(), reason }
}

fn unusable(files: &TlsFiles, error: &Error) -> HttpError {
    let reason = match error {
        Error::NoCertificatesPresented => "there is no certificate in it".to_owned(),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("the key is not the certificate's (`{}`)", files.key.display())
        }
        other => other.to_string(),
    };
    HttpError::Tls { path: files.certificate.clone(), reason }
}
