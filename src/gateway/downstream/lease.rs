//! Private servers are leased: kept while a run uses them, ended after an idle time, always ended with the gateway.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::downstream::{Downstream, Scope};
use super::gateway::Gateway;
use super::server_config::ServerSpec;
use crate::catalog::{Agent, ServerEntry};
use crate::policy::judge_server;

/// A server in use: it is not ended for being idle while anybody holds one of these.
pub(super) struct Lease {
    gateway: Weak<Gateway>,
    server: Arc<Downstream>,
}

impl Lease {
    /// The server.
    pub(super) fn server(&self) -> &Arc<Downstream> {
        &self.server
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.server.let_go() == 0 && is_private(&self.server.key.scope) {
            end_when_idle(self.gateway.clone(), Arc::clone(&self.server));
        }
    }
}

impl Gateway {
    /// The server for this scope, in use from now on.
    pub(super) fn lease(self: &Arc<Self>, scope: Scope, spec: &Arc<ServerSpec>) -> Lease {
        Lease { gateway: Arc::downgrade(self), server: self.pool().lease(scope, spec) }
    }

    /// How long a private server is kept after its last use.
    pub fn end_idle_servers_after(&self, idle: Duration) {
        self.pool().set_idle(idle);
    }

    /// Starts the private servers that these agents want ahead, and lets go of those that none of them wants any more.
    pub fn keep_ready<'a>(self: &Arc<Self>, agents: impl Iterator<Item = &'a Arc<Agent>>) {
        let wanted = agents.flat_map(|agent| agent.servers.iter().map(move |entry| (agent, entry)));
        let ready: Vec<Lease> =
            wanted.filter_map(|(agent, entry)| self.start_ahead(agent, entry)).collect();
        // The new leases are held before the old ones go: what is still wanted is never ended.
        self.replace_ready(ready);
    }

    fn start_ahead(self: &Arc<Self>, agent: &Agent, entry: &ServerEntry) -> Option<Lease> {
        let allowed =
            || judge_server(agent, &entry.name, Some(&self.in_force().rules)).is_allowed();
        if !entry.eager || entry.per_run || !allowed() {
            return None;
        }
        let spec = Arc::new(ServerSpec::from_agent(entry)?);
        let lease = self.lease(Scope::Private(agent.name.to_string()), &spec);
        let server = Arc::clone(lease.server());
        tokio::spawn(async move {
            // A failure is in the log already, and is told to whoever needs the server.
            let _ = server.tools().await;
        });
        Some(lease)
    }
}

fn is_private(scope: &Scope) -> bool {
    match scope {
        Scope::Private(_) | Scope::Run { .. } => true,
        Scope::Shared | Scope::Agent(_) => false,
    }
}

/// Ends a server once nobody has used it for the idle time; a run's own at once.
fn end_when_idle(gateway: Weak<Gateway>, server: Arc<Downstream>) {
    // Without a runtime the gateway itself is at its end.
    let (Ok(runtime), Some(known)) = (Handle::try_current(), gateway.upgrade()) else { return };
    let idle = match server.key.scope {
        Scope::Run { .. } => Duration::ZERO,
        _ => known.pool().idle(),
    };
    runtime.spawn(async move {
        tokio::time::sleep(idle).await;
        let Some(gateway) = gateway.upgrade() else { return };
        if gateway.pool().remove_idle(&server, idle) {
            tracing::info!(server = %server.key.server, "nobody uses it any more; it ends");
            server.close().await;
        }
    });
}
