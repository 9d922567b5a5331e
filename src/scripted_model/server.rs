//! HTTP server of the scripted model, on a thread with its own runtime.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, post};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::io::ReaderStream;

use super::messages::ScriptedMessage;
use super::reply::{self, ModelReply};
use super::script::ScriptedFailure;
use crate::util::Mutex;

/// Time between the last event of a broken stream and the reset of the connection.
const BREAK_DELAY: Duration = Duration::from_millis(100);

type SharedState = Arc<Mutex<ModelServerState>>;
type ReplyHandler = Arc<dyn Fn(&Value) -> Option<ModelReply> + Send + Sync>;

/// A scripted Messages API on 127.0.0.1; stopped when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    state: SharedState,
    /// Stops the server when dropped.
    _stop: oneshot::Sender<()>,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Path and query.
    pub path: String,
    /// Headers with names in lower case.
    pub headers: HashMap<String, String>,
    /// Size of the body.
    pub bytes: usize,
    /// Body as JSON; `null` if it is not JSON.
    pub body: Arc<Value>,
}

#[derive(Default)]
struct ModelServerState {
    requests: Vec<RecordedRequest>,
    delay: Duration,
    handler: Option<ReplyHandler>,
    /// Number of failures so far per request, by hash of its messages and metadata.
    failures: HashMap<u64, u32>,
}

impl ScriptedModel {
    /// Starts the server on a free port.
    pub fn start() -> io::Result<Self> {
        let listener = StdTcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::clone(&state));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("scripted-model".into()).spawn(move || {
            runtime.block_on(serve(listener, router, stopped));
            // Open streams must not keep the thread alive.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, state, _stop: stop })
    }

    /// Returns the value for `ANTHROPIC_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests to `/v1/messages` in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let is_message =
            |request: &RecordedRequest| request.path.split('?').next() == Some("/v1/messages");
        self.state.lock().requests.iter().filter(|request| is_message(request)).cloned().collect()
    }

    /// Returns all requests in order of arrival.
    pub fn all_requests(&self) -> Vec<RecordedRequest> {
        self.state.lock().requests.clone()
    }

    /// Delays every reply.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Calls `handler` first; the script applies if the handler returns `None`.
    pub fn set_handler(
        &self,
        handler: impl Fn(&Value) -> Option<ModelReply> + Send + Sync + 'static,
    ) {
        self.state.lock().handler = Some(Arc::new(handler));
    }
}

impl ModelServerState {
    fn record(&mut self, uri: &Uri, headers: &HeaderMap, bytes: &Bytes) -> Arc<Value> {
        let body = Arc::new(serde_json::from_slice(bytes).unwrap_or(Value::Null));
        let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        self.requests.push(RecordedRequest {
            path: uri.to_string(),
            headers: headers.collect(),
            bytes: bytes.len(),
            body: Arc::clone(&body),
        });
        body
    }

    /// Counts this attempt; returns true if it must fail.
    fn count_failure(&mut self, body: &Value, failure: ScriptedFailure) -> bool {
        let Some(times) = failure.times else { return true };
        let mut hasher = DefaultHasher::new();
        // A retry has the same messages; another session has other metadata.
        [body.get("messages"), body.get("metadata")]
            .map(|part| part.map(Value::to_string))
            .hash(&mut hasher);
        let failed = self.failures.entry(hasher.finish()).or_default();
        *failed += 1;
        *failed <= times
    }
}

async fn serve(listener: StdTcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    tokio::select! {
        _ = axum::serve(listener, router) => {}
        _ = stopped => {}
    }
}

fn router(state: SharedState) -> Router {
    Router::new()
        .route("/v1/messages", post(handle_messages))
        .route("/v1/messages/count_tokens", post(handle_count_tokens))
        .fallback(any(handle_other))
        // Prompts can have several megabytes.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

async fn handle_messages(
    State(state): State<SharedState>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let (body, delay, handler) = {
        let mut state = state.lock();
        (state.record(&uri, &headers, &bytes), state.delay, state.handler.clone())
    };
    tokio::time::sleep(delay).await;
    match choose_reply(&state, &body, handler).await {
        ModelReply::Message(message) => message_response(&message, &body),
        ModelReply::Error { status, is_final, message } => {
            http_error_response(status, is_final, message)
        }
        ModelReply::BrokenStream => broken_response(&body),
    }
}

async fn choose_reply(
    state: &Mutex<ModelServerState>,
    body: &Value,
    handler: Option<ReplyHandler>,
) -> ModelReply {
    if let Some(reply) = handler.and_then(|handler| handler(body)) {
        return reply;
    }
    let scripted = reply::next_round(body);
    tokio::time::sleep(scripted.sleep).await;
    match scripted.failure {
        Some(failure) if state.lock().count_failure(body, failure) => {
            ModelReply::Error { status: failure.status, is_final: failure.is_final, message: None }
        }
        _ => ModelReply::Message(scripted.message),
    }
}

fn message_response(message: &ScriptedMessage, body: &Value) -> Response {
    if body.get("stream").and_then(Value::as_bool) != Some(true) {
        return Json(reply::full_response(message, body)).into_response();
    }
    let (mut sink, source) = tokio::io::duplex(64 * 1024);
    let events = reply::stream_events(message, body);
    tokio::spawn(async move {
        for event in events {
            // The client closed the connection, for example after an interrupt.
            if sink.write_all(event.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(ReaderStream::new(source))).into_response()
}

/// Sends the first events and resets the connection after 100 ms.
fn broken_response(body: &Value) -> Response {
    let events = reply::stream_events(&ScriptedMessage::from_text("half of it"), body);
    let sent_before = events.into_iter().take(3).map(|event| Ok(Bytes::from(event)));
    let failure = async {
        // Let the events reach the client first.
        tokio::time::sleep(BREAK_DELAY).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    let pieces = stream::iter(sent_before).chain(stream::once(failure));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn http_error_response(status: u16, is_final: bool, message: Option<&str>) -> Response {
    let (status, body) = reply::error_response(status, message);
    let mut response = (status, Json(body)).into_response();
    if is_final {
        let no = header::HeaderValue::from_static("false");
        response.headers_mut().insert("x-should-retry", no);
    }
    response
}

async fn handle_count_tokens(
    State(state): State<SharedState>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Json<Value> {
    let body = state.lock().record(&uri, &headers, &bytes);
    Json(json!({"input_tokens": reply::estimate_tokens(&body)}))
}

async fn handle_other(
    State(state): State<SharedState>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> (StatusCode, Json<Value>) {
    state.lock().record(&uri, &headers, &bytes);
    (StatusCode::OK, Json(json!({})))
}
