//! The proxy between one sandbox and the Messages API, on a Unix socket.
//!
//! Accepts `POST /v1/messages` and `POST /v1/messages/count_tokens` only. The credential of the client is dropped and the
//! real one added, so that nothing inside the sandbox can use another account, and nothing inside has the key.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Response;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::http_request::{BodyLength, RequestHead};
use super::model_upstream::ModelUpstream;
use super::proxy_connection::{MAX_BODY_BYTES, ProxyAnswer, ProxyConnection, ReadError};

/// Name of the socket in its folder.
const SOCKET_NAME: &str = "model.sock";
/// Connections at once. `claude` uses one.
const MAX_CONNECTIONS: usize = 64;
/// Memory for request bodies at once, in KiB: an agent can open many connections.
const MAX_BODIES_KIB: u32 = 128 << 10;

const ENDPOINTS: [&str; 2] = ["/v1/messages", "/v1/messages/count_tokens"];
/// Headers of an answer that concern the connection to the model only.
const DROPPED: [&str; 7] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "trailer",
    "upgrade",
    "set-cookie",
];

/// A running proxy; stopped when dropped.
#[derive(Debug)]
pub struct ModelProxy {
    socket: PathBuf,
    is_bound: watch::Sender<bool>,
    task: JoinHandle<()>,
}

struct Shared {
    upstream: Arc<ModelUpstream>,
    is_bound: watch::Receiver<bool>,
    bodies: Semaphore,
}

impl ModelProxy {
    /// Listens on `model.sock` in `folder`, which only this user may enter. Answers 403 until a run is bound.
    ///
    /// Must be called in a runtime.
    pub fn start(folder: &Path, upstream: Arc<ModelUpstream>) -> io::Result<Self> {
        let socket = folder.join(SOCKET_NAME);
        let listener = UnixListener::bind(&socket)?;
        let (is_bound, bound) = watch::channel(false);
        let bodies = Semaphore::new(MAX_BODIES_KIB as usize);
        let shared = Arc::new(Shared { upstream, is_bound: bound, bodies });
        let task = tokio::spawn(accept(listener, shared));
        Ok(Self { socket, is_bound, task })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Binds the process behind the proxy to a run, or releases it: then requests that are being answered are cut off.
    pub fn set_bound(&self, is_bound: bool) {
        self.is_bound.send_replace(is_bound);
    }
}

impl Drop for ModelProxy {
    fn drop(&mut self) {
        // Ends the connections, too: they belong to the task.
        self.task.abort();
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&shared)));
                }
                // Out of descriptors: they become free when connections end.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers the requests of one connection, one after the other.
async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    let mut connection = ProxyConnection::new(stream);
    loop {
        let head = match connection.read_head().await {
            Ok(Some(head)) => head,
            Err(ReadError::Bad(why)) => {
                let _ = connection.write_error(&ProxyAnswer::bad_request(why), "", true).await;
                return;
            }
            Ok(None) | Err(ReadError::Io(_)) => return,
        };
        match answer(&mut connection, &head, &shared).await {
            Ok(Next::KeepOpen) if !head.wants_close() => {}
            _ => return,
        }
    }
}

enum Next {
    KeepOpen,
    Close,
}

async fn answer(
    connection: &mut ProxyConnection,
    head: &RequestHead,
    shared: &Shared,
) -> io::Result<Next> {
    let refuse = async |connection: &mut ProxyConnection, answer: ProxyAnswer, next: Next| {
        let close = matches!(next, Next::Close);
        connection.write_error(&answer, &head.method, close).await.map(|()| next)
    };
    if !is_allowed(head) {
        // The body of a refused request is not read.
        let next = if head.body == BodyLength::Known(0) { Next::KeepOpen } else { Next::Close };
        let answer = ProxyAnswer::forbidden("only POST /v1/messages is allowed in this sandbox");
        return refuse(connection, answer, next).await;
    }
    let permits = match head.body {
        BodyLength::Known(length) => length.min(MAX_BODY_BYTES).div_ceil(1024),
        BodyLength::Chunked => MAX_BODY_BYTES / 1024,
    };
    let permits =
        shared.bodies.acquire_many(u32::try_from(permits).unwrap_or(MAX_BODIES_KIB)).await;
    let body = match connection.read_body(head.body).await {
        Ok(body) => body,
        Err(ReadError::Io(error)) => return Err(error),
        Err(ReadError::Bad(why)) => {
            return refuse(connection, ProxyAnswer::bad_request(why), Next::Close).await;
        }
    };
    let mut is_bound = shared.is_bound.clone();
    if !*is_bound.borrow_and_update() {
        let answer = ProxyAnswer::forbidden("no run is active in this sandbox");
        return refuse(connection, answer, Next::KeepOpen).await;
    }
    let sent = tokio::select! {
        sent = request(&shared.upstream, head, body) => sent,
        () = connection.closed() => return Ok(Next::Close),
        _ = is_bound.wait_for(|is_bound| !is_bound) => return Ok(Next::Close),
    };
    drop(permits);
    match sent {
        Ok(response) => forward(connection, response, is_bound).await,
        Err(answer) => refuse(connection, answer, Next::KeepOpen).await,
    }
}

/// Returns true for the endpoints that a run needs, spelled as `claude` spells them.
fn is_allowed(head: &RequestHead) -> bool {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    head.method == "POST"
        && ENDPOINTS.contains(&path)
        && (head.target == path || query == "beta=true")
}

async fn request(
    upstream: &ModelUpstream,
    head: &RequestHead,
    body: Vec<u8>,
) -> Result<Response, ProxyAnswer> {
    let credential = upstream.credential.headers().await.map_err(ProxyAnswer::unauthorized)?;
    let sent = upstream.send(head, body, credential).await;
    let response = sent.map_err(|why| {
        tracing::warn!(why, "the model could not be reached");
        // The reason may name hosts and proxies outside; the agent does not need it.
        ProxyAnswer::bad_gateway("the model could not be reached".to_owned())
    })?;
    if response.status().as_u16() == 401 {
        upstream.credential.was_refused().await;
    }
    Ok(response)
}

/// Writes the response as it arrives. If the model or the client ends early, both connections are closed.
async fn forward(
    connection: &mut ProxyConnection,
    mut response: Response,
    mut is_bound: watch::Receiver<bool>,
) -> io::Result<Next> {
    connection.write(&response_head(&response)).await?;
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk,
            () = connection.closed() => return Ok(Next::Close),
            _ = is_bound.wait_for(|is_bound| !is_bound) => return Ok(Next::Close),
        };
        match chunk {
            // An empty chunk would be read as the end.
            Ok(Some(data)) if data.is_empty() => {}
            Ok(Some(data)) => connection.write_chunk(&data).await?,
            Ok(None) => {
                connection.write(b"0\r\n\r\n").await?;
                return Ok(Next::KeepOpen);
            }
            Err(_) => return Ok(Next::Close),
        }
    }
}

fn response_head(response: &Response) -> Vec<u8> {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in response.headers() {
        if !DROPPED.contains(&name.as_str()) && !name.as_str().starts_with("proxy-") {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("POST", "/v1/messages" => true)]
    #[test_case("POST", "/v1/messages?beta=true" => true; "with the beta query")]
    #[test_case("POST", "/v1/messages/count_tokens?beta=true" => true; "count tokens")]
    #[test_case("GET", "/v1/messages" => false; "other method")]
    #[test_case("HEAD", "/" => false; "probe of 2.1.197")]
    #[test_case("POST", "/v1/messages/batches" => false; "batches")]
    #[test_case("POST", "/v1/messages/" => false; "slash at the end")]
    #[test_case("POST", "/v1//messages" => false; "two slashes")]
    #[test_case("POST", "/v1/../v1/messages" => false; "dots")]
    #[test_case("POST", "/v1%2fmessages" => false; "percent-encoding")]
    #[test_case("POST", "/v1/messages?" => false; "empty query")]
    #[test_case("POST", "/v1/messages?beta=true&x=1" => false; "longer query")]
    #[test_case("POST", "/V1/messages" => false; "other case")]
    #[test_case("POST", "/v1/files" => false; "files")]
    fn only_two_endpoints_are_allowed(method: &str, target: &str) -> bool {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        is_allowed(&RequestHead::parse(head.as_bytes()).unwrap())
    }
}
