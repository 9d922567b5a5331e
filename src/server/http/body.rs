//! Bodies: size and time limits of requests, responses that hold permits until they are sent, downstream results that are
//! unpacked from rmcp's responses.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Response};
use futures_util::{StreamExt, TryStreamExt};
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::refusal::HttpRefusal;
use crate::jsonrpc;
use crate::server::packed_result;

/// Size limit of a request body: 4 MiB.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;
/// Time limit of a request body; 4 MiB in 30 s need 1.1 Mbit/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the whole body. Fails if the body exceeds 4 MiB or does not arrive within 30 s.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, HttpRefusal> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if stated.is_some_and(|bytes: u64| bytes > MAX_BODY_BYTES as u64) {
        return Err(HttpRefusal::TooLarge);
    }
    collect_within(BODY_TIMEOUT, body).await
}

async fn collect_within(limit: Duration, body: Body) -> Result<Bytes, HttpRefusal> {
    timeout(limit, collect(body)).await.unwrap_or(Err(HttpRefusal::TooSlow))
}

async fn collect(body: Body) -> Result<Bytes, HttpRefusal> {
    let mut stream = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|_| HttpRefusal::TooSlow)?;
        if whole.len() + part.len() > MAX_BODY_BYTES {
            return Err(HttpRefusal::TooLarge);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}

/// A response body that owns a value until the body has been sent or the client has gone.
pub(crate) struct GuardedBody<T> {
    body: Body,
    _held: T,
}

impl<T: Send + Unpin + 'static> GuardedBody<T> {
    pub(crate) fn wrap(body: Body, held: T) -> Body {
        Body::new(Self { body, _held: held })
    }
}

impl<T: Unpin> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the response with every result exactly as its server wrote it.
pub(crate) async fn unpack_response(response: Response<Body>) -> Response<Body> {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if kind.starts_with(b"text/event-stream") {
        // Each item is one event.
        let unpack = |event: Bytes| unpack_event(&event).unwrap_or(event);
        return response.map(|body| Body::from_stream(body.into_data_stream().map_ok(unpack)));
    }
    if !kind.starts_with(b"application/json") {
        return response;
    }
    let (parts, body) = response.into_parts();
    // The body is complete: rmcp answers with one message, or with a stream.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let sealed = || jsonrpc::Frame::seal(bytes.to_vec());
    let frame = packed_result::unpack(&bytes).unwrap_or_else(sealed);
    Response::from_parts(parts, Body::from(frame.into_bytes()))
}

/// Unpacks the message of an event; `None` if nothing is packed in it.
fn unpack_event(event: &[u8]) -> Option<Bytes> {
    let mut found = false;
    let mut out = Vec::with_capacity(event.len());
    for line in event.split_inclusive(|byte| *byte == b'\n') {
        let message = line.strip_prefix(b"data:").and_then(packed_result::unpack);
        found |= message.is_some();
        match message {
            Some(message) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(message.as_bytes());
            }
            None => out.extend_from_slice(line),
        }
    }
    found.then(|| out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use futures_util::stream;

    #[tokio::test]
    async fn j4_an_incomplete_body_times_out() {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
        let slow = Body::from_stream(first.chain(stream::pending()));
        let read = collect_within(Duration::from_millis(50), slow).await;
        assert!(matches!(read, Err(HttpRefusal::TooSlow)), "{read:?}");
        let whole = collect_within(Duration::from_mins(1), Body::from("{}")).await;
        assert_eq!(whole.unwrap(), "{}");
    }

    use test_case::test_case;

    #[test_case("application/json", "{\r\n\"id\":1,\n\"result\":{}}" => "{  \"id\":1, \"result\":{}}\n"; "json")]
    #[test_case("text/plain", "a\r\nb" => "a\r\nb"; "text")]
    #[tokio::test]
    async fn a_json_body_is_one_line(kind: &str, body: &str) -> String {
        let body = Body::from(body.to_owned());
        let response = Response::builder().header(CONTENT_TYPE, kind).body(body).unwrap();
        let body = to_bytes(unpack_response(response).await.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }
}
