//! Results over Streamable HTTP as their server wrote them.
//!
//! rmcp reads messages into typed values and drops what the types do not know. Here each result is packed under a
//! key that no type has before rmcp sees it, and unpacked behind it.

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
use serde_json::{Map, Value};
use sse_stream::{Sse, SseStream};

use super::post::{Post, Problem, without_address};

/// What a packed result is packed under.
const PACKED: &str = "adjutant/packed";
/// The largest message that is taken from a server; rmcp's own limit.
const MAX_MESSAGE: usize = 16 << 20;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// An HTTP client that leaves results as they are.
#[derive(Clone)]
pub(super) struct Untouched(pub(super) reqwest::Client);

/// A result as its server wrote it, if it was packed.
pub(super) fn unpacked(mut result: Value) -> Value {
    let packed = result.as_object_mut().and_then(|object| object.get_mut(PACKED)).map(Value::take);
    packed.unwrap_or(result)
}

/// A message with its result packed; anything else as it is.
pub(super) fn packed(data: String) -> String {
    let Ok(Value::Object(mut message)) = serde_json::from_str::<Value>(&data) else { return data };
    let Some(result) = message.get_mut("result") else { return data };
    *result = Value::Object(Map::from_iter([(PACKED.to_owned(), result.take())]));
    Value::Object(message).to_string()
}

/// The events of an answer, none of them larger than `largest`.
pub(super) fn event_stream(response: Response, largest: usize, pack: bool) -> Events {
    let mut size = EventSize { largest, line: 0, event: 0 };
    let bytes = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| io::Error::other(error.without_url()))?;
        size.observe(&piece)?;
        Ok::<_, io::Error>(piece)
    });
    let events = SseStream::from_bytes_stream(bytes).boxed();
    if pack { packed_events(events) } else { events }
}

fn packed_events(events: Events) -> Events {
    events
        .map(|event| {
            event.map(|mut event| {
                event.data = event.data.map(packed);
                event
            })
        })
        .boxed()
}

/// Measures events while they come in.
struct EventSize {
    largest: usize,
    line: usize,
    event: usize,
}

impl EventSize {
    fn observe(&mut self, piece: &[u8]) -> io::Result<()> {
        for byte in piece {
            match byte {
                // An empty line ends an event.
                b'\n' if self.line == 0 => self.event = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => (self.line, self.event) = (self.line + 1, self.event + 1),
            }
            if self.event > self.largest {
                let sentence = format!("an event is larger than {} bytes", self.largest);
                return Err(io::Error::other(sentence));
            }
        }
        Ok(())
    }
}

/// A problem that names no address.
fn discreet(problem: Problem) -> Problem {
    match problem {
        StreamableHttpError::Client(error) => without_address(error),
        other => other,
    }
}

impl StreamableHttpClient for Untouched {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MAX_MESSAGE,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        let malformed =
            |_| StreamableHttpError::UnexpectedServerResponse("a bad session id".into());
        let session = session_id.map(|id| HeaderValue::from_str(&id)).transpose();
        let post = Post {
            message,
            session: session.map_err(malformed)?,
            token: auth_header,
            headers: custom_headers.into_iter().collect(),
            largest,
        };
        post.send(&self.0, &uri).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Problem> {
        let deleted = self.0.delete_session(uri, session_id, auth_header, custom_headers);
        deleted.await.map_err(discreet)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Events, Problem> {
        let opening =
            self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers);
        opening.await.map(packed_events).map_err(discreet)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        largest: usize,
    ) -> Result<Events, Problem> {
        let opening = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            largest,
        );
        opening.await.map(packed_events).map_err(discreet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
    use serde_json::json;

    #[test]
    fn a_packed_result_survives_the_types() {
        let written = json!({"jsonrpc": "2.0", "id": 7, "result": {
            "content": [{"type": "hologram", "depth": 3}], "zeta": 1, "isError": false,
        }});
        let message: ServerJsonRpcMessage =
            serde_json::from_str(&packed(written.to_string())).unwrap();
        let JsonRpcMessage::Response(response) = message else { panic!("{message:?}") };
        let ServerResult::CustomResult(raw) = response.result else { panic!("typed") };
        assert_eq!(unpacked(raw.0).to_string(), written["result"].to_string());
    }

    #[test]
    fn what_is_no_result_stays() {
        for data in ["no JSON", "[1]", r#"{"jsonrpc":"2.0","method":"notifications/x"}"#] {
            assert_eq!(packed(data.to_owned()), data);
        }
    }

    #[test]
    fn an_event_is_bounded_and_a_stream_is_not() {
        let mut size = EventSize { largest: 10, line: 0, event: 0 };
        for _ in 0..100 {
            size.observe(b"data: ab\r\n\r\n").unwrap();
        }
        size.observe(b"data: ab\n").unwrap();
        assert!(size.observe(b"data: cd\n").is_err(), "two lines of one event");
    }
}
