//! One server as one scope of callers sees it: what is asked of it, and who uses it.
//!
//! How it is started and brought back is in `connecting`; in which state it is, in `phase`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client_side::{Changes, ListChanges};
use super::connection::{Connection, RequestOptions};
use super::error::GatewayError;
use super::log_relay::Voice;
use super::offers::Announcement;
use super::phase::{Phase, ServerState};
use super::server_config::ServerSpec;
use super::tool_list::{self, ToolList};

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
    /// Its arguments, as they came; a JSON object.
    pub arguments: Box<RawValue>,
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
    pub(super) root: PathBuf,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) changes: Arc<Changes>,
    pub(super) starts: AtomicU64,
    pub(super) closing: CancellationToken,
    /// Whether somebody brings it back without being called.
    pub(super) is_kept_up: AtomicBool,
    /// Where all learn that its lists changed; nobody learns that of a private server.
    pub(super) announcements: Option<broadcast::Sender<Announcement>>,
    /// How its log messages reach the client; those of a private server do not.
    pub(super) voice: Option<Arc<Voice>>,
    leases: AtomicUsize,
    last_let_go: Mutex<Instant>,
}

/// What a server said about itself.
pub(super) struct Introduction {
    pub(super) resources: bool,
    pub(super) prompts: bool,
    pub(super) instructions: Option<String>,
}

impl Downstream {
    /// A server that nobody has called yet. Relative folders in `spec` are under `root`.
    pub(super) fn new(
        key: Key,
        spec: Arc<ServerSpec>,
        root: PathBuf,
        announcements: Option<broadcast::Sender<Announcement>>,
        voice: Option<Voice>,
    ) -> Arc<Self> {
        Arc::new(Self {
            announcements,
            voice: voice.map(Arc::new),
            leases: AtomicUsize::new(0),
            last_let_go: Mutex::new(Instant::now()),
            key,
            spec,
            root,
            phase: watch::Sender::new(Phase::Idle { ended: None }),
            changes: Arc::new(watch::Sender::new(ListChanges::default())),
            starts: AtomicU64::new(0),
            closing: CancellationToken::new(),
            is_kept_up: AtomicBool::new(false),
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
    pub async fn call_tool(
        self: &Arc<Self>,
        call: ToolCall,
    ) -> Result<Box<RawValue>, GatewayError> {
        let allowed = call.deadline.unwrap_or(self.spec.timeout);
        let end = Instant::now() + allowed;
        let connection = match self.connected() {
            Some(connection) => connection,
            // In a box: see `Gateway::execute_judged`.
            None => Box::pin(self.connection_by(end, allowed, &call.cancelled)).await?,
        };
        let options = RequestOptions {
            deadline: end.saturating_duration_since(Instant::now()),
            cancelled: call.cancelled,
            progress: call.progress,
        };
        let called = connection.call(&call.tool, &call.arguments, options).await;
        // The caller set one deadline for starting and answering together.
        called.map_err(|error| error.within(allowed))
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

    /// The connection and its tools, where there is one that lives, they have been read and nothing has changed since.
    pub(super) fn at_hand(&self) -> Option<(Arc<Connection>, Arc<ToolList>)> {
        let connection = self.connected()?;
        let tools = connection.known_tools(self.changes.borrow().tools)?;
        Some((connection, tools))
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

    /// The client makes an allowed call: from now on it may hear what the server logs.
    pub(super) fn note_call(&self) {
        if let Some(voice) = &self.voice {
            voice.note_call();
        }
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

    /// Its state, for people.
    pub fn state(&self) -> ServerState {
        let restarts = self.starts.load(Ordering::Relaxed).saturating_sub(1);
        self.phase.borrow().state(restarts)
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
