//! Streamable HTTP as a stream of frames: drives rmcp's transport and keeps the text of every message.
//!
//! rmcp does sessions, resumable event streams and retries. It deserializes each message into typed structs, which drop
//! unknown fields and change the text of numbers, so that no message passes through its types: a request travels as a
//! [`CarriedFrame`] in the extensions of an empty one, and a message of the server as a string in a custom one ([`wrap_raw`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, CustomNotification, CustomRequest,
    CustomResult, ErrorData, JsonRpcMessage, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse,
    RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::http::describe_transport_error;
use crate::jsonrpc::{Frame, FrameKind, FrameSink, FrameStream, Incoming, SendError};

/// Limit of requests in flight, in bytes.
const MAX_REQUEST_BYTES: usize = 32 << 20;
/// Limit of answers in flight, in bytes, and the time after which a server that takes none is given up.
const MAX_ANSWER_BYTES: usize = 256 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that wait for the reader.
const MAX_QUEUED_MESSAGES: usize = 4;
/// Key and method name of a wrapped message; no type of rmcp has it.
const RAW_MESSAGE_KEY: &str = "adjutant/packed";
/// Set by rmcp in the `data` of the error with which it ends a request whose event stream has broken off.
const TRANSPORT_CLOSED_KEY: &str = "io.modelcontextprotocol/transportClosed";

/// A frame to send, in the extensions of an rmcp message.
#[derive(Clone)]
pub(crate) struct CarriedFrame(Arc<Frame>);

impl CarriedFrame {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Outgoing half of a connection.
pub(crate) struct HttpSink {
    queue: mpsc::UnboundedSender<(Frame, LoadGuard)>,
    load: Arc<HttpLoad>,
}

/// Incoming half of a connection. Dropping it ends the session.
pub(crate) struct HttpStream {
    messages: mpsc::Receiver<HttpMessage>,
    current: Option<String>,
}

/// Bytes that are in flight.
#[derive(Default)]
struct HttpLoad {
    requests: AtomicUsize,
    answers: AtomicUsize,
    sent: Notify,
}

/// Bytes of one frame, in flight until dropped.
struct LoadGuard {
    load: Arc<HttpLoad>,
    kind: FrameKind,
    bytes: usize,
}

enum HttpMessage {
    Text(String),
    Failed { id: u64, reason: String },
}

/// Starts a task that drives `transport` until the stream is dropped or the server ends the session.
pub(crate) fn split(transport: impl Transport<RoleClient> + 'static) -> (HttpSink, HttpStream) {
    let (queue, frames) = mpsc::unbounded_channel();
    let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    tokio::spawn(drive(transport, frames, sender));
    (HttpSink { queue, load: Arc::default() }, HttpStream { messages, current: None })
}

impl HttpLoad {
    fn bytes(&self, kind: FrameKind) -> Option<&AtomicUsize> {
        match kind {
            FrameKind::Request => Some(&self.requests),
            FrameKind::Answer => Some(&self.answers),
            FrameKind::Notification => None,
        }
    }
}

impl LoadGuard {
    fn new(load: &Arc<HttpLoad>, kind: FrameKind, bytes: usize) -> Self {
        if let Some(in_flight) = load.bytes(kind) {
            in_flight.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { load: Arc::clone(load), kind, bytes }
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        if let Some(in_flight) = self.load.bytes(self.kind) {
            in_flight.fetch_sub(self.bytes, Ordering::Relaxed);
            self.load.sent.notify_one();
        }
    }
}

impl FrameSink for HttpSink {
    fn send(&self, frame: Frame, kind: FrameKind) -> Result<(), SendError> {
        let in_flight = self.load.requests.load(Ordering::Relaxed);
        if kind == FrameKind::Request && in_flight >= MAX_REQUEST_BYTES {
            return Err(SendError::Full);
        }
        let load = LoadGuard::new(&self.load, kind, frame.as_bytes().len());
        self.queue.send((frame, load)).map_err(|_| SendError::Closed)
    }

    fn has_answer_room(&self) -> bool {
        self.load.answers.load(Ordering::Relaxed) < MAX_ANSWER_BYTES
    }

    fn wait_for_answer_room(&self) -> BoxFuture<'_, Result<(), SendError>> {
        Box::pin(async {
            while !self.has_answer_room() {
                let sent = timeout(ANSWER_TIMEOUT, self.load.sent.notified());
                sent.await.map_err(|_| SendError::Closed)?;
            }
            Ok(())
        })
    }

    /// The task ends with the stream; frames that are still queued then are lost.
    fn close(&self) {}
}

impl FrameStream for HttpStream {
    async fn receive(&mut self) -> Option<Incoming<'_>> {
        match self.messages.recv().await? {
            HttpMessage::Text(text) => Some(Incoming::Line(self.current.insert(text).as_bytes())),
            HttpMessage::Failed { id, reason } => Some(Incoming::Failed { id, reason }),
        }
    }
}

async fn drive(
    mut transport: impl Transport<RoleClient>,
    mut frames: mpsc::UnboundedReceiver<(Frame, LoadGuard)>,
    to_client: mpsc::Sender<HttpMessage>,
) {
    let mut posts = FuturesUnordered::new();
    loop {
        tokio::select! {
            queued = frames.recv() => {
                let Some((frame, load)) = queued else { break };
                if let Some((message, id)) = to_rmcp(frame) {
                    posts.push(post(transport.send(message), id, load, to_client.clone()));
                }
            }
            Some(()) = posts.next(), if !posts.is_empty() => {}
            is_open = forward_message(&mut transport, &to_client) => if !is_open { break },
        }
    }
    // The error of a POST can be the reason why the session has ended.
    while let Some(Some(())) = posts.next().now_or_never() {}
    drop(posts);
    // Deletes the session.
    let _ = transport.close().await;
}

/// Waits for the end of one POST; an error ends its request.
async fn post<E: std::error::Error>(
    sending: impl Future<Output = Result<(), E>>,
    id: Option<u64>,
    load: LoadGuard,
    to_client: mpsc::Sender<HttpMessage>,
) {
    let sent = sending.await;
    drop(load);
    if let (Err(error), Some(id)) = (sent, id) {
        let reason = describe_transport_error(&error);
        let _ = to_client.send(HttpMessage::Failed { id, reason }).await;
    }
}

/// Forwards one message; returns false at the end of the session or of the stream. Cancel-safe.
async fn forward_message(
    transport: &mut impl Transport<RoleClient>,
    to_client: &mpsc::Sender<HttpMessage>,
) -> bool {
    let Ok(place) = to_client.reserve().await else { return false };
    let Some(message) = transport.receive().await else { return false };
    let message = match message {
        JsonRpcMessage::Error(error) if is_transport_closed(&error.error) => {
            let id = match error.id {
                Some(RequestId::Number(id)) => u64::try_from(id).ok(),
                _ => None,
            };
            id.map(|id| HttpMessage::Failed { id, reason: error.error.message.into_owned() })
        }
        message => unwrap_raw(message).map(HttpMessage::Text),
    };
    if let Some(message) = message {
        place.send(message);
    }
    true
}

fn is_transport_closed(error: &ErrorData) -> bool {
    error.data.as_ref().is_some_and(|data| data.get(TRANSPORT_CLOSED_KEY).is_some())
}

/// Fields of a message that rmcp needs.
#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
}

/// Converts a frame; the second value is the id of a request. Typed are only the messages that change the state of rmcp's transport, and answers.
fn to_rmcp(frame: Frame) -> Option<(ClientJsonRpcMessage, Option<u64>)> {
    let head: MessageHead<'_> = serde_json::from_slice(frame.as_bytes()).ok()?;
    let id = head.id.and_then(|id| id.get().parse::<u64>().ok());
    let method = head.method.map(Cow::into_owned);
    let typed = |frame: &Frame| serde_json::from_slice(frame.as_bytes()).ok();
    let message = match (method, id) {
        (Some(method), Some(id)) if method != "initialize" => {
            let mut request = CustomRequest::new(method, None);
            request.extensions.insert(CarriedFrame(Arc::new(frame)));
            let id = RequestId::Number(id.cast_signed());
            JsonRpcMessage::request(ClientRequest::CustomRequest(request), id)
        }
        (Some(method), None)
            if !matches!(&*method, "notifications/initialized" | "notifications/cancelled") =>
        {
            let mut notification = CustomNotification::new(method, None);
            notification.extensions.insert(CarriedFrame(Arc::new(frame)));
            JsonRpcMessage::notification(ClientNotification::CustomNotification(notification))
        }
        (Some(_), _) => typed(&frame)?,
        (None, _) => return Some((typed(&frame)?, None)),
    };
    Some((message, id))
}

/// Wraps the text of a server's message in an rmcp message of the same kind; `None` if it is no message with an id.
pub(crate) fn wrap_raw(text: &str) -> Option<ServerJsonRpcMessage> {
    let head: MessageHead<'_> = serde_json::from_str(text).ok()?;
    let id = head.id.map(|id| serde_json::from_str::<RequestId>(id.get())).transpose().ok()?;
    let wrapped = json!({ RAW_MESSAGE_KEY: text });
    Some(match (head.method, id) {
        (Some(_), Some(id)) => {
            let request = CustomRequest::new(RAW_MESSAGE_KEY, Some(wrapped));
            JsonRpcMessage::request(ServerRequest::CustomRequest(request), id)
        }
        (Some(_), None) => {
            let notification = CustomNotification::new(RAW_MESSAGE_KEY, Some(wrapped));
            JsonRpcMessage::notification(ServerNotification::CustomNotification(notification))
        }
        (None, Some(id)) => {
            JsonRpcMessage::response(ServerResult::CustomResult(CustomResult::new(wrapped)), id)
        }
        (None, None) => return None,
    })
}

/// Returns the text of a wrapped message; any other message is serialized.
fn unwrap_raw(mut message: ServerJsonRpcMessage) -> Option<String> {
    let wrapped = match &mut message {
        JsonRpcMessage::Response(JsonRpcResponse {
            result: ServerResult::CustomResult(result),
            ..
        }) => Some(&mut result.0),
        JsonRpcMessage::Request(JsonRpcRequest {
            request: ServerRequest::CustomRequest(request),
            ..
        }) => request.params.as_mut(),
        JsonRpcMessage::Notification(JsonRpcNotification {
            notification: ServerNotification::CustomNotification(notification),
            ..
        }) => notification.params.as_mut(),
        _ => None,
    };
    match wrapped.and_then(|wrapped| wrapped.get_mut(RAW_MESSAGE_KEY)).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => serde_json::to_string(&message).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(r#"{"result": {"zeta":1e2,"content":[{"type":"hologram"}]},"id":7,"jsonrpc":"2.0"}"#; "a result")]
    #[test_case(r#"{"jsonrpc":"2.0","id":"7","error":{"code":-1,"message":"no","data":1.10}}"#; "an error")]
    #[test_case(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"n":1e400}}"#; "a request")]
    #[test_case(r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1.0}}"#; "a notification")]
    fn the_text_of_a_message_survives_rmcp(text: &str) {
        let wrapped = serde_json::to_string(&wrap_raw(text).unwrap()).unwrap();
        assert_eq!(unwrap_raw(serde_json::from_str(&wrapped).unwrap()).unwrap(), text);
    }

    #[test_case("no JSON")]
    #[test_case("[1]")]
    #[test_case(r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"},"id":null}"#; "an error without an id")]
    fn other_text_is_not_wrapped(text: &str) {
        assert!(wrap_raw(text).is_none());
    }

    #[test]
    fn a_request_travels_as_its_frame() {
        let params = crate::jsonrpc::LineJson::parse(r#"{"n":1e400}"#.to_owned()).unwrap();
        let frame = Frame::request(7, "tools/call", &params, None);
        let (message, id) = to_rmcp(frame.clone()).unwrap();
        let JsonRpcMessage::Request(request) = message else { panic!("{message:?}") };
        let ClientRequest::CustomRequest(request) = request.request else { panic!() };
        let raw = request.extensions.get::<CarriedFrame>().unwrap();
        assert_eq!((id, raw.as_bytes()), (Some(7), frame.as_bytes()));
    }
}
