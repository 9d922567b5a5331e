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

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// With the head of a request, from the first byte or from the answer before it. Also how long an idle
    /// connection is kept; clients open another without asking.
    head: Duration,
    /// To agree on keys.
    tls: Duration,
}

/// What a bad line needs.
pub(super) const PATIENCE: Patience =
    Patience { head: Duration::from_mins(1), tls: Duration::from_secs(10) };

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
    patience: Patience,
) {
    // An answer waits for nothing: without this every call takes 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was over before it began");
        return;
    }
    match tls {
        None => speak(stream, router, closing, patience.head).await,
        Some(tls) => match timeout(patience.tls, tls.accept(stream)).await {
            Ok(Ok(stream)) => speak(stream, router, closing, patience.head).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
            Err(_) => tracing::debug!("a client took too long over TLS"),
        },
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    closing: CancellationToken,
    head_patience: Duration,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_patience)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use axum::routing::get;
    use rustls::ServerConfig;
    use rustls::crypto::ring::default_provider;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_mins(1);

    /// What a client that sends `bytes` and then nothing hears until it is hung up on.
    async fn heard(bytes: &[u8], tls: Option<TlsAcceptor>, patience: Patience) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve(stream, tls, router, CancellationToken::new(), patience));
        client.write_all(bytes).await.unwrap();
        let mut heard = Vec::new();
        timeout(LONG / 2, client.read_to_end(&mut heard)).await.expect("a hang-up").unwrap();
        String::from_utf8(heard).unwrap()
    }

    #[tokio::test]
    async fn j4_a_head_that_does_not_come_is_not_waited_for() {
        let patience = Patience { head: SHORT, tls: LONG };
        assert!(!heard(b"GET / HTTP/1.1\r\nHost: loc", None, patience).await.contains("here"));
        // Nor is the next one on a connection that stays open.
        let whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /";
        assert!(heard(whole, None, patience).await.contains("here"));
    }

    #[tokio::test]
    async fn j4_keys_that_are_not_agreed_on_are_not_waited_for() {
        let resolver = Arc::new(ResolvesServerCertUsingSni::new());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        let tls = TlsAcceptor::from(Arc::new(config));
        assert_eq!(heard(b"\x16\x03", Some(tls), Patience { head: LONG, tls: SHORT }).await, "");
    }
}
