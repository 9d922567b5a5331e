//! The HTTP side: a server on a thread of its own, so that any test can have one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

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

use super::messages::Message;
use super::reply::{self, Reply};
use super::script::Failure;

/// Between the last word of a stream that breaks off and its end.
const BEFORE_THE_END: Duration = Duration::from_millis(100);

type Handler = Arc<dyn Fn(&Value) -> Option<Reply> + Send + Sync>;

/// A scripted Messages API on loopback; it ends when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
}

/// A request that came in.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Its path and query.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: HashMap<String, String>,
    /// How many bytes its body had.
    pub bytes: usize,
    /// Its body; `null` where that is no JSON.
    pub body: Arc<Value>,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    requests: Vec<RecordedRequest>,
    delay: Duration,
    handler: Option<Handler>,
    /// How often each request that shall fail has failed already.
    failures: HashMap<u64, u32>,
}

impl ScriptedModel {
    /// Starts on a free port of 127.0.0.1.
    pub fn start() -> io::Result<Self> {
        let listener = StdTcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("scripted-model".into()).spawn(move || {
            runtime.block_on(serve(listener, router, stopped));
            // Streams that somebody still holds must not keep the thread.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, shared, stop: Some(stop) })
    }

    /// For `ANTHROPIC_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests for messages so far, in the order they came.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let inner = self.shared.lock();
        let messages = inner.requests.iter().filter(|request| request.is_message());
        messages.cloned().collect()
    }

    /// Everything that was asked so far.
    pub fn all_requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Waits this long before every answer.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Asks `handler` first; where it has no reply, the script decides.
    pub fn set_handler(&self, handler: impl Fn(&Value) -> Option<Reply> + Send + Sync + 'static) {
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether this request has to fail once more.
    fn fails(&self, body: &Value, failure: Failure) -> bool {
        let Some(times) = failure.times else { return true };
        let mut hasher = DefaultHasher::new();
        // A second attempt has the same messages; another conversation another session.
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

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/messages", post(answer))
        .route("/v1/messages/count_tokens", post(count))
        .fallback(any(anything))
        // A prompt may have megabytes.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

async fn answer(
    State(shared): State<Arc<Shared>>,
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
    match decide(&shared, &body, handler).await {
        Reply::Message(message) => respond(&message, &body),
        Reply::Error { status, is_final, message } => fail(status, is_final, message),
        Reply::BrokenOff => break_off(&body),
    }
}

async fn decide(shared: &Shared, body: &Value, handler: Option<Handler>) -> Reply {
    if let Some(reply) = handler.and_then(|handler| handler(body)) {
        return reply;
    }
    let scripted = reply::follow(body);
    tokio::time::sleep(scripted.sleep).await;
    match scripted.failure {
        Some(failure) if shared.fails(body, failure) => {
            Reply::Error { status: failure.status, is_final: failure.is_final, message: None }
        }
        _ => Reply::Message(scripted.message),
    }
}

fn respond(message: &Message, body: &Value) -> Response {
    if body.get("stream").and_then(Value::as_bool) != Some(true) {
        return Json(reply::whole(message, body)).into_response();
    }
    let (mut sink, source) = tokio::io::duplex(64 * 1024);
    let events = reply::events(message, body);
    tokio::spawn(async move {
        for event in events {
            // The client went away: an interrupted turn does that.
            if sink.write_all(event.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(ReaderStream::new(source))).into_response()
}

/// The beginning of a stream, and then the end of the connection.
fn break_off(body: &Value) -> Response {
    let events = reply::events(&Message::saying("half of it"), body);
    let begun = events.into_iter().take(3).map(|event| Ok(Bytes::from(event)));
    let broken = async {
        // What was said goes out first.
        tokio::time::sleep(BEFORE_THE_END).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    let pieces = stream::iter(begun).chain(stream::once(broken));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn fail(status: u16, is_final: bool, message: Option<&str>) -> Response {
    let (status, body) = reply::error(status, message);
    let mut response = (status, Json(body)).into_response();
    if is_final {
        let no = header::HeaderValue::from_static("false");
        response.headers_mut().insert("x-should-retry", no);
    }
    response
}

async fn count(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Json<Value> {
    let body = shared.record(&uri, &headers, &bytes);
    Json(json!({"input_tokens": reply::count_tokens(&body)}))
}

async fn anything(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> (StatusCode, Json<Value>) {
    shared.record(&uri, &headers, &bytes);
    (StatusCode::OK, Json(json!({})))
}
