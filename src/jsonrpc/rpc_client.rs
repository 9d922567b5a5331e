//! Client role of JSON-RPC: pending requests, deadlines, cancellation, progress.
//!
//! A request is an entry in a map, not a task: a task with its timer and channels costs about 3 µs per call. Its callback
//! runs exactly once, on the task that reads the response. One timer per connection ends requests whose deadline has
//! passed or that were cancelled; the end of the stream ends all of them with [`RpcClientError::Gone`].

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use memchr::memmem;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, LineJson};
use super::message::Id;
use super::peer_message::{PeerMessage, RpcError};
use crate::util::{Mutex, RateLimiter};

/// Shortest and longest time between two checks of the pending requests.
///
/// The time grows with the age of the youngest request, so that a call of ten minutes does not cost 100 wake-ups a second.
const CHECK_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Limit for unsolicited messages of a peer: 200 per 100 ms.
const MAX_UNSOLICITED_MESSAGES: u32 = 200;
const UNSOLICITED_WINDOW: Duration = Duration::from_millis(100);
/// Largest id, 2^53 − 1: JavaScript servers read numbers as doubles.
const MAX_REQUEST_ID: u64 = (1 << 53) - 1;
const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";

/// Response to one request.
pub(crate) type RpcOutcome = Result<LineJson, RpcClientError>;
/// Receives the response; called exactly once, never while a lock is held.
pub(crate) type OnReply = Box<dyn FnOnce(RpcOutcome) + Send>;
/// Receives the `params` of progress notifications, in order.
pub(crate) type OnProgress = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Reason why a request has no result.
#[derive(Debug)]
pub(crate) enum RpcClientError {
    /// JSON-RPC error of the peer.
    ErrorResponse(RpcError),
    /// Response that cannot be used, with the reason.
    InvalidResponse(&'static str),
    /// The transport could not deliver the request or its response, with the reason.
    TransportFailed(String),
    /// The peer does not read: 32 MiB of requests wait for it.
    QueueFull,
    /// The deadline passed; the peer was told.
    Timeout,
    /// Cancelled by the caller; the peer was told.
    Cancelled,
    /// The connection has ended.
    Gone,
}

/// Kinds of frames, which have different limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Request,
    Notification,
    /// Response to a request of the peer.
    Answer,
}

/// Reason why a frame was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    Closed,
    Full,
}

/// Outgoing half of a connection. Nothing here waits for the peer, except [`Self::wait_for_answer_room`].
pub(crate) trait FrameSink: Send + Sync + 'static {
    fn send(&self, frame: Frame, kind: FrameKind) -> Result<(), SendError>;
    /// Returns true while further requests of the peer may be answered.
    fn has_answer_room(&self) -> bool;
    /// Waits until [`Self::has_answer_room`]; fails if the peer does not read. Cancel-safe.
    fn wait_for_answer_room(&self) -> BoxFuture<'_, Result<(), SendError>>;
    /// Rejects new frames; accepted ones are still sent.
    fn close(&self);
}

/// Incoming half of a connection.
pub(crate) trait FrameStream: Send + 'static {
    /// Returns the next item; `None` at the end. Cancel-safe.
    fn receive(&mut self) -> impl Future<Output = Option<Incoming<'_>>> + Send;
}

/// Item of a [`FrameStream`].
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// One line, or one message.
    Line(&'a [u8]),
    /// Both ends of a message that is too large, and the reason.
    Oversized { begin: &'a [u8], end: &'a [u8], reason: &'static str },
    /// The transport could not deliver a request or its response.
    Failed { id: u64, reason: String },
}

/// Receiver of everything that a peer sends unasked.
pub(crate) trait Inbound: Send + Sync + 'static {
    /// Answers a request.
    fn request(&self, method: &str) -> Result<LineJson, RpcError>;
    /// Handles a notification other than progress.
    fn notification(&self, method: &str, params: Option<&RawValue>);
    /// Notes a line that is not a message.
    fn stray_line(&self);
}

/// Reason why [`RpcClient::run`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The peer closed the stream.
    Closed,
    /// The peer does not read the answers to its own requests.
    AnswersNotRead,
}

/// A request to send.
pub(crate) struct RpcRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a LineJson,
    /// Time at which the request ends with [`RpcClientError::Timeout`].
    pub(crate) deadline: Instant,
    /// Cancelled by the caller.
    pub(crate) cancelled: Option<CancellationToken>,
    /// Receiver of progress; the peer is asked for progress only if there is one.
    pub(crate) on_progress: Option<OnProgress>,
}

/// Client of one connection; clones share it.
#[derive(Clone)]
pub(crate) struct RpcClient(Arc<ClientShared>);

struct ClientShared {
    sink: Box<dyn FrameSink>,
    ids: RequestIds,
    pending: Mutex<PendingRequests>,
    /// Notified when a new request has a deadline before the next check.
    check_earlier: Notify,
}

#[derive(Default)]
struct PendingRequests {
    requests: HashMap<u64, PendingRequest>,
    /// Time of the next check; `None` if nothing checks because nothing is pending.
    next_check: Option<Instant>,
    is_closed: bool,
}

struct PendingRequest {
    started: Instant,
    deadline: Instant,
    cancelled: Option<CancellationToken>,
    on_progress: Option<OnProgress>,
    on_reply: OnReply,
}

impl PendingRequest {
    fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

impl RpcClient {
    pub(crate) fn new(sink: impl FrameSink) -> Self {
        Self(Arc::new(ClientShared {
            sink: Box::new(sink),
            ids: RequestIds::default(),
            pending: Mutex::default(),
            check_earlier: Notify::new(),
        }))
    }

    /// Sends a request without waiting; returns its id. Must be called within a tokio runtime.
    ///
    /// `on_reply` runs before this function returns if the request cannot be sent.
    pub(crate) fn start(&self, request: RpcRequest<'_>, on_reply: OnReply) -> u64 {
        let now = Instant::now();
        let RpcRequest { method, params, deadline, cancelled, on_progress } = request;
        let wants_progress = on_progress.is_some();
        let mut pending = self.0.pending.lock();
        let id = self.unused_id(&pending);
        if pending.is_closed {
            drop(pending);
            on_reply(Err(RpcClientError::Gone));
            return id;
        }
        let entry = PendingRequest { started: now, deadline, cancelled, on_progress, on_reply };
        pending.requests.insert(id, entry);
        let next_check = pending.next_check;
        if next_check.is_none() {
            pending.next_check = Some(now + CHECK_INTERVALS[0]);
        }
        drop(pending);
        match next_check {
            None => drop(tokio::spawn(self.clone().check_pending())),
            Some(next_check) if deadline < next_check => self.0.check_earlier.notify_one(),
            Some(_) => {}
        }
        let frame = Frame::request(id, method, params, wants_progress.then_some(id));
        match self.0.sink.send(frame, FrameKind::Request) {
            Ok(()) => {}
            Err(SendError::Full) => self.fail(id, RpcClientError::QueueFull),
            Err(SendError::Closed) => {
                let reason = "it does not read its stdin".to_owned();
                self.fail(id, RpcClientError::TransportFailed(reason));
            }
        }
        id
    }

    /// Sends a request and waits for the response. Dropping the future cancels the request.
    pub(crate) fn request(
        &self,
        request: RpcRequest<'_>,
    ) -> impl Future<Output = RpcOutcome> + use<> {
        let (sender, reply) = oneshot::channel();
        // An error means that the future was dropped.
        let id = self.start(request, Box::new(|reply| drop(sender.send(reply))));
        let guard = CancelOnDrop { client: self.clone(), id };
        async move {
            let reply = reply.await.unwrap_or(Err(RpcClientError::Gone));
            drop(guard);
            reply
        }
    }

    /// Sends a notification; it is lost if the connection has ended.
    pub(crate) fn notify(&self, method: &str, params: &LineJson) {
        let _ = self.0.sink.send(Frame::notification(method, params), FrameKind::Notification);
    }

    /// Reads the stream to its end. The caller then calls [`Self::close`].
    pub(crate) async fn run(
        &self,
        mut stream: impl FrameStream,
        inbound: &impl Inbound,
    ) -> StreamEnd {
        let mut unsolicited = RateLimiter::new(MAX_UNSOLICITED_MESSAGES, UNSOLICITED_WINDOW);
        loop {
            // Above the limits nothing is read, so that the peer blocks on its own pipe.
            unsolicited.wait_for_permit().await;
            if !self.0.sink.has_answer_room() && self.0.sink.wait_for_answer_room().await.is_err() {
                return StreamEnd::AnswersNotRead;
            }
            let Some(incoming) = stream.receive().await else { return StreamEnd::Closed };
            let is_solicited = match incoming {
                Incoming::Line(line) => self.receive(line, inbound),
                Incoming::Oversized { begin, end, reason } => {
                    self.fail_unreadable(begin, end, reason);
                    true
                }
                Incoming::Failed { id, reason } => {
                    self.fail(id, RpcClientError::TransportFailed(reason));
                    true
                }
            };
            if !is_solicited {
                unsolicited.try_acquire();
            }
        }
    }

    /// Ends all pending requests with [`RpcClientError::Gone`] and rejects new ones.
    pub(crate) fn close(&self) {
        self.0.sink.close();
        let requests = {
            let mut pending = self.0.pending.lock();
            pending.is_closed = true;
            std::mem::take(&mut pending.requests)
        };
        for request in requests.into_values() {
            (request.on_reply)(Err(RpcClientError::Gone));
        }
    }

    /// Handles one line; returns true if it answers a request, or is no message.
    fn receive(&self, line: &[u8], inbound: &impl Inbound) -> bool {
        let line = line.trim_ascii();
        if line.is_empty() {
            return true;
        }
        match PeerMessage::parse(line) {
            Ok(PeerMessage::Reply { id, outcome }) => self.complete(id, outcome),
            Ok(PeerMessage::Request { id, method }) => {
                self.answer(&id, inbound.request(&method));
                false
            }
            Ok(PeerMessage::Notification { method, params }) => {
                match params.filter(|_| method == PROGRESS) {
                    Some(params) => self.deliver_progress(params),
                    None => inbound.notification(&method, params),
                }
                false
            }
            Ok(PeerMessage::Other) => {
                inbound.stray_line();
                true
            }
            Err(_) => {
                self.fail_unreadable(line, line, "its answer is no JSON that can be read");
                inbound.stray_line();
                true
            }
        }
    }

    fn answer(&self, id: &Id, outcome: Result<LineJson, RpcError>) {
        let frame = match outcome {
            Ok(result) => Frame::result(id, &result),
            Err(RpcError { code, message, data }) => {
                Frame::error(&id.to_string(), code, &message, data.as_ref())
            }
        };
        // A peer that has closed its end does not read the answer.
        let _ = self.0.sink.send(frame, FrameKind::Answer);
    }

    fn deliver_progress(&self, params: &RawValue) {
        let token = PeerMessage::progress_token(params);
        let sink =
            token.and_then(|id| self.0.pending.lock().requests.get(&id)?.on_progress.clone());
        if let Some(sink) = sink {
            sink(params);
        }
    }

    /// Completes a request; returns false if the id is not pending.
    fn complete(&self, id: u64, reply: RpcOutcome) -> bool {
        let request = self.0.pending.lock().requests.remove(&id);
        let Some(request) = request else { return false };
        (request.on_reply)(reply);
        true
    }

    fn fail(&self, id: u64, error: RpcClientError) {
        self.complete(id, Err(error));
    }

    /// Fails the request that an unreadable line answers, if its id can be found at one of the ends of the line.
    fn fail_unreadable(&self, begin: &[u8], end: &[u8], reason: &'static str) {
        let begin = begin.get(..PeerMessage::END_BYTES).unwrap_or(begin);
        let end = end.get(end.len().saturating_sub(PeerMessage::END_BYTES)..).unwrap_or(end);
        // Some servers log the requests they receive, with their ids; such a line is not a response.
        let is_asked = [begin, end].iter().any(|part| memmem::find(part, b"\"method\"").is_some());
        if is_asked || !begin.trim_ascii_start().starts_with(b"{") {
            return;
        }
        for id in PeerMessage::ids_at_ends(begin, end).into_iter().flatten() {
            if self.complete(id, Err(RpcClientError::InvalidResponse(reason))) {
                return;
            }
        }
    }

    /// Ends overdue requests until nothing is pending.
    async fn check_pending(self) {
        let mut pause = CHECK_INTERVALS[0];
        loop {
            // An earlier deadline ends the pause.
            let _ = timeout(pause, self.0.check_earlier.notified()).await;
            let (overdue, next_pause) = self.take_overdue(Instant::now());
            for (id, request) in overdue {
                let (error, reason) = match request.is_cancelled() {
                    true => (RpcClientError::Cancelled, "cancelled by the caller"),
                    false => (RpcClientError::Timeout, "the deadline passed"),
                };
                self.tell_cancelled(id, reason);
                (request.on_reply)(Err(error));
            }
            match next_pause {
                Some(next) => pause = next,
                None => return,
            }
        }
    }

    /// Takes the overdue requests and the time until the next check; `None` if nothing is pending any more.
    fn take_overdue(&self, now: Instant) -> (Vec<(u64, PendingRequest)>, Option<Duration>) {
        let mut pending = self.0.pending.lock();
        let is_overdue =
            |request: &PendingRequest| request.is_cancelled() || request.deadline <= now;
        let overdue = pending.requests.extract_if(|_, request| is_overdue(request)).collect();
        let youngest = pending.requests.values().map(|request| request.started).max();
        let next_pause = youngest.map(|started| {
            let [shortest, longest] = CHECK_INTERVALS;
            let pause = (now.saturating_duration_since(started) / 10).clamp(shortest, longest);
            let nearest = pending.requests.values().map(|request| request.deadline).min();
            nearest.map_or(pause, |nearest| pause.min(nearest.saturating_duration_since(now)))
        });
        pending.next_check = next_pause.map(|pause| now + pause);
        (overdue, next_pause)
    }

    fn tell_cancelled(&self, id: u64, reason: &str) {
        let (id, reason) = (LineJson::from(id), LineJson::string(reason));
        self.notify(CANCELLED, &LineJson::object(&[("requestId", &id), ("reason", &reason)]));
    }

    /// Returns an id that no pending request has; it is also the progress token.
    fn unused_id(&self, pending: &PendingRequests) -> u64 {
        loop {
            let id = self.0.ids.next_id();
            if !pending.requests.contains_key(&id) {
                return id;
            }
        }
    }
}

/// Generator of unpredictable request ids: a counter, hashed with a random key (SipHash) and truncated to 53 bits.
///
/// Ids collide by chance after about 10^8 requests of one connection: a map of pending requests must skip ids in use.
#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    key: RandomState,
    count: AtomicU64,
}

impl RequestIds {
    /// Returns the id of the next request, at least 1.
    pub(crate) fn next_id(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        (self.key.hash_one(count) & MAX_REQUEST_ID).max(1)
    }
}

/// Cancels a request whose future is dropped.
struct CancelOnDrop {
    client: RpcClient,
    id: u64,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let abandoned = self.client.0.pending.lock().requests.remove(&self.id);
        if abandoned.is_some() {
            self.client.tell_cancelled(self.id, "cancelled by the caller");
        }
    }
}

#[cfg(test)]
#[path = "rpc_client_tests.rs"]
mod tests;
