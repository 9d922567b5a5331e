//! Steps of a request between its connection and rmcp, in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use rmcp::handler::server::ServerHandler;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{self, GuardedBody, unpack_response};
use super::connection_table::HttpExchange;
use super::execute_tool_request;
use super::health::HealthProbe;
use super::host_origin_token::AuthLayer;
use super::http_sessions::{
    HttpSessionReservation, HttpSessionUse, HttpSessions, InFlight, InFlightId,
};
use super::rate_limit::{HttpCaller, RateLimits};
use super::refusal::{HttpRefusal, RefusalLog};
use crate::identity::Caller;
use crate::jsonrpc::{Id, InvalidMessage, Message, RecoveredNames};
use crate::server::invalid_message;
use crate::server::router::{CallRouter, without_raw_arguments};

const SESSION_ID: &str = "mcp-session-id";
/// Long-lived stream: a subscription ends only with its client, so the shutdown does not wait for it.
const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";

/// Remote address of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpPeer(pub(crate) SocketAddr);

/// State that all requests share.
pub(crate) struct HttpFrontend<S> {
    pub(crate) mcp: StreamableHttpService<S, LocalSessionManager>,
    /// `None` if the handler does not offer the gateway's tools.
    pub(crate) router: Option<CallRouter>,
    pub(crate) session_manager: Arc<LocalSessionManager>,
    pub(crate) http_sessions: HttpSessions,
    pub(crate) auth: AuthLayer,
    pub(crate) rate_limits: RateLimits,
    pub(crate) refusals: RefusalLog,
    pub(crate) in_flight: InFlight,
    /// Calls whose responses are still being sent; the shutdown waits for them.
    pub(crate) calls: TaskTracker,
    pub(crate) stopping: CancellationToken,
    pub(crate) probe: HealthProbe,
    pub(crate) metrics_need_token: bool,
}

/// Handles a request to `/mcp`.
pub(crate) async fn handle_mcp<S: ServerHandler>(
    State(front): State<Arc<HttpFrontend<S>>>,
    Extension(HttpPeer(peer)): Extension<HttpPeer>,
    request: Request<Body>,
) -> Response {
    let mut info = RequestInfo::default();
    match front.handle(request, &mut info).await {
        Ok(response) => response,
        Err(refusal) => front.refuse(&refusal, peer.ip(), &info),
    }
}

/// Caller and JSON-RPC id of a request, as far as known.
///
/// A refusal needs both: the audit entry names the caller, the response repeats the id.
#[derive(Default)]
pub(crate) struct RequestInfo {
    caller: Option<Caller>,
    id: Option<Id>,
}

impl<S: ServerHandler> HttpFrontend<S> {
    /// Checks Host and Origin of a request for the metrics, and its token if one is required.
    pub(crate) fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        self.auth.check_source(headers)?;
        if self.metrics_need_token {
            self.auth.require_token(headers)?;
        }
        Ok(())
    }

    /// Records a refusal and returns its response.
    pub(crate) fn refuse(
        &self,
        refusal: &HttpRefusal,
        from: IpAddr,
        info: &RequestInfo,
    ) -> Response {
        self.refusals.record(refusal, from, info.caller.as_ref());
        refusal.to_response(info.id.as_ref())
    }

    async fn handle(
        &self,
        request: Request<Body>,
        info: &mut RequestInfo,
    ) -> Result<Response, HttpRefusal> {
        let (mut parts, body) = request.into_parts();
        self.auth.check_source(&parts.headers)?;
        let caller = self.auth.identify(&parts.headers)?;
        info.caller.clone_from(&caller);
        // The key of sessions and rate limits; empty for callers without a token.
        let owner = caller.as_ref().map_or_else(String::new, |caller| caller.name.clone());
        let in_use = self.use_session(&parts.headers, &owner)?;
        let run_permits = self.rate_limits.run_permits(&owner);
        parts.extensions.insert(HttpCaller { caller, run_permits });
        if parts.method == Method::POST {
            return self.handle_post(parts, body, &owner, in_use, info).await;
        }
        self.check_rate(&owner)?;
        keep_open(&mut parts)?;
        Ok(self.handle_other(parts, in_use).await)
    }

    /// Handles a POST, which carries one JSON-RPC message.
    async fn handle_post(
        &self,
        mut parts: Parts,
        body: Body,
        owner: &str,
        in_use: Option<HttpSessionUse>,
        info: &mut RequestInfo,
    ) -> Result<Response, HttpRefusal> {
        let bytes = body::read(&parts.headers, body).await?;
        keep_open(&mut parts)?;
        let message = Message::parse(&bytes);
        if let Ok(Message::Request { id, .. }) = &message {
            info.id = Some(id.clone());
        }
        self.check_rate(owner)?;
        let message = match message {
            Ok(message) => message,
            Err(invalid) => return Ok(self.reject_message(&invalid, info)),
        };
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (Some(id), Some(method), params),
            Message::Notification { method, params } => (None, Some(method), params),
            Message::Response => (None, None, None),
        };
        if id.is_some() && self.stopping.is_cancelled() {
            self.record_stopping(&bytes, info);
            return Err(HttpRefusal::Stopping);
        }
        let in_flight = match self.register_id(&parts.headers, id.as_ref(), &bytes) {
            Ok(in_flight) => in_flight,
            Err(invalid) => return Ok(self.reject_message(&invalid, info)),
        };
        let call = (method.as_deref() != Some(SUBSCRIPTIONS_LISTEN)).then(|| self.calls.token());
        let is_tool_call = method.as_deref() == Some("tools/call");
        if let (true, Some(id), Some(router)) = (is_tool_call, &id, &self.router) {
            let (headers, caller) = (&parts.headers, info.caller.as_ref());
            let answer = execute_tool_request::try_execute(router, headers, (id, params), caller);
            if let Some(answer) = answer.await {
                return Ok(answer.map(|body| GuardedBody::wrap(body, (in_use, in_flight, call))));
            }
        }
        let raw = is_tool_call.then(|| without_raw_arguments(&bytes, params)).flatten();
        let for_rmcp = match raw.filter(|_| self.router.is_some()) {
            None => bytes.clone(),
            Some((body, arguments)) => {
                parts.headers.remove(CONTENT_LENGTH);
                parts.extensions.insert(arguments);
                body.into()
            }
        };
        if let Err(invalid) = invalid_message::to_typed(&for_rmcp, &bytes) {
            let invalid = match &id {
                Some(id) => invalid.with_id(id),
                None => invalid,
            };
            return Ok(self.reject_message(&invalid, info));
        }
        let reservation = match method.as_deref() {
            Some("initialize") => Some(self.reserve_session(owner).await?),
            _ => None,
        };
        let request = Request::from_parts(parts, Body::from(for_rmcp));
        let response = unpack_response(self.mcp.handle(request).await.map(Body::new)).await;
        if let (Some(reservation), Some(id)) = (reservation, session_id(response.headers())) {
            reservation.commit(id);
        }
        Ok(response.map(|body| GuardedBody::wrap(body, (in_use, in_flight, call))))
    }

    /// Registers the request id in its session; fails if another request in progress has the same id.
    fn register_id(
        &self,
        headers: &HeaderMap,
        id: Option<&Id>,
        body: &[u8],
    ) -> Result<Option<InFlightId>, InvalidMessage> {
        let (Some(id), Some(session)) = (id, session_id(headers)) else { return Ok(None) };
        let in_use = || InvalidMessage::id_in_use(body, id);
        self.in_flight.register(session, id).ok_or_else(in_use).map(Some)
    }

    /// Records an attempt to call a tool during shutdown.
    fn record_stopping(&self, body: &[u8], info: &RequestInfo) {
        let names = RecoveredNames::recover(body);
        let entry = invalid_message::attempted_call_entry(&names, info.caller.as_ref());
        if let Some(entry) = entry {
            let refusal = HttpRefusal::Stopping.message();
            self.probe.gateway.try_write_audit_entry(entry.with_denial("CANCELLED", refusal));
        }
    }

    /// Answers a body that is no message, and records an attempt to call a tool.
    fn reject_message(&self, invalid: &InvalidMessage, info: &RequestInfo) -> Response {
        if let Some(entry) = invalid_message::rejection_entry(invalid, info.caller.as_ref()) {
            self.probe.gateway.try_write_audit_entry(entry);
        }
        let mut response = Response::new(Body::from(invalid.response().into_bytes()));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// Handles all other methods: GET opens an event stream, DELETE ends the session.
    async fn handle_other(&self, parts: Parts, in_use: Option<HttpSessionUse>) -> Response {
        let is_delete = parts.method == Method::DELETE;
        let ends = session_id(&parts.headers).filter(|_| is_delete).map(str::to_owned);
        let request = Request::from_parts(parts, Body::empty());
        let response = unpack_response(self.mcp.handle(request).await.map(Body::new)).await;
        if let (Some(id), true) = (ends, response.status().is_success()) {
            self.http_sessions.remove(&id);
        }
        response.map(|body| GuardedBody::wrap(body, in_use))
    }

    /// Marks the session that the request names as in use; fails if it belongs to another caller.
    fn use_session(
        &self,
        headers: &HeaderMap,
        owner: &str,
    ) -> Result<Option<HttpSessionUse>, HttpRefusal> {
        let Some(id) = session_id(headers) else { return Ok(None) };
        self.http_sessions.begin_request(id, owner).map(Some).ok_or(HttpRefusal::ForeignSession)
    }

    fn check_rate(&self, owner: &str) -> Result<(), HttpRefusal> {
        let counted = self.rate_limits.take_request(owner, Instant::now());
        counted.map_err(|wait_ms| HttpRefusal::TooFast { wait_ms })
    }

    async fn reserve_session(&self, owner: &str) -> Result<HttpSessionReservation, HttpRefusal> {
        let reservation = self.http_sessions.reserve(owner).ok_or(HttpRefusal::TooManySessions)?;
        if let Some(id) = reservation.replaced() {
            self.close_session(id).await;
        }
        Ok(reservation)
    }

    /// Closes a session. The client's next request in it gets a 404, and the client starts another.
    pub(crate) async fn close_session(&self, id: &str) {
        self.http_sessions.remove(id);
        if let Err(error) = self.session_manager.close_session(&id.into()).await {
            tracing::debug!(%error, "a session was over already");
        }
    }
}

/// Keeps the connection open until the response to a complete request has been written.
fn keep_open(request: &mut Parts) -> Result<(), HttpRefusal> {
    // Removed from the request, because its session may keep the extensions.
    let exchange = request.extensions.remove::<Arc<HttpExchange>>();
    // A connection that is being closed for a new one accepts no requests.
    let is_open = exchange.is_none_or(|exchange| exchange.admit());
    if is_open { Ok(()) } else { Err(HttpRefusal::TooSlow) }
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID)?.to_str().ok()
}
