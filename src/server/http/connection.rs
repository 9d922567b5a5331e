//! One HTTP/1 connection: TLS handshake, requests, graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::body::GuardedBody;
use super::connection_table::{HttpExchange, OpenConnection};
use super::frontend::HttpPeer;

/// Time limits for the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    /// For the head of a request, from the first byte or from the previous response.
    ///
    /// Also the lifetime of an idle connection; clients reconnect by themselves.
    head: Duration,
    /// For the TLS handshake.
    tls: Duration,
}

/// Time limits that suit slow networks.
pub(crate) const CONNECTION_TIMEOUTS: ConnectionTimeouts =
    ConnectionTimeouts { head: Duration::from_mins(1), tls: Duration::from_secs(10) };

/// Limit on headers per request; clients send fewer.
const MAX_HEADERS: usize = 64;
/// Size of the read buffer in bytes: head of a request and read-ahead of its body.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// The settings that all connections of a server share.
#[derive(Clone)]
pub(crate) struct ConnectionServer {
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Once cancelled, a connection ends after its last response.
    pub(crate) closing: CancellationToken,
    pub(crate) timeouts: ConnectionTimeouts,
}

impl ConnectionServer {
    /// Serves a connection until the client closes it or the table closes it for a new one.
    pub(crate) async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        connection: OpenConnection,
    ) {
        // Without TCP_NODELAY every response is delayed by 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was over before it began");
            return;
        }
        let connection = Arc::new(connection);
        let router = self.router.clone().layer(Extension(HttpPeer(peer)));
        let speaking = async {
            let Some(tls) = &self.tls else {
                return self.serve_http1(stream, &connection, router).await;
            };
            match timeout(self.timeouts.tls, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http1(stream, &connection, router).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
                Err(_) => tracing::debug!("a client took too long over TLS"),
            }
        };
        tokio::select! {
            () = speaking => {}
            () = connection.close_requested() => {}
        }
    }

    async fn serve_http1(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: &Arc<OpenConnection>,
        router: Router,
    ) {
        let stream = ObservedStream { stream, connection: Arc::clone(connection) };
        let service =
            service_fn(|request| respond(router.clone(), Arc::clone(connection), request));
        let speaking = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut speaking = std::pin::pin!(speaking);
        let ended = tokio::select! {
            ended = &mut speaking => ended,
            () = self.closing.cancelled() => {
                speaking.as_mut().graceful_shutdown();
                speaking.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Answers one request. The handlers find its `HttpExchange` in the extensions.
async fn respond(
    router: Router,
    connection: Arc<OpenConnection>,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let exchange = Arc::new(HttpExchange::new(connection));
    request.extensions_mut().insert(Arc::clone(&exchange));
    let response = TowerToHyperService::new(router).call(request).await?;
    Ok(response.map(|body: Body| GuardedBody::wrap(body, exchange)))
}

/// A stream that notifies its connection when all output has been written.
struct ObservedStream<S> {
    stream: S,
    connection: Arc<OpenConnection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // hyper flushes the stream only when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.connection.mark_flushed();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_table::ConnectionTable;
    use super::*;

    use axum::routing::get;
    use rustls::ServerConfig;
    use rustls::crypto::ring::default_provider;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_mins(1);

    /// Returns all that a client receives that sends `bytes` and waits for the server to close.
    async fn response_until_close(
        bytes: &[u8],
        tls: Option<TlsAcceptor>,
        timeouts: ConnectionTimeouts,
    ) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let connection = ConnectionTable::new(1).add().await;
        let server = ConnectionServer { router, tls, closing: CancellationToken::new(), timeouts };
        tokio::spawn(server.serve(stream, peer, connection));
        client.write_all(bytes).await.unwrap();
        let mut heard = Vec::new();
        timeout(LONG / 2, client.read_to_end(&mut heard)).await.expect("a hang-up").unwrap();
        String::from_utf8(heard).unwrap()
    }

    #[tokio::test]
    async fn s5_an_unread_response_keeps_its_connection_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let length = 64 << 20;
        let large = get(async move |Extension(exchange): Extension<Arc<HttpExchange>>| {
            assert!(exchange.admit());
            vec![b'x'; length]
        });
        let router = Router::new().route("/", large);
        let table = ConnectionTable::new(1);
        let timeouts = ConnectionTimeouts { head: LONG, tls: LONG };
        let connection = table.add().await;
        let closing = CancellationToken::new();
        let server = ConnectionServer { router, tls: None, closing, timeouts };
        tokio::spawn(server.serve(stream, peer, connection));
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut received = vec![0; 1 << 20];
        let first = client.read(&mut received).await.unwrap();
        assert!(timeout(SHORT, table.add()).await.is_err(), "it is being written");
        let (adding, read) = tokio::join!(table.add(), async {
            let mut sum = first;
            while let Ok(read @ 1..) = client.read(&mut received).await {
                sum += read;
            }
            sum
        });
        drop(adding);
        assert!(read > length, "{read}");
    }

    #[tokio::test]
    async fn j4_an_incomplete_request_head_times_out() {
        let patience = ConnectionTimeouts { head: SHORT, tls: LONG };
        assert!(
            !response_until_close(b"GET / HTTP/1.1\r\nHost: loc", None, patience)
                .await
                .contains("here")
        );
        // The limit also holds for the next request on an open connection.
        let whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /";
        assert!(response_until_close(whole, None, patience).await.contains("here"));
    }

    #[tokio::test]
    async fn j4_an_incomplete_tls_handshake_times_out() {
        let resolver = Arc::new(ResolvesServerCertUsingSni::new());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        let tls = TlsAcceptor::from(Arc::new(config));
        assert_eq!(
            response_until_close(
                b"\x16\x03",
                Some(tls),
                ConnectionTimeouts { head: LONG, tls: SHORT }
            )
            .await,
            ""
        );
    }
}
