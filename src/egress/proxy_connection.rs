//! The server side of one HTTP/1.1 connection on a Unix socket.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::http_request::{BadRequest, BodyLength, MAX_HEAD_BYTES, RequestHead, parse_chunk_size};

/// Limit of a body. The Messages API accepts 32 MB.
pub(crate) const MAX_BODY_BYTES: u64 = 64 << 20;
/// Data that a client may send ahead while its request is answered.
const MAX_READ_AHEAD: usize = MAX_HEAD_BYTES;

pub(crate) struct ProxyConnection {
    stream: UnixStream,
    /// Bytes received and not used yet.
    received: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Bad(#[from] BadRequest),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ProxyConnection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Reads the next head; `None` if the client closed the connection before it.
    pub(crate) async fn read_head(&mut self) -> Result<Option<RequestHead>, ReadError> {
        let mut searched = 0;
        loop {
            let rest = self.received.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memmem::find(rest, b"\r\n\r\n") {
                let head = self.take(searched + at + 4);
                return Ok(Some(RequestHead::parse(&head)?));
            }
            // A head without CR would never end: it is refused as soon as it is seen.
            let has_bare_line_feed =
                |pair: &[u8]| matches!(pair, [first, b'\n'] if *first != b'\r');
            if self.received.first() == Some(&b'\n') || rest.windows(2).any(has_bare_line_feed) {
                return Err(BadRequest("a line does not end with CRLF").into());
            }
            if self.received.len() > MAX_HEAD_BYTES {
                return Err(BadRequest("the head is longer than 64 KiB").into());
            }
            searched = self.received.len().saturating_sub(3);
            match self.fill().await? {
                0 if self.received.is_empty() => return Ok(None),
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                _ => {}
            }
        }
    }

    /// Reads the body of a request, at most 64 MiB.
    pub(crate) async fn read_body(&mut self, length: BodyLength) -> Result<Vec<u8>, ReadError> {
        match length {
            BodyLength::Known(length) if length > MAX_BODY_BYTES => {
                Err(BadRequest("the body is longer than 64 MiB").into())
            }
            BodyLength::Known(length) => Ok(self.read_exact(length).await?),
            BodyLength::Chunked => self.read_chunks().await,
        }
    }

    async fn read_chunks(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let size = parse_chunk_size(&self.read_chunk_line().await?)?;
            if body.len() as u64 + size > MAX_BODY_BYTES {
                return Err(BadRequest("the body is longer than 64 MiB").into());
            }
            body.append(&mut self.read_exact(size).await?);
            if self.read_exact(2).await? != b"\r\n" {
                return Err(BadRequest("a chunk is longer than its size, or has trailers").into());
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Reads a line of at most eight characters and CRLF.
    async fn read_chunk_line(&mut self) -> Result<Vec<u8>, ReadError> {
        loop {
            if let Some(end) = self.received.iter().take(10).position(|byte| *byte == b'\n') {
                let line = self.take(end + 1);
                let line = line.strip_suffix(b"\r\n");
                return Ok(line.ok_or(BadRequest("a line does not end with CRLF"))?.to_vec());
            }
            if self.received.len() >= 10 {
                return Err(BadRequest("the size of a chunk is not a hexadecimal number").into());
            }
            self.fill_or_fail().await?;
        }
    }

    async fn read_exact(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        while self.received.len() < length {
            self.fill_or_fail().await?;
        }
        Ok(self.take(length))
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let rest = self.received.split_off(length.min(self.received.len()));
        std::mem::replace(&mut self.received, rest)
    }

    async fn fill_or_fail(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.received).await
    }

    /// Waits until the client closes the connection. Cancel-safe.
    ///
    /// What it sends meanwhile is kept for the next request; a client that sends more than 64 KiB ahead is not watched
    /// any more.
    pub(crate) async fn closed(&mut self) {
        while self.received.len() < MAX_READ_AHEAD {
            if self.fill().await.unwrap_or(0) == 0 {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    pub(crate) async fn write_chunk(&mut self, data: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        self.write(&chunk).await
    }

    /// Writes a complete answer of the proxy itself, in the form of an error of the Messages API.
    pub(crate) async fn write_error(
        &mut self,
        answer: &ProxyAnswer,
        method: &str,
        close: bool,
    ) -> io::Result<()> {
        let body = serde_json::json!({
            "type": "error",
            "error": {"type": answer.kind, "message": answer.message},
        });
        let body = body.to_string();
        let connection = if close { "connection: close\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{connection}\r\n",
            answer.status,
            answer.reason,
            body.len()
        );
        let body = if method == "HEAD" { "" } else { &body };
        self.write(format!("{head}{body}").as_bytes()).await
    }
}

/// An answer that does not come from the model.
#[derive(Debug)]
pub(crate) struct ProxyAnswer {
    status: u16,
    reason: &'static str,
    kind: &'static str,
    message: String,
}

impl ProxyAnswer {
    pub(crate) fn bad_request(why: BadRequest) -> Self {
        Self {
            status: 400,
            reason: "Bad Request",
            kind: "invalid_request_error",
            message: why.to_string(),
        }
    }

    pub(crate) fn forbidden(message: &str) -> Self {
        Self {
            status: 403,
            reason: "Forbidden",
            kind: "permission_error",
            message: message.to_owned(),
        }
    }

    /// The login outside cannot be used: `claude` does not try again.
    pub(crate) fn unauthorized(message: String) -> Self {
        Self { status: 401, reason: "Unauthorized", kind: "authentication_error", message }
    }

    /// The model cannot be reached: `claude` tries again.
    pub(crate) fn bad_gateway(message: String) -> Self {
        Self { status: 502, reason: "Bad Gateway", kind: "api_error", message }
    }
}
