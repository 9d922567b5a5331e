//! One connection, from its first byte to its orderly end.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long the head of a request may take, from the first byte or from the answer before it. Also how long an
/// idle connection is kept; clients open another without asking.
const HEAD_PATIENCE: Duration = Duration::from_mins(1);
/// How long the two sides may take to agree on keys.
const TLS_PATIENCE: Duration = Duration::from_secs(10);
/// More headers than any client sends.
const MAX_HEADERS: usize = 64;
/// Room for a head, and for what is read ahead of a body.
const MAX_BUFFER: usize = 64 << 10;

/// Serves a connection until its client goes or, once `closing`, until its last answer is sent.
pub(super) async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    closing: CancellationToken,
) {
    // An answer waits for nothing: without this every call takes 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was over before it began");
        return;
    }
    match tls {
        None => speak(stream, router, closing).await,
        Some(tls) => match timeout(TLS_PATIENCE, tls.accept(stream)).await {
            Ok(Ok(stream)) => speak(stream, router, closing).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
            Err(_) => tracing::debug!("a client took too long over TLS"),
        },
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    closing: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
