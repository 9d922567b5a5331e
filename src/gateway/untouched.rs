//! Results over Streamable HTTP as their server wrote them.
//!
//! rmcp reads an event stream's messages into typed values and drops what the types do not know. Here each result is
//! packed under a key that no type has before rmcp sees it, and unpacked behind it. (A server that answers without an
//! event stream is read by rmcp alone: what is outside of the protocol is lost there.)

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::{Map, Value};
use sse_stream::Sse;

/// What a packed result is packed under.
const PACKED: &str = "adjutant/packed";

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The client `C`, with results left as they are.
#[derive(Clone)]
pub(super) struct Untouched<C>(pub(super) C);

/// A result as its server wrote it, if it was packed.
pub(super) fn unpacked(mut result: Value) -> Value {
    let packed = result.as_object_mut().and_then(|object| object.get_mut(PACKED)).map(Value::take);
    packed.unwrap_or(result)
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

/// A message with its result packed; anything else as it is.
fn packed(data: String) -> String {
    let Ok(Value::Object(mut message)) = serde_json::from_str::<Value>(&data) else { return data };
    let Some(result) = message.get_mut("result") else { return data };
    *result = Value::Object(Map::from_iter([(PACKED.to_owned(), result.take())]));
    Value::Object(message).to_string()
}

/// The handshake is rmcp's own and stays typed.
fn is_handshake(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

fn pack_response(
    response: StreamableHttpPostResponse,
    handshake: bool,
) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Sse(events, session) if !handshake => {
            StreamableHttpPostResponse::Sse(packed_events(events), session)
        }
        other => other,
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Untouched<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Self::Error>> {
        let handshake = is_handshake(&message);
        let posting = self.0.post_message(uri, message, session_id, auth_header, custom_headers);
        posting.await.map(|response| pack_response(response, handshake))
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Self::Error>> {
        let handshake = is_handshake(&message);
        let posting = self.0.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            largest,
        );
        posting.await.map(|response| pack_response(response, handshake))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), StreamableHttpError<Self::Error>> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Events, StreamableHttpError<Self::Error>> {
        let opening =
            self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers);
        opening.await.map(packed_events)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        largest: usize,
    ) -> Result<Events, StreamableHttpError<Self::Error>> {
        let opening = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            largest,
        );
        opening.await.map(packed_events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ServerJsonRpcMessage, ServerResult};
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
}
