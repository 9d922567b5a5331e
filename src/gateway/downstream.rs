//! One server as one scope of callers sees it: started when needed, brought back when it dies.
//!
//! ```text
//! idle ──first call──▶ connecting ──▶ ready ──dies after it worked──▶ idle
//!                          │            └──dies before it worked──┐
//!                          └──fails──▶ failed (until the next try) ◀┘
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::client_side::{Changes, ListChanges};
use super::connection::{Connection, Opening, RequestOptions, Unopened};
use super::error::GatewayError;
use super::offers::{Announcement, Offer};
use super::resolved::{self, Resolved};
use super::server_config::ServerSpec;
use super::sign_in::{Keeper, SignInNeeded, SignInTarget, Stamp};
use super::tool_list::{self, ToolList};
use crate::base::{Timestamp, now};

/// Who shares a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Every agent that the rules allow.
    Shared,
    /// One agent: its own process of a shared server.
    Agent(String),
    /// One agent's private server.
    Private(String),
    /// One run of one agent.
    Run {
        /// The agent.
        agent: String,
        /// The run.
        run: String,
    },
}

/// Which connection is meant: the scope, the server and how it is started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Who shares it.
    pub scope: Scope,
    /// The server's name.
    pub server: String,
    /// [`ServerSpec::digest`]: a changed entry is another server.
    pub digest: String,
}

/// One call of one tool.
pub struct ToolCall {
    /// The tool.
    pub tool: String,
    /// Its arguments, as they came.
    pub arguments: Value,
    /// From now to the answer; `None` is the server's own deadline.
    pub deadline: Option<Duration>,
    /// Taken back by the caller.
    pub cancelled: CancellationToken,
    /// Where progress goes, in order; dropped where the receiver is slow.
    pub progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

/// A server, whatever state it is in.
pub struct Downstream {
    /// Which one.
    pub key: Key,
    /// How it is started.
    pub spec: Arc<ServerSpec>,
    root: PathBuf,
    phase: watch::Sender<Phase>,
    changes: Arc<Changes>,
    starts: AtomicU64,
    closing: CancellationToken,
    /// Where all learn that its resources or prompts changed; nobody learns that of a private server.
    announcements: Option<broadcast::Sender<Announcement>>,
    leases: AtomicUsize,
    last_let_go: Mutex<Instant>,
}

#[derive(Clone)]
enum Phase {
    /// Not started, or over: then with how it ended.
    Idle {
        ended: Option<String>,
    },
    Connecting,
    Ready {
        connection: Arc<Connection>,
        since: Timestamp,
        failures: Backoff,
    },
    Failed {
        reason: String,
        backoff: Backoff,
        at: Timestamp,
        sign_in: Option<Waiting>,
    },
}

/// A server that waits for a person; tried again as soon as one has signed in.
#[derive(Clone)]
struct Waiting {
    needed: SignInNeeded,
    keeper: Arc<Keeper>,
    seen: Option<Stamp>,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.keeper.stamp() != self.seen
    }
}

impl Phase {
    /// How long a failed server is left alone; `None` where it is to be tried.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Failed { backoff, sign_in, .. }
                if !sign_in.as_ref().is_some_and(Waiting::is_over) =>
            {
                backoff.remaining(Instant::now())
            }
            _ => None,
        }
    }

    fn failure(&self, server: &str) -> Option<GatewayError> {
        let retry_in = self.pause()?;
        match self {
            Self::Failed { sign_in: Some(waiting), .. } => {
                Some(GatewayError::sign_in(server, waiting.needed.clone()))
            }
            Self::Failed { reason, .. } => Some(GatewayError::ServerUnavailable {
                server: server.to_owned(),
                reason: reason.clone(),
                retry_in: Some(retry_in),
            }),
            Self::Idle { .. } | Self::Connecting | Self::Ready { .. } => None,
        }
    }
}

/// What a server said about itself.
pub(super) struct Introduction {
    pub(super) resources: bool,
    pub(super) prompts: bool,
    pub(super) instructions: Option<String>,
}

/// A server's state, for people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ServerState {
    /// `idle`, `connecting`, `connected` or `failed`.
    pub state: &'static str,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// Why it failed, or how it last ended.
    pub reason: Option<String>,
    /// Milliseconds until it is tried again.
    pub retry_in_ms: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
}

impl Downstream {
    /// A server that nobody has called yet. Relative folders in `spec` are under `root`.
    pub(super) fn new(
        key: Key,
        spec: Arc<ServerSpec>,
        root: PathBuf,
        announcements: Option<broadcast::Sender<Announcement>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            announcements,
            leases: AtomicUsize::new(0),
            last_let_go: Mutex::new(Instant::now()),
            key,
            spec,
            root,
            phase: watch::Sender::new(Phase::Idle { ended: None }),
            changes: Arc::new(watch::Sender::new(ListChanges::default())),
            starts: AtomicU64::new(0),
            closing: CancellationToken::new(),
        })
    }

    /// The name its tools are pinned under: an agent's private server is not the shared one.
    pub(super) fn pin_name(&self) -> String {
        match &self.key.scope {
            Scope::Shared | Scope::Agent(_) => self.key.server.clone(),
            Scope::Private(agent) | Scope::Run { agent, .. } => {
                format!("{agent}/{}", self.key.server)
            }
        }
    }

    /// Calls a tool and returns the server's result as the JSON it wrote.
    pub async fn call_tool(self: &Arc<Self>, call: ToolCall) -> Result<Value, GatewayError> {
        let allowed = call.deadline.unwrap_or(self.spec.timeout);
        let end = Instant::now() + allowed;
        let connection = self.connection_by(end, allowed, &call.cancelled).await?;
        let options = RequestOptions {
            deadline: end.saturating_duration_since(Instant::now()),
            cancelled: call.cancelled,
            progress: call.progress,
        };
        let params = json!({ "name": call.tool, "arguments": call.arguments });
        connection.request("tools/call", params, options).await.map_err(|error| match error {
            // The caller set one deadline for starting and answering together.
            GatewayError::Timeout { server, .. } => {
                GatewayError::Timeout { server, after: allowed }
            }
            other => other,
        })
    }

    /// Sends any other request (`resources/read`, `prompts/get`, …) and returns its result.
    pub async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        let connection = self.ready().await?;
        connection.request(method, params, RequestOptions::within(self.spec.timeout)).await
    }

    /// Every entry of a list (`resources/list`, …); empty where the server does not offer it.
    pub async fn list(
        self: &Arc<Self>,
        capability: &str,
        method: &str,
        field: &str,
    ) -> Result<Vec<Value>, GatewayError> {
        let connection = self.ready().await?;
        if !connection.offers(capability) {
            return Ok(Vec::new());
        }
        Ok(tool_list::read_all(&connection, method, field, self.spec.timeout).await?.0)
    }

    /// Its tools; read once per connection and again after it says that they changed.
    pub async fn tools(self: &Arc<Self>) -> Result<Arc<ToolList>, GatewayError> {
        let connection = self.ready().await?;
        let known = connection.known_tools(self.changes.borrow().tools);
        match known {
            Some(tools) => Ok(tools),
            None => self.read_tools(&connection).await,
        }
    }

    /// Its tools, read anew: for a name that the last list did not have.
    pub async fn fresh_tools(self: &Arc<Self>) -> Result<Arc<ToolList>, GatewayError> {
        let connection = self.ready().await?;
        self.read_tools(&connection).await
    }

    async fn read_tools(&self, connection: &Connection) -> Result<Arc<ToolList>, GatewayError> {
        // The number is taken before reading: a change while we read makes the list stale at once.
        let change = self.changes.borrow().tools;
        let list = Arc::new(tool_list::read_tools(connection, self.spec.timeout).await?);
        for warning in &list.warnings {
            tracing::warn!(server = %self.key.server, "{warning}");
        }
        connection.remember_tools(change, Arc::clone(&list));
        Ok(list)
    }

    /// Counts what the server says about changes of its lists.
    pub(super) fn changes(&self) -> watch::Receiver<ListChanges> {
        self.changes.subscribe()
    }

    /// One more run uses it.
    pub(super) fn take(&self) {
        self.leases.fetch_add(1, Ordering::SeqCst);
    }

    /// One run less uses it; the answer is how many still do.
    pub(super) fn let_go(&self) -> usize {
        *self.last_let_go.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.leases.fetch_sub(1, Ordering::SeqCst).saturating_sub(1)
    }

    /// Whether nobody has used it for this long.
    pub(super) fn is_idle_for(&self, idle: Duration) -> bool {
        let since = *self.last_let_go.lock().unwrap_or_else(PoisonError::into_inner);
        self.leases.load(Ordering::SeqCst) == 0 && since.elapsed() >= idle
    }

    /// Whether the server said in its handshake that it has this; not before it is connected.
    pub(super) async fn introduction(self: &Arc<Self>) -> Result<Introduction, GatewayError> {
        let connection = self.ready().await?;
        Ok(Introduction {
            resources: connection.offers("resources"),
            prompts: connection.offers("prompts"),
            instructions: connection.instructions(),
        })
    }

    /// Starts it, if it is not, and waits until it answers.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<Arc<Connection>, GatewayError> {
        let patience = self.spec.startup_timeout + Duration::from_secs(5);
        self.connection_by(Instant::now() + patience, patience, &CancellationToken::new()).await
    }

    async fn connection_by(
        self: &Arc<Self>,
        end: Instant,
        allowed: Duration,
        cancelled: &CancellationToken,
    ) -> Result<Arc<Connection>, GatewayError> {
        let mut phases = self.phase.subscribe();
        loop {
            let phase = phases.borrow_and_update().clone();
            match phase {
                Phase::Ready { connection, .. } if connection.is_alive() => return Ok(connection),
                Phase::Connecting => {}
                Phase::Idle { .. } | Phase::Ready { .. } => self.begin(),
                failed @ Phase::Failed { .. } => match failed.failure(&self.key.server) {
                    Some(error) => return Err(error),
                    None => self.begin(),
                },
            }
            if self.closing.is_cancelled() {
                return Err(GatewayError::unavailable(
                    &self.key.server,
                    "the gateway lets go of it",
                ));
            }
            let changed = tokio::select! {
                changed = timeout_at(end, phases.changed()) => changed,
                () = cancelled.cancelled() => return Err(GatewayError::Cancelled),
            };
            if changed.is_err() {
                let server = self.key.server.clone();
                return Err(GatewayError::Timeout { server, after: allowed });
            }
        }
    }

    /// Begins to connect, unless somebody else did meanwhile. In a task of its own: a caller that
    /// gives up must not take the half-started server with it.
    fn begin(self: &Arc<Self>) {
        let mut failures = Backoff::default();
        let ours = self.phase.send_if_modified(|phase| {
            if let Phase::Failed { backoff, .. } = phase {
                failures = backoff.clone();
            }
            let begins = match phase {
                Phase::Connecting => false,
                Phase::Ready { connection, .. } => !connection.is_alive(),
                Phase::Failed { .. } => phase.pause().is_none(),
                Phase::Idle { .. } => true,
            };
            if begins {
                *phase = Phase::Connecting;
            }
            begins
        });
        if ours {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.connect(failures).await });
        }
    }

    async fn connect(self: Arc<Self>, mut failures: Backoff) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let leave = self.closing.child_token();
        let opening = match self.opening() {
            Ok(opening) => opening,
            Err(reason) => {
                failures.failed(Instant::now());
                return self.fail(reason, failures, None);
            }
        };
        let keeper = opening.keeper.clone();
        // Taken before: a sign-in while we try is seen.
        let seen = keeper.as_ref().and_then(|keeper| keeper.stamp());
        match Connection::open(opening, leave).await {
            Ok(connection) => {
                tracing::info!(server = %self.key.server, "connected");
                let ready = Arc::clone(&connection);
                self.phase.send_replace(Phase::Ready { connection: ready, since: now(), failures });
                self.watch(&connection).await;
            }
            Err(unopened) => {
                failures.failed(Instant::now());
                let (reason, needed) = match unopened {
                    Unopened::Failed(reason) => (reason, None),
                    Unopened::SignIn(needed) => (needed.reason.clone(), Some(needed)),
                };
                let waiting = needed.zip(keeper).map(|(needed, keeper)| {
                    // A renewal that was refused while we tried is what the person is told, not news.
                    let seen = keeper.stamp().filter(|_| seen.is_some()).or(seen);
                    Waiting { needed, keeper, seen }
                });
                self.fail(reason, failures, waiting);
            }
        }
    }

    fn opening(&self) -> Result<Opening, String> {
        let lookup = |name: &str| std::env::var(name).ok();
        let (resolved, secrets) = resolved::resolve(&self.spec, &self.root, &lookup)?;
        let keeper = self.keeper(&resolved)?;
        Ok(Opening {
            keeper,
            server: self.key.server.as_str().into(),
            resolved,
            secrets,
            changes: Arc::clone(&self.changes),
            patience: self.spec.startup_timeout,
        })
    }

    /// The sign-in of a server on the network; none where its entry says itself who we are.
    fn keeper(&self, resolved: &Resolved) -> Result<Option<Arc<Keeper>>, String> {
        let Resolved::Network(network) = resolved else { return Ok(None) };
        if network.has_own_authorization() {
            return Ok(None);
        }
        let agent = match &self.key.scope {
            Scope::Shared => None,
            Scope::Agent(agent) => Some(agent).filter(|_| self.spec.sign_in.per_agent),
            Scope::Private(agent) | Scope::Run { agent, .. } => Some(agent),
        };
        let target = SignInTarget::new(&self.root, &self.spec, agent.map(String::as_str));
        let target = target.map_err(|error| error.to_string())?;
        Ok(Some(Arc::new(target.into_keeper())))
    }

    fn fail(&self, reason: String, backoff: Backoff, sign_in: Option<Waiting>) {
        tracing::warn!(server = %self.key.server, failures = backoff.failures(), "unavailable: {reason}");
        self.phase.send_replace(Phase::Failed { reason, backoff, at: now(), sign_in });
    }

    /// Waits for the end of a connection and decides how soon the next one may come.
    async fn watch(&self, connection: &Arc<Connection>) {
        self.pass_on_until(connection.ended()).await;
        let reason = connection.end_reason().await;
        if self.closing.is_cancelled() {
            return;
        }
        tracing::warn!(server = %self.key.server, "ended: {reason}");
        let mut backoff = Backoff::default();
        let worked = connection.has_worked();
        self.phase.send_if_modified(|phase| {
            let Phase::Ready { connection: current, failures, .. } = phase else { return false };
            if !Arc::ptr_eq(current, connection) {
                return false;
            }
            if worked {
                *phase = Phase::Idle { ended: Some(reason.clone()) };
            } else {
                backoff = failures.clone();
                backoff.failed(Instant::now());
                let (reason, backoff) = (reason.clone(), backoff.clone());
                *phase = Phase::Failed { reason, backoff, at: now(), sign_in: None };
            }
            true
        });
    }

    /// Tells all who may use the server that its resources or prompts changed.
    async fn pass_on_until(&self, ended: impl Future<Output = ()>) {
        let Some(announcements) = &self.announcements else { return ended.await };
        let mut changes = self.changes.subscribe();
        let mut known = *changes.borrow_and_update();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => return,
                changed = changes.changed() => if changed.is_err() { return ended.await },
            }
            let now = *changes.borrow_and_update();
            let news = [
                (now.resources != known.resources, Offer::Resources),
                (now.prompts != known.prompts, Offer::Prompts),
            ];
            for (_, offer) in news.into_iter().filter(|(changed, _)| *changed) {
                // An error means that nobody listens.
                let _ = announcements.send(Announcement { server: self.key.server.clone(), offer });
            }
            known = now;
        }
    }

    /// Its state, for people.
    pub fn state(&self) -> ServerState {
        let restarts = self.starts.load(Ordering::Relaxed).saturating_sub(1);
        let plain =
            |state| ServerState { state, since: None, reason: None, retry_in_ms: None, restarts };
        match &*self.phase.borrow() {
            Phase::Idle { ended } => ServerState { reason: ended.clone(), ..plain("idle") },
            Phase::Connecting => plain("connecting"),
            Phase::Ready { since, .. } => ServerState { since: Some(*since), ..plain("connected") },
            Phase::Failed { reason, backoff, at, sign_in } => ServerState {
                since: Some(*at),
                reason: Some(match sign_in {
                    Some(waiting) => format!("{reason}; run `{}`", waiting.needed.command),
                    None => reason.clone(),
                }),
                retry_in_ms: backoff
                    .remaining(Instant::now())
                    .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                ..plain("failed")
            },
        }
    }

    /// No new calls; its process ends once the running ones are done or `grace` is over.
    pub async fn retire(self: Arc<Self>, grace: Duration) {
        let phase = self.phase.send_replace(Phase::Idle { ended: None });
        let Phase::Ready { connection, .. } = phase else {
            self.closing.cancel();
            return;
        };
        let end = Instant::now() + grace;
        // Running calls hold the connection; this function and the watcher hold it too.
        while Arc::strong_count(&connection) > 2 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.closing.cancel();
        connection.close().await;
    }

    /// Ends it now.
    pub async fn close(&self) {
        self.closing.cancel();
        let phase = self.phase.send_replace(Phase::Idle { ended: None });
        if let Phase::Ready { connection, .. } = phase {
            connection.close().await;
        }
    }
}
