//! What a request meets between its connection and rmcp, in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request};
use axum::response::Response;
use rmcp::handler::server::ServerHandler;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{self, Holding};
use super::express;
use super::guard::Guard;
use super::pace::Paces;
use super::probe::Probe;
use super::refusal::Refusal;
use super::refusal_log::RefusalLog;
use super::session_book::{InUse, Room, SessionBook};
use super::unpacking::unpack;
use crate::identity::{Bearer, Caller};
use crate::server::guest::Guest;

const SESSION_ID: &str = "mcp-session-id";
/// Goes on until somebody ends it: nobody waits for its answer.
const LISTEN: &str = "subscriptions/listen";

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Everything that requests share.
pub(super) struct Front<S> {
    pub(super) mcp: StreamableHttpService<S, LocalSessionManager>,
    pub(super) sessions: Arc<LocalSessionManager>,
    pub(super) book: SessionBook,
    pub(super) guard: Guard,
    pub(super) paces: Paces,
    pub(super) refusals: RefusalLog,
    /// The calls whose answers are still being sent.
    pub(super) calls: TaskTracker,
    pub(super) stopping: CancellationToken,
    pub(super) probe: Probe,
    pub(super) metrics_need_token: bool,
}

/// A request to `/mcp`.
pub(super) async fn mcp<S: ServerHandler>(
    State(front): State<Arc<Front<S>>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request<Body>,
) -> Response {
    let mut knock = Knock::default();
    match front.answer(request, &mut knock).await {
        Ok(response) => response,
        Err(refusal) => front.refuse(&refusal, peer.ip(), &knock),
    }
}

/// What is known about a request so far, for whoever refuses it.
#[derive(Default)]
struct Knock {
    caller: Option<Caller>,
    id: Option<Value>,
}

/// The part of a message that is looked at here.
#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
}

impl<S: ServerHandler> Front<S> {
    /// Checks where a request for the metrics comes from, and its token where one is asked for.
    pub(super) fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.guard.check_source(headers)?;
        if self.metrics_need_token {
            self.guard.require_token(headers)?;
        }
        Ok(())
    }

    /// Says no, and writes it down.
    pub(super) fn refused(&self, refusal: &Refusal, from: IpAddr) -> Response {
        self.refuse(refusal, from, &Knock::default())
    }

    fn refuse(&self, refusal: &Refusal, from: IpAddr, knock: &Knock) -> Response {
        self.refusals.note(refusal, from, knock.caller.as_ref());
        refusal.answer(knock.id.as_ref())
    }

    async fn answer(&self, request: Request<Body>, knock: &mut Knock) -> Result<Response, Refusal> {
        let (mut parts, body) = request.into_parts();
        self.guard.check_source(&parts.headers)?;
        let bearer = self.guard.identify(&parts.headers)?;
        knock.caller = bearer.as_ref().map(|bearer| bearer.caller.clone());
        let owner = owner(bearer.as_ref()).to_owned();
        let in_use = self.session(&parts.headers, &owner)?;
        let caller = knock.caller.clone();
        parts.extensions.insert(Guest { caller, runs: self.paces.runs(&owner) });
        if parts.method == Method::POST {
            return self.post(parts, body, &owner, in_use, knock).await;
        }
        self.pace(&owner)?;
        Ok(self.other(parts, in_use).await)
    }

    /// A message of a client.
    async fn post(
        &self,
        parts: Parts,
        body: Body,
        owner: &str,
        in_use: Option<InUse>,
        knock: &mut Knock,
    ) -> Result<Response, Refusal> {
        let bytes = body::read(&parts.headers, body).await?;
        let method = look_into(&bytes, knock);
        self.pace(owner)?;
        if knock.id.is_some() && self.stopping.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        let begins = method.as_deref() == Some("initialize");
        if begins {
            self.make_room(owner).await?;
        }
        let call = (method.as_deref() != Some(LISTEN)).then(|| self.calls.token());
        let (gateway, caller) = (&self.probe.gateway, knock.caller.as_ref());
        if method.as_deref() == Some("tools/call")
            && let Some(answer) = express::pass(gateway, &parts.headers, &bytes, caller).await
        {
            return Ok(answer.map(|body| Holding::wrap(body, (in_use, call))));
        }
        let request = Request::from_parts(parts, Body::from(bytes));
        let response = unpack(self.mcp.handle(request).await.map(Body::new)).await;
        if begins && let Some(id) = session_id(response.headers()) {
            self.book.begun(id, owner);
        }
        Ok(response.map(|body| Holding::wrap(body, (in_use, call))))
    }

    /// A client that listens, or ends its session.
    async fn other(&self, parts: Parts, in_use: Option<InUse>) -> Response {
        let ends = (parts.method == Method::DELETE)
            .then(|| session_id(&parts.headers).map(str::to_owned))
            .flatten();
        let request = Request::from_parts(parts, Body::empty());
        let response = unpack(self.mcp.handle(request).await.map(Body::new)).await;
        if let (Some(id), true) = (ends, response.status().is_success()) {
            self.book.ended(&id);
        }
        response.map(|body| Holding::wrap(body, in_use))
    }

    /// The session that a request names, if it is the sender's own.
    fn session(&self, headers: &HeaderMap, owner: &str) -> Result<Option<InUse>, Refusal> {
        let Some(id) = session_id(headers) else { return Ok(None) };
        self.book.take_up(id, owner).map(Some).ok_or(Refusal::ForeignSession)
    }

    fn pace(&self, owner: &str) -> Result<(), Refusal> {
        let counted = self.paces.count(owner, Instant::now());
        counted.map_err(|wait_ms| Refusal::TooFast { wait_ms })
    }

    async fn make_room(&self, owner: &str) -> Result<(), Refusal> {
        match self.book.room(owner) {
            Room::Free => Ok(()),
            Room::After(id) => {
                self.close(&id).await;
                Ok(())
            }
            Room::None => Err(Refusal::TooManySessions),
        }
    }

    /// Ends a session. Its client begins another when it next hears that this one is not there.
    pub(super) async fn close(&self, id: &str) {
        self.book.ended(id);
        if let Err(error) = self.sessions.close_session(&id.into()).await {
            tracing::debug!(%error, "a session was over already");
        }
    }
}

/// Whose sessions and whose pace: the caller's name, or one for all who have none.
fn owner(bearer: Option<&Bearer>) -> &str {
    bearer.map_or("", |bearer| bearer.caller.name.as_str())
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID)?.to_str().ok()
}

/// The message's id, for whoever must refuse it, and its method.
fn look_into(bytes: &Bytes, knock: &mut Knock) -> Option<String> {
    // What cannot be read here is refused by rmcp, in the protocol's words.
    let message: Message = serde_json::from_slice(bytes).ok()?;
    knock.id = message.id.filter(|_| message.method.is_some());
    message.method
}
