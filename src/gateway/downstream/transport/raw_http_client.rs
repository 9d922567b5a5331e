//! HTTP client for rmcp's Streamable HTTP transport that keeps the text of messages, limits their
//! size and sends the access token.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::http_post::{HttpPost, PostError, remove_url, unexpected_response};
use super::http_stream::wrap_raw;
use crate::gateway::oauth::TokenSource;

/// Maximum size of a message from a server; same limit as rmcp.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

type RequestHeaders = HashMap<HeaderName, HeaderValue>;
pub(crate) type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// HTTP client that wraps messages and sends the access token with every request.
#[derive(Clone)]
pub(crate) struct RawHttpClient {
    pub(crate) http: reqwest::Client,
    /// `None` if the entry has an `Authorization` header of its own, which takes precedence.
    pub(crate) token_source: Option<Arc<TokenSource>>,
}

impl RawHttpClient {
    /// Sends a request with the current token, and once more with a new token after a 401.
    async fn send_with_token<T, F, Sending>(&self, request: F) -> Result<T, PostError>
    where
        F: Fn(Option<String>) -> Sending,
        Sending: Future<Output = Result<T, PostError>>,
    {
        let Some(token_source) = &self.token_source else { return request(None).await };
        let token = token_source.token().await.map_err(unexpected_response)?;
        let mut result = request(token.clone()).await;
        if let (true, Some(token)) = (is_unauthorized(&result), &token) {
            let another = token_source.replace_rejected(token).await;
            if let Some(another) = another.map_err(unexpected_response)? {
                result = request(Some(another)).await;
            }
        }
        match &result {
            Err(StreamableHttpError::InsufficientScope(said)) => {
                token_source.note_missing_scope(said.get_required_scope());
            }
            refused if is_unauthorized(refused) => token_source.note_sign_in_needed(),
            _ => {}
        }
        result
    }
}

/// Returns true for a 401, also without a `WWW-Authenticate` header.
fn is_unauthorized<T>(result: &Result<T, PostError>) -> bool {
    match result {
        Err(StreamableHttpError::AuthRequired(_)) => true,
        Err(StreamableHttpError::UnexpectedServerResponse(text)) => text.starts_with("HTTP 401"),
        Err(StreamableHttpError::Client(error)) => error.status() == Some(StatusCode::UNAUTHORIZED),
        _ => false,
    }
}

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
    let wrapped = |mut event: Sse| {
        let raw = event.data.as_deref().and_then(wrap_raw);
        event.data = raw.and_then(|raw| serde_json::to_string(&raw).ok()).or(event.data);
        event
    };
    events.map(move |event| event.map(wrapped)).boxed()
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
    if let StreamableHttpError::Client(error) = problem { remove_url(error) } else { problem }
}

impl StreamableHttpClient for RawHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: RequestHeaders,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let most = MAX_MESSAGE_BYTES;
        self.post_message_with_max_sse_event_size(uri, message, session, auth, headers, most).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: RequestHeaders,
        max_bytes: usize,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let session = session.map(|id| HeaderValue::from_str(&id)).transpose();
        let session = session.map_err(|_| unexpected_response("a bad session id".to_owned()))?;
        let headers: HeaderMap = headers.into_iter().collect();
        self.send_with_token(|token| {
            let (message, session, headers) = (message.clone(), session.clone(), headers.clone());
            HttpPost { message, session, token, headers, max_bytes }.send(&self.http, &uri)
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: RequestHeaders,
    ) -> Result<(), PostError> {
        self.send_with_token(|token| {
            let (uri, session) = (Arc::clone(&uri), Arc::clone(&session));
            let deleting = self.http.delete_session(uri, session, token, headers.clone());
            async { deleting.await.map_err(remove_url_from) }
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: RequestHeaders,
    ) -> Result<EventStream, PostError> {
        let most = MAX_MESSAGE_BYTES;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, most).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        headers: RequestHeaders,
        max_bytes: usize,
    ) -> Result<EventStream, PostError> {
        self.send_with_token(|token| {
            let opening = self.http.get_stream_with_max_sse_event_size(
                Arc::clone(&uri),
                session.clone(),
                last_event.clone(),
                token,
                headers.clone(),
                max_bytes,
            );
            async { opening.await.map(wrap_events).map_err(remove_url_from) }
        })
        .await
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
