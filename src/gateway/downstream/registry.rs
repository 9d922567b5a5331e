//! Registry of all downstream servers, by scope.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::task::JoinSet;

use super::super::features::ListChanged;
use super::log_forwarder::{LogForwarder, LogSubscription};
use super::server::{DownstreamServer, ServerKey, ServerScope};
use crate::catalog::ServerIsolation;
use crate::gateway::config::ServerSpec;
use crate::util::Mutex;

/// Time for running calls to finish after the entry of their server changed.
const RETIRE_GRACE_PERIOD: Duration = Duration::from_mins(10);

/// Idle timeout of private servers unless `defaults.yaml` sets one.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// Queued list changes per subscriber; a subscriber that misses some reads its lists again.
const MAX_QUEUED_LIST_CHANGES: usize = 64;

/// The servers of one gateway. A server is never shared between different [`ServerKey`]s.
pub struct DownstreamRegistry {
    root: PathBuf,
    servers: Mutex<HashMap<ServerKey, Arc<DownstreamServer>>>,
    idle_timeout: Mutex<Duration>,
    list_changed_sender: broadcast::Sender<ListChanged>,
    log_relay: Arc<LogSubscription>,
}

impl DownstreamRegistry {
    /// Creates an empty registry; relative directories of servers are below `root`.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            servers: Mutex::new(HashMap::new()),
            idle_timeout: Mutex::new(DEFAULT_IDLE_TIMEOUT),
            list_changed_sender: broadcast::Sender::new(MAX_QUEUED_LIST_CHANGES),
            log_relay: Arc::default(),
        }
    }

    /// Returns the server for this scope; creates but does not start it if necessary.
    pub fn get_or_create(
        &self,
        scope: ServerScope,
        spec: &Arc<ServerSpec>,
    ) -> Arc<DownstreamServer> {
        self.get_or_insert(&mut self.servers.lock(), scope, spec)
    }

    /// Like [`Self::get_or_create`], and adds a lease, so that the server is not ended for being idle.
    pub(crate) fn acquire_lease(
        &self,
        scope: ServerScope,
        spec: &Arc<ServerSpec>,
    ) -> Arc<DownstreamServer> {
        let mut servers = self.servers.lock();
        let server = self.get_or_insert(&mut servers, scope, spec);
        server.acquire_lease();
        server
    }

    fn get_or_insert(
        &self,
        servers: &mut HashMap<ServerKey, Arc<DownstreamServer>>,
        scope: ServerScope,
        spec: &Arc<ServerSpec>,
    ) -> Arc<DownstreamServer> {
        let key = ServerKey { scope, server: spec.name.clone(), digest: spec.digest.clone() };
        if let Some(server) = servers.get(&key) {
            return Arc::clone(server);
        }
        // Only shared servers notify clients.
        let is_private = key.scope.private_owner().is_some();
        let announcements = (!is_private).then(|| self.list_changed_sender.clone());
        let voice = (!is_private).then(|| LogForwarder::new(Arc::clone(&self.log_relay)));
        let (spec, root) = (Arc::clone(spec), self.root.clone());
        let server = DownstreamServer::new(key.clone(), spec, root, announcements, voice);
        servers.insert(key, Arc::clone(&server));
        server
    }

    /// Removes a server that has been idle for `idle`; returns false if it was used or removed already.
    pub(crate) fn remove_idle(&self, server: &Arc<DownstreamServer>, idle: Duration) -> bool {
        let mut servers = self.servers.lock();
        let same = servers.get(&server.key).is_some_and(|known| Arc::ptr_eq(known, server));
        let over = same && server.is_idle_for(idle);
        if over {
            servers.remove(&server.key);
        }
        over
    }

    /// Returns the idle timeout of private servers.
    pub(crate) fn idle(&self) -> Duration {
        *self.idle_timeout.lock()
    }

    pub(crate) fn set_idle_timeout(&self, idle: Duration) {
        *self.idle_timeout.lock() = idle;
    }

    pub(crate) fn announcements(&self) -> broadcast::Receiver<ListChanged> {
        self.list_changed_sender.subscribe()
    }

    pub(crate) fn log_subscription(&self) -> &Arc<LogSubscription> {
        &self.log_relay
    }

    /// Stops forwarding of log messages of each server until the next allowed call.
    pub(crate) fn stop_log_forwarding(&self) {
        for forwarder in self.all().iter().filter_map(|server| server.log_forwarder.as_ref()) {
            forwarder.stop_forwarding();
        }
    }

    /// Returns the scope in which `agent` uses a server of `.mcp.json`.
    pub(crate) fn scope_for(spec: &ServerSpec, agent: &str) -> ServerScope {
        match spec.isolation {
            ServerIsolation::Shared => ServerScope::Shared,
            ServerIsolation::Agent | ServerIsolation::Run => ServerScope::Agent(agent.to_owned()),
        }
    }

    /// Retires the servers for which `kept` is false: running calls have 10 min to finish.
    pub fn retain(&self, kept: impl Fn(&ServerKey) -> bool) {
        let gone: Vec<_> = self.servers.lock().extract_if(|key, _| !kept(key)).collect();
        for (_, server) in gone {
            tracing::info!(server = %server.key.server, "is no longer configured this way; it ends");
            tokio::spawn(server.retire(RETIRE_GRACE_PERIOD));
        }
    }

    /// Returns all servers in no particular order.
    pub fn all(&self) -> Vec<Arc<DownstreamServer>> {
        self.servers.lock().values().cloned().collect()
    }

    /// Ends all servers and waits for their processes.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.servers.lock());
        let ending: JoinSet<()> =
            all.into_values().map(|server| async move { server.close().await }).collect();
        ending.join_all().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::ServerSet;

    #[tokio::test]
    async fn notifications_of_private_servers_are_not_forwarded() {
        let servers = ServerSet::parse(r#"{"mcpServers": {"s": {"command": "true"}}}"#).unwrap();
        let spec = servers.get("s").unwrap().spec.as_ref().unwrap();
        let pool = DownstreamRegistry::new(PathBuf::from("/"));
        let agent = || "a".to_owned();
        for (scope, is_heard) in [
            (ServerScope::Shared, true),
            (ServerScope::Agent(agent()), true),
            (ServerScope::Private(agent()), false),
            (ServerScope::Run { agent: agent(), run: "r".to_owned() }, false),
        ] {
            let server = pool.get_or_create(scope, spec);
            assert_eq!(server.log_forwarder.is_some(), is_heard, "{:?}", server.key);
            assert_eq!(server.list_changed_sender.is_some(), is_heard, "{:?}", server.key);
        }
    }
}
