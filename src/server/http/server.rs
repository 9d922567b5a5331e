//! Listening, serving, and an end that lets calls end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Extension;
use axum::routing::{any, get};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rmcp::handler::server::ServerHandler;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::MAX_BODY;
use super::connection::PATIENCE;
use super::front::{Front, Peer, mcp};
use super::guard::Guard;
use super::options::{HttpOptions, OptionsError};
use super::pace::Paces;
use super::probe::Probe;
use super::refusal_log::RefusalLog;
use super::session_book::{SESSION_LIMITS, SessionBook};
use super::{connection, pages, tls};
use crate::identity::TokenBook;

/// Open files that are wanted where the system lets us have them; a connection is one.
const OPEN_FILES: u64 = 16_384;
/// Connections at once; the rest waits until one ends.
const MAX_CONNECTIONS: usize = 8_192;
/// How long a finished call stays to be asked for again by a client whose connection broke.
const RESUMABLE: Duration = Duration::from_secs(10);
/// How often unused sessions are looked for.
const SWEEP: Duration = Duration::from_mins(1);
/// After an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// For the last bytes of answers, once all calls have ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A port that is listened at, not served yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    options: HttpOptions,
    guard: Guard,
    tls: Option<TlsAcceptor>,
}

/// When serving is to end.
#[derive(Clone, Debug)]
pub struct HttpEnd {
    /// Nothing new is taken; calls may end by themselves.
    pub stopping: CancellationToken,
    /// No longer than until this.
    pub ending: CancellationToken,
}

impl HttpServer {
    /// Begins to listen, unless that would let anybody in.
    pub async fn bind(data_dir: &Path, options: HttpOptions) -> Result<Self, HttpError> {
        let guard = Guard::new(&options, TokenBook::open(data_dir));
        options.check(guard.usable_tokens())?;
        let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let cannot = |source| HttpError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Self { listener, address, options, guard, tls })
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/mcp", self.address)
    }

    /// Serves until the end, with a handler for each session or request.
    pub async fn serve<S: ServerHandler>(
        self,
        probe: Probe,
        handler: impl Fn() -> S + Send + Sync + 'static,
        end: HttpEnd,
    ) {
        want_open_files();
        // Cancelled when all calls are over: ends the streams that would go on for ever.
        let closing = CancellationToken::new();
        let (listener, tls) = (self.listener, self.tls);
        let front = front(&self.options, self.guard, probe, handler, &end, &closing);
        let sweeping = tokio::spawn(sweep(Arc::clone(&front), closing.clone()));
        let connections = TaskTracker::new();
        let router = router(&front);
        let accepting = accept(&listener, tls.as_ref(), &router, &connections, &closing);
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
        let _ = timeout(LAST_WORDS, connections.wait()).await;
        sweeping.abort();
    }
}

fn front<S: ServerHandler>(
    options: &HttpOptions,
    guard: Guard,
    probe: Probe,
    handler: impl Fn() -> S + Send + Sync + 'static,
    end: &HttpEnd,
    closing: &CancellationToken,
) -> Arc<Front<S>> {
    let mut sessions = LocalSessionManager::default();
    // A call in flight does not count as use for rmcp: ours counts, and closes.
    sessions.session_config.keep_alive = None;
    sessions.session_config.completed_cache_ttl = RESUMABLE;
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_BODY)
        // The guard has checked both; this is the second lock.
        .with_allowed_hosts(options.hosts())
        .with_allowed_origins(options.origins())
        .enforce_origin_validation()
        .with_cancellation_token(closing.clone());
    Arc::new(Front {
        mcp: StreamableHttpService::new(move || Ok(handler()), Arc::clone(&sessions), config),
        sessions,
        book: SessionBook::new(SESSION_LIMITS),
        guard,
        paces: Paces::new(options.requests_per_second, options.runs_at_once),
        refusals: RefusalLog::new(Arc::clone(&probe.gateway)),
        calls: TaskTracker::new(),
        stopping: end.stopping.clone(),
        probe,
        metrics_need_token: options.metrics_need_token,
    })
}

fn router<S: ServerHandler>(front: &Arc<Front<S>>) -> Router {
    Router::new()
        .route("/mcp", any(mcp::<S>))
        .route("/healthz", get(pages::health))
        .route("/readyz", get(pages::ready::<S>))
        .route("/metrics", get(pages::metrics::<S>))
        .with_state(Arc::clone(front))
}

async fn accept(
    listener: &TcpListener,
    tls: Option<&TlsAcceptor>,
    router: &Router,
    connections: &TaskTracker,
    closing: &CancellationToken,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = next(listener).await;
        let router = router.clone().layer(Extension(Peer(peer)));
        let (tls, closing) = (tls.cloned(), closing.clone());
        connections.spawn(async move {
            connection::serve(stream, tls, router, closing, PATIENCE).await;
            drop(seat);
        });
    }
}

/// The next connection. An error is one client's, or passes: a server does not end for it.
async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Ends sessions that nobody uses any more.
async fn sweep<S: ServerHandler>(front: Arc<Front<S>>, closing: CancellationToken) {
    let mut looks = interval(SWEEP);
    while closing.run_until_cancelled(looks.tick()).await.is_some() {
        for id in front.book.forgotten(Instant::now()) {
            front.close(&id).await;
        }
    }
}

/// Many systems allow a thousand files to begin with and more to whoever asks.
fn want_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = OPEN_FILES.min(hard);
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::debug!(%error, "only {soft} files can be open at once");
    }
}

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// It was asked for in a way that is not safe, or makes no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The address cannot be had.
    #[error("{address} cannot be listened at: is something else there already?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The certificate or the key.
    #[error("`{}` cannot be used for TLS: {reason}; give a certificate and its key as PEM files", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}
