//! HTTP server of the scripted model, on a thread with its own runtime.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, MutexGuard};
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

type ReplyHandler = Arc<dyn Fn(&Value) -> Option<ModelReply> + Send + Sync>;

/// A scripted Messages API on 127.0.0.1; stopped when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<ModelServerState>,
    stop: Option<oneshot::Sender<()>>,
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
    inner: Mutex<ModelServerInner>,
}

#[derive(Default)]
struct ModelServerInner {
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
        let shared = Arc::new(ModelServerState::default());
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("scripted-model".into()).spawn(move || {
            runtime.block_on(serve(listener, router, stopped));
            // Open streams must not keep the thread alive.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, shared, stop: Some(stop) })
    }

    /// Returns the value for `ANTHROPIC_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests to `/v1/messages` in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let inner = self.shared.lock();
        let messages = inner.requests.iter().filter(|request| request.is_message());
        messages.cloned().collect()
    }

    /// Returns all requests in order of arrival.
    pub fn all_requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Delays every reply.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Calls `handler` first; the script applies if the handler returns `None`.
    pub fn set_handler(
        &self,
        handler: impl Fn(&Value) -> Option<ModelReply> + Send + Sync + 'static,
    ) {
        self.shared.lock().handler = Some(Arc::new(handler));
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl RecordedRequest {
    fn is_message(&self) -> bool {
        self.path.split('?').next() == Some("/v1/messages")
    }
}

impl ModelServerState {
    fn lock(&self) -> MutexGuard<'_, ModelServerInner> {
        self.inner.lock()
    }

    fn record(&self, uri: &Uri, headers: &HeaderMap, bytes: &Bytes) -> Arc<Value> {
        let body = Arc::new(serde_json::from_slice(bytes).unwrap_or(Value::Null));
        let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        self.lock().requests.push(RecordedRequest {
            path: uri.to_string(),
            headers: headers.collect(),
            bytes: bytes.len(),
            body: Arc::clone(&body),
        });
        body
    }

    /// Counts this attempt; returns true if it must fail.
    fn count_failure(&self, body: &Value, failure: ScriptedFailure) -> bool {
        let Some(times) = failure.times else { return true };
        let mut hasher = DefaultHasher::new();
        // A retry has the same messages; another session has other metadata.
        [body.get("messages"), body.get("metadata")]
            .map(|part| part.map(Value::to_string))
            .hash(&mut hasher);
        let mut inner = self.lock();
        let failed = inner.failures.entry(hasher.finish()).or_default();
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

fn router(shared: Arc<ModelServerState>) -> Router {
    Router::new()
        .route("/v1/messages", post(handle_messages))
        .route("/v1/messages/count_tokens", post(handle_count_tokens))
        .fallback(any(handle_other))
        // Prompts can have several megabytes.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

async fn handle_messages(
    State(shared): State<Arc<ModelServerState>>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let body = shared.record(&uri, &headers, &bytes);
    let (delay, handler) = {
        let inner = shared.lock();
        (inner.delay, inner.handler.clone())
    };
    tokio::time::sleep(delay).await;
    match choose_reply(&shared, &body, handler).await {
        ModelReply::Message(message) => message_response(&message, &body),
        ModelReply::Error { status, is_final, message } => {
            http_error_response(status, is_final, message)
        }
        ModelReply::BrokenStream => broken_response(&body),
    }
}

async fn choose_reply(
    shared: &ModelServerState,
    body: &Value,
    handler: Option<ReplyHandler>,
) -> ModelReply {
    if let Some(reply) = handler.and_then(|handler| handler(body)) {
        return reply;
    }
    let scripted = reply::next_step(body);
    tokio::time::sleep(scripted.sleep).await;
    match scripted.failure {
        Some(failure) if shared.count_failure(body, failure) => {
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
    State(shared): State<Arc<ModelServerState>>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Json<Value> {
    let body = shared.record(&uri, &headers, &bytes);
    Json(json!({"input_tokens": reply::estimate_tokens(&body)}))
}

async fn handle_other(
    State(shared): State<Arc<ModelServerState>>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> (StatusCode, Json<Value>) {
    shared.record(&uri, &headers, &bytes);
    (StatusCode::OK, Json(json!({})))
}
