//! Answers on their way out: results that travel in a parcel are taken out of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use hyper::body::Frame;

use crate::server::raw_results::unpacked;

/// The same answer, with every result as its server wrote it.
pub(super) async fn unpack(response: Response<Body>) -> Response<Body> {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if kind.starts_with(b"text/event-stream") {
        return response.map(|body| Body::new(Unpacking(body)));
    }
    if !kind.starts_with(b"application/json") {
        return response;
    }
    let (parts, body) = response.into_parts();
    // It is whole already: rmcp answers with one message, or with a stream.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    Response::from_parts(parts, Body::from(unpacked(&bytes).unwrap_or(bytes)))
}

/// A stream of events; each of them is one frame.
struct Unpacking(Body);

impl HttpBody for Unpacking {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.0).poll_frame(context);
        frame.map_ok(|frame| frame.map_data(|event| unpack_event(&event).unwrap_or(event)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// An event with its message unpacked; `None` where nothing was packed.
fn unpack_event(event: &[u8]) -> Option<Bytes> {
    let mut found = false;
    let mut out = Vec::with_capacity(event.len());
    for line in event.split_inclusive(|byte| *byte == b'\n') {
        let message = line.strip_prefix(b"data:").and_then(unpacked);
        found |= message.is_some();
        match message {
            Some(message) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&message);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    found.then(|| out.into())
}
