//! One downstream server within one scope: its requests, its lists and its leases.
//!
//! Connecting is in `connect`, the state machine in `state`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::super::error::GatewayError;
use super::super::features::ListChanged;
use super::connection::DownstreamConnection;
use super::log_forwarder::LogForwarder;
use super::notifications::{ListChangeCounters, ListChanges};
use super::state::{Backoff, ServerReport, ServerState};
use super::tools;
use super::tools::ToolList;
use crate::gateway::config::ServerSpec;
use crate::util::Mutex;

/// Lists above 4 MiB are not cached.
const MAX_CACHED_BYTES: usize = 4 << 20;

/// Set of callers that share a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerScope {
    /// All agents that the gateway rules allow.
    Shared,
    /// One agent with its own process of a server in `.mcp.json`.
    Agent(String),
    /// Private server of one agent.
    Private(String),
    /// Private server of one run.
    Run {
        agent: String,
        /// `RunId` as text.
        run: String,
    },
}

impl ServerScope {
    /// Returns the agent that owns a private server.
    pub(crate) fn private_owner(&self) -> Option<&str> {
        match self {
            Self::Private(agent) | Self::Run { agent, .. } => Some(agent),
            Self::Shared | Self::Agent(_) => None,
        }
    }
}

/// Key of a connection: scope, server and configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerKey {
    pub scope: ServerScope,
    pub server: String,
    /// [`ServerSpec::digest`]: an entry that changes gets another key and therefore another process.
    pub digest: String,
}

/// A configured server in any state.
pub struct DownstreamServer {
    pub key: ServerKey,
    /// Configuration.
    pub spec: Arc<ServerSpec>,
    pub(crate) root: PathBuf,
    pub(crate) state_sender: watch::Sender<ServerState>,
    pub(crate) changes: Arc<ListChangeCounters>,
    pub(crate) known_resources: KnownResources,
    pub(crate) start_count: AtomicU64,
    pub(crate) closing: CancellationToken,
    /// Set while [`Self::keep_alive`] runs.
    pub(crate) is_kept_alive: AtomicBool,
    /// Backoff between restarts of an eager server that worked and ended. Calls do not wait for it.
    pub(crate) restart_backoff: Mutex<Backoff>,
    /// Channel for `list_changed` notifications; `None` for private servers.
    pub(crate) list_changed_sender: Option<broadcast::Sender<ListChanged>>,
    /// Forwarder of log messages to the client; `None` for private servers.
    pub(crate) log_forwarder: Option<Arc<LogForwarder>>,
    leases: AtomicUsize,
    last_released: Mutex<Instant>,
}

impl DownstreamServer {
    /// Creates a server that is not started yet. Relative directories in `spec` are below `root`.
    pub(crate) fn new(
        key: ServerKey,
        spec: Arc<ServerSpec>,
        root: PathBuf,
        announcements: Option<broadcast::Sender<ListChanged>>,
        voice: Option<LogForwarder>,
    ) -> Arc<Self> {
        Arc::new(Self {
            list_changed_sender: announcements,
            log_forwarder: voice.map(Arc::new),
            leases: AtomicUsize::new(0),
            last_released: Mutex::new(Instant::now()),
            key,
            spec,
            root,
            state_sender: watch::Sender::new(ServerState::Idle { ended: None }),
            changes: Arc::new(watch::Sender::new(ListChanges::default())),
            known_resources: KnownResources::default(),
            start_count: AtomicU64::new(0),
            closing: CancellationToken::new(),
            is_kept_alive: AtomicBool::new(false),
            restart_backoff: Mutex::default(),
        })
    }

    /// Returns the name under which the tools are pinned.
    ///
    /// A private server has pins of its own, under `agent/server`.
    pub(crate) fn pin_key(&self) -> String {
        match self.key.scope.private_owner() {
            None => self.key.server.clone(),
            Some(agent) => format!("{agent}/{}", self.key.server),
        }
    }

    /// Returns all items of a list (`resources/list`, …); empty if the server lacks the capability.
    pub async fn list(
        self: &Arc<Self>,
        capability: &str,
        method: &str,
        field: &str,
    ) -> Result<Vec<Value>, GatewayError> {
        let connection = self.ensure_connected().await?;
        if !connection.has_capability(capability) {
            return Ok(Vec::new());
        }
        Ok(tools::read_list(&connection, method, field, self.spec.timeout).await?.0)
    }

    /// Returns the version of the lists of resources and templates.
    pub(crate) fn resources_version(&self) -> ListVersion {
        let changes = self.changes.borrow().resources;
        ListVersion { starts: self.start_count.load(Ordering::Relaxed), changes }
    }

    /// Returns the connection and its tools if both are current; never waits.
    pub(crate) fn cached_connection_and_tools(
        &self,
    ) -> Option<(Arc<DownstreamConnection>, Arc<ToolList>)> {
        let connection = self.live_connection()?;
        let tools = connection.cached_tools(self.changes.borrow().tools)?;
        Some((connection, tools))
    }

    /// Returns the tools; read once per connection and again after `tools/list_changed`.
    pub async fn tools(self: &Arc<Self>) -> Result<Arc<ToolList>, GatewayError> {
        let connection = self.ensure_connected().await?;
        let known = connection.cached_tools(self.changes.borrow().tools);
        match known {
            Some(tools) => Ok(tools),
            None => self.read_tools(&connection).await,
        }
    }

    /// Reads the tools again, for a name that is missing in the cached list.
    pub async fn reload_tools(self: &Arc<Self>) -> Result<Arc<ToolList>, GatewayError> {
        let connection = self.ensure_connected().await?;
        self.read_tools(&connection).await
    }

    async fn read_tools(
        &self,
        connection: &Arc<DownstreamConnection>,
    ) -> Result<Arc<ToolList>, GatewayError> {
        // Read before the list: a change during the request makes the list stale immediately.
        let change = self.changes.borrow().tools;
        let list = Arc::new(tools::read_tools(connection, self.spec.timeout).await?);
        for warning in &list.warnings {
            tracing::warn!(server = %self.key.server, "{warning}");
        }
        connection.cache_tools(change, Arc::clone(&list));
        Ok(list)
    }

    /// Notes an allowed call of the client, which may receive the log messages of the server from now on.
    pub(crate) fn note_call(&self) {
        if let Some(voice) = &self.log_forwarder {
            voice.allow_forwarding();
        }
    }

    /// Adds a lease.
    pub(crate) fn acquire_lease(&self) {
        self.leases.fetch_add(1, Ordering::SeqCst);
    }

    /// Releases a lease; returns the number of remaining leases.
    pub(crate) fn release_lease(&self) -> usize {
        *self.last_released.lock() = Instant::now();
        self.leases.fetch_sub(1, Ordering::SeqCst).saturating_sub(1)
    }

    /// Returns true if there is no lease and the last one was released at least `idle` ago.
    pub(crate) fn is_idle_for(&self, idle: Duration) -> bool {
        let since = *self.last_released.lock();
        self.leases.load(Ordering::SeqCst) == 0 && since.elapsed() >= idle
    }

    /// Returns the state shown in the status.
    pub fn report(&self) -> ServerReport {
        let restarts = self.start_count.load(Ordering::Relaxed).saturating_sub(1);
        let restart_in =
            self.remaining_restart_delay().filter(|_| self.is_kept_alive.load(Ordering::Relaxed));
        self.state_sender.borrow().report(restarts, restart_in)
    }

    /// Returns the time until an eager server that worked and ended is restarted.
    pub(crate) fn remaining_restart_delay(&self) -> Option<Duration> {
        let restarts = self.restart_backoff.lock();
        restarts.remaining(Instant::now())
    }

    /// Rejects new calls and ends the process when running calls are done, at the latest after `grace`.
    pub async fn retire(self: Arc<Self>, grace: Duration) {
        let phase = self.state_sender.send_replace(ServerState::Retired);
        let ServerState::Ready { connection, .. } = phase else {
            self.closing.cancel();
            return;
        };
        let _ = timeout(grace, connection.wait_until_unused()).await;
        self.closing.cancel();
        connection.close().await;
    }

    /// Ends the server immediately; running calls fail.
    pub async fn close(&self) {
        self.closing.cancel();
        let phase = self.state_sender.send_replace(ServerState::Retired);
        if let ServerState::Ready { connection, .. } = phase {
            connection.close().await;
        }
    }
}

/// Version of a list: number of starts of the server and number of announced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListVersion {
    pub(crate) starts: u64,
    pub(crate) changes: u64,
}

/// Cached list of URIs or URI templates.
#[derive(Default)]
pub(crate) struct KnownList(Mutex<Option<(ListVersion, Arc<[String]>)>>);

impl KnownList {
    /// Returns the list if it was read at this version.
    pub(crate) fn get(&self, version: ListVersion) -> Option<Arc<[String]>> {
        let known = self.0.lock();
        known.as_ref().filter(|(read_in, _)| *read_in == version).map(|(_, uris)| Arc::clone(uris))
    }

    pub(crate) fn set(&self, version: ListVersion, uris: Arc<[String]>) {
        let bytes: usize = uris.iter().map(String::len).sum();
        let known = (bytes <= MAX_CACHED_BYTES).then_some((version, uris));
        *self.0.lock() = known;
    }
}

/// Cached resource URIs of a server, valid until its list changes or it is started again.
///
/// Without them, reading one resource would list the resources of all allowed servers and so start all of them. The URIs
/// of a server that has ended are kept: they tell which server to start.
#[derive(Default)]
pub(crate) struct KnownResources {
    pub(crate) uris: KnownList,
    pub(crate) templates: KnownList,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cached_for_one_version_unless_it_is_too_long() {
        let (known, version) = (KnownList::default(), ListVersion { starts: 1, changes: 0 });
        known.set(version, ["a://b".to_owned()].into());
        assert_eq!(known.get(version).as_deref(), Some(&["a://b".to_owned()][..]));
        assert_eq!(known.get(ListVersion { starts: 2, ..version }), None);
        assert_eq!(known.get(ListVersion { changes: 1, ..version }), None);
        known.set(version, ["x".repeat(MAX_CACHED_BYTES + 1)].into());
        assert_eq!(known.get(version), None);
    }
}
