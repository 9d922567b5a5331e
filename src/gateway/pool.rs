//! Every server that is or may be running, by who shares it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::downstream::{Downstream, Key, Scope};
use super::server_config::{Isolation, ServerSpec};

/// How long calls that run when their server's entry changes may go on.
const RETIRE_GRACE: Duration = Duration::from_mins(10);

/// The servers of one gateway. Nothing is ever shared across a [`Key`].
pub struct Pool {
    root: PathBuf,
    servers: Mutex<HashMap<Key, Arc<Downstream>>>,
}

impl Pool {
    /// An empty pool; relative folders of servers are under `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root, servers: Mutex::new(HashMap::new()) }
    }

    /// The server for this scope; made, but not started, where there is none.
    pub fn acquire(&self, scope: Scope, spec: &Arc<ServerSpec>) -> Arc<Downstream> {
        let key = Key { scope, server: spec.name.clone(), digest: spec.digest() };
        self.with(|servers| {
            let made = || Downstream::new(key.clone(), Arc::clone(spec), self.root.clone());
            Arc::clone(servers.entry(key.clone()).or_insert_with(made))
        })
    }

    /// The scope in which `agent` uses a server of `.mcp.json`.
    pub(super) fn scope_for(spec: &ServerSpec, agent: &str) -> Scope {
        match spec.isolation {
            Isolation::Shared => Scope::Shared,
            Isolation::Agent => Scope::Agent(agent.to_owned()),
        }
    }

    /// Lets go of the servers that `kept` does not want: calls that run on them finish.
    pub fn retain(&self, kept: impl Fn(&Key) -> bool) {
        let gone: Vec<Arc<Downstream>> = self.with(|servers| {
            let keys: Vec<Key> = servers.keys().filter(|key| !kept(key)).cloned().collect();
            keys.iter().filter_map(|key| servers.remove(key)).collect()
        });
        for server in gone {
            tracing::info!(server = %server.key.server, "is no longer configured this way; it ends");
            tokio::spawn(server.retire(RETIRE_GRACE));
        }
    }

    /// All servers, in no particular order.
    pub fn all(&self) -> Vec<Arc<Downstream>> {
        self.with(|servers| servers.values().cloned().collect())
    }

    /// Ends all servers and waits for that.
    pub async fn close(&self) {
        let all: Vec<Arc<Downstream>> =
            self.with(|servers| servers.drain().map(|(_, s)| s).collect());
        let mut ending = tokio::task::JoinSet::new();
        for server in all {
            ending.spawn(async move { server.close().await });
        }
        ending.join_all().await;
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Key, Arc<Downstream>>) -> T) -> T {
        act(&mut self.servers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
