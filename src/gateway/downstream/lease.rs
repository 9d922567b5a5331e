//! Leases on private servers: a server without a lease is ended after an idle timeout.
//!
//! At shutdown all servers are ended, leased or not.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::super::gateway::Gateway;
use super::server::{DownstreamServer, ServerScope};
use crate::catalog::{Agent, ServerEntry};
use crate::gateway::config::ServerSpec;
use crate::policy::evaluate_server;

/// A lease on a downstream server, which is not ended for being idle while a lease exists.
pub(crate) struct ServerLease {
    gateway: Weak<Gateway>,
    server: Arc<DownstreamServer>,
}

impl ServerLease {
    pub(crate) fn server(&self) -> &Arc<DownstreamServer> {
        &self.server
    }
}

impl Drop for ServerLease {
    fn drop(&mut self) {
        if self.server.release_lease() == 0 && self.server.key.scope.private_owner().is_some() {
            stop_when_idle(self.gateway.clone(), Arc::clone(&self.server));
        }
    }
}

impl Gateway {
    /// Acquires a lease on the server of this scope.
    pub(crate) fn acquire_lease(
        self: &Arc<Self>,
        scope: ServerScope,
        spec: &Arc<ServerSpec>,
    ) -> ServerLease {
        ServerLease {
            gateway: Arc::downgrade(self),
            server: self.downstreams().acquire_lease(scope, spec),
        }
    }

    /// Sets the idle timeout of private servers.
    pub fn set_idle_timeout(&self, idle: Duration) {
        self.downstreams().set_idle_timeout(idle);
    }

    /// Starts the eager private servers of these agents and releases those that no agent wants any more.
    pub fn prestart_private_servers<'a>(
        self: &Arc<Self>,
        agents: impl Iterator<Item = &'a Arc<Agent>>,
    ) {
        let wanted = agents.flat_map(|agent| agent.servers.iter().map(move |entry| (agent, entry)));
        let ready: Vec<ServerLease> =
            wanted.filter_map(|(agent, entry)| self.prestart(agent, entry)).collect();
        // New leases are acquired before the old ones are dropped, so that a server in both sets keeps running.
        self.replace_prestarted(ready);
    }

    fn prestart(self: &Arc<Self>, agent: &Agent, entry: &ServerEntry) -> Option<ServerLease> {
        let allowed =
            || evaluate_server(agent, &entry.name, Some(&self.in_force().rules)).is_allowed();
        if !entry.is_eager() || entry.is_per_run() || !allowed() {
            return None;
        }
        let spec = Arc::new(ServerSpec::from_entry(entry)?);
        let lease = self.acquire_lease(ServerScope::Private(agent.name.to_string()), &spec);
        let server = Arc::clone(lease.server());
        tokio::spawn(async move {
            // An error is already in the log and is returned to the next caller.
            let _ = server.tools().await;
        });
        Some(lease)
    }
}

/// Ends a server after the idle timeout; the server of a run immediately.
fn stop_when_idle(gateway: Weak<Gateway>, server: Arc<DownstreamServer>) {
    // Without a runtime the gateway is already shutting down.
    let (Ok(runtime), Some(known)) = (Handle::try_current(), gateway.upgrade()) else { return };
    let idle = match server.key.scope {
        ServerScope::Run { .. } => Duration::ZERO,
        _ => known.downstreams().idle(),
    };
    runtime.spawn(async move {
        tokio::time::sleep(idle).await;
        let Some(gateway) = gateway.upgrade() else { return };
        if gateway.downstreams().remove_idle(&server, idle) {
            tracing::info!(server = %server.key.server, "nobody uses it any more; it ends");
            server.close().await;
        }
    });
}
