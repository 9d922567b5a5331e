//! HTTP client for rmcp's Streamable HTTP transport that keeps the text of messages and limits their size.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Response;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::http_post::{HttpPost, PostError, remove_url};
use super::http_stream::wrap_raw;

/// Maximum size of a message from a server; same limit as rmcp.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

type ResponseHeaders = HashMap<HeaderName, HeaderValue>;
pub(crate) type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// HTTP client that wraps messages.
#[derive(Clone)]
pub(crate) struct RawHttpClient(pub(crate) reqwest::Client);

/// Returns the events of a response; fails if one is larger than `largest` bytes.
pub(crate) fn raw_event_stream(response: Response, largest: usize) -> EventStream {
    let mut size = EventSizeLimit::new(largest);
    let bytes = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| io::Error::other(error.without_url()))?;
        size.observe(&piece)?;
        Ok::<_, io::Error>(piece)
    });
    SseStream::from_bytes_stream(bytes).boxed()
}

/// Like [`raw_event_stream`], with wrapped messages.
pub(crate) fn event_stream(response: Response, largest: usize, wrap: bool) -> EventStream {
    let events = raw_event_stream(response, largest);
    if wrap { wrap_events(events) } else { events }
}

fn wrap_events(events: EventStream) -> EventStream {
    events
        .map(|event| {
            event.map(|mut event| {
                let wrapped = event.data.as_deref().and_then(wrap_raw);
                if let Some(text) = wrapped.and_then(|raw| serde_json::to_string(&raw).ok()) {
                    event.data = Some(text);
                }
                event
            })
        })
        .boxed()
}

/// Measures the size of events in a byte stream whose lines end in CR, LF or CRLF.
struct EventSizeLimit {
    max_bytes: usize,
    line_bytes: usize,
    event_bytes: usize,
    /// Set after CR: an LF that follows belongs to the same line end.
    after_cr: bool,
}

impl EventSizeLimit {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, line_bytes: 0, event_bytes: 0, after_cr: false }
    }

    fn observe(&mut self, piece: &[u8]) -> io::Result<()> {
        for byte in piece {
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                // An empty line ends an event.
                b'\n' | b'\r' if self.line_bytes == 0 => self.event_bytes = 0,
                b'\n' | b'\r' => self.line_bytes = 0,
                _ => {
                    (self.line_bytes, self.event_bytes) =
                        (self.line_bytes + 1, self.event_bytes + 1);
                }
            }
            if self.event_bytes > self.max_bytes {
                let sentence = format!("an event is larger than {} bytes", self.max_bytes);
                return Err(io::Error::other(sentence));
            }
        }
        Ok(())
    }
}

/// Removes the URL from an error.
fn remove_url_from(problem: PostError) -> PostError {
    match problem {
        StreamableHttpError::Client(error) => remove_url(error),
        other => other,
    }
}

impl StreamableHttpClient for RawHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: ResponseHeaders,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MAX_MESSAGE_BYTES,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: ResponseHeaders,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let malformed =
            |_| StreamableHttpError::UnexpectedServerResponse("a bad session id".into());
        let session = session_id.map(|id| HeaderValue::from_str(&id)).transpose();
        let post = HttpPost {
            message,
            session: session.map_err(malformed)?,
            token: auth_header,
            headers: custom_headers.into_iter().collect(),
            max_bytes: largest,
        };
        post.send(&self.0, &uri).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: ResponseHeaders,
    ) -> Result<(), PostError> {
        let deleted = self.0.delete_session(uri, session_id, auth_header, custom_headers);
        deleted.await.map_err(remove_url_from)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: ResponseHeaders,
    ) -> Result<EventStream, PostError> {
        let opening =
            self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers);
        opening.await.map(wrap_events).map_err(remove_url_from)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: ResponseHeaders,
        largest: usize,
    ) -> Result<EventStream, PostError> {
        let opening = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            largest,
        );
        opening.await.map(wrap_events).map_err(remove_url_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("\r\n"; "CRLF")]
    #[test_case("\n"; "LF")]
    #[test_case("\r"; "CR")]
    fn the_size_of_events_is_limited_but_not_of_streams(line_end: &str) {
        let mut size = EventSizeLimit::new(10);
        let line = |text: &str| [text, line_end].concat().into_bytes();
        for _ in 0..100 {
            size.observe(&line("data: ab")).unwrap();
            size.observe(line_end.as_bytes()).unwrap();
        }
        size.observe(&line("data: ab")).unwrap();
        assert!(size.observe(&line("data: cd")).is_err(), "two lines of one event");
    }
}
