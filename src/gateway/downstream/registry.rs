//! Every server that is or may be running, by who shares it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;

use super::downstream::{Downstream, Key, Scope};
use super::log_relay::{LogRelay, Voice};
use super::offers::Announcement;
use super::server_config::{Isolation, ServerSpec};

/// How long calls that run when their server's entry changes may go on.
const RETIRE_GRACE: Duration = Duration::from_mins(10);

/// How long a private server is kept after its last use, where `defaults.yaml` does not say.
const USUAL_IDLE: Duration = Duration::from_mins(5);
/// Announcements that may wait for a slow listener; one that misses some reads its lists again.
const ANNOUNCEMENTS: usize = 64;

/// The servers of one gateway. Nothing is ever shared across a [`Key`].
pub struct Pool {
    root: PathBuf,
    servers: Mutex<HashMap<Key, Arc<Downstream>>>,
    idle: Mutex<Duration>,
    announcements: broadcast::Sender<Announcement>,
    log_relay: Arc<LogRelay>,
}

impl Pool {
    /// An empty pool; relative folders of servers are under `root`.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            servers: Mutex::new(HashMap::new()),
            idle: Mutex::new(USUAL_IDLE),
            announcements: broadcast::Sender::new(ANNOUNCEMENTS),
            log_relay: Arc::default(),
        }
    }

    /// The server for this scope; made, but not started, where there is none.
    pub fn acquire(&self, scope: Scope, spec: &Arc<ServerSpec>) -> Arc<Downstream> {
        self.with(|servers| self.find_or_make(servers, scope, spec))
    }

    /// The same, in use from now on: it is not ended for being idle.
    pub(super) fn lease(&self, scope: Scope, spec: &Arc<ServerSpec>) -> Arc<Downstream> {
        self.with(|servers| {
            let server = self.find_or_make(servers, scope, spec);
            server.take();
            server
        })
    }

    fn find_or_make(
        &self,
        servers: &mut HashMap<Key, Arc<Downstream>>,
        scope: Scope,
        spec: &Arc<ServerSpec>,
    ) -> Arc<Downstream> {
        let key = Key { scope, server: spec.name.clone(), digest: spec.digest().to_owned() };
        if let Some(server) = servers.get(&key) {
            return Arc::clone(server);
        }
        let (announcements, voice) = match key.scope {
            Scope::Shared | Scope::Agent(_) => {
                (Some(self.announcements.clone()), Some(Voice::new(Arc::clone(&self.log_relay))))
            }
            Scope::Private(_) | Scope::Run { .. } => (None, None),
        };
        let (spec, root) = (Arc::clone(spec), self.root.clone());
        let server = Downstream::new(key.clone(), spec, root, announcements, voice);
        servers.insert(key, Arc::clone(&server));
        server
    }

    /// Takes a server out that nobody has used for `idle`; `false` where somebody has, or did so before.
    pub(super) fn remove_idle(&self, server: &Arc<Downstream>, idle: Duration) -> bool {
        self.with(|servers| {
            let same = servers.get(&server.key).is_some_and(|known| Arc::ptr_eq(known, server));
            let over = same && server.is_idle_for(idle);
            if over {
                servers.remove(&server.key);
            }
            over
        })
    }

    /// How long a private server is kept after its last use.
    pub(super) fn idle(&self) -> Duration {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_idle(&self, idle: Duration) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = idle;
    }

    pub(super) fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    pub(super) fn log_relay(&self) -> &Arc<LogRelay> {
        &self.log_relay
    }

    /// Nobody hears what servers log before the next allowed call.
    pub(super) fn forget_calls(&self) {
        let servers = self.all();
        servers.iter().filter_map(|server| server.voice.as_ref()).for_each(|v| v.forget_calls());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::ServerSet;

    #[tokio::test]
    async fn nobody_hears_what_a_private_server_says_by_itself() {
        let servers = ServerSet::parse(r#"{"mcpServers": {"s": {"command": "true"}}}"#).unwrap();
        let spec = servers.get("s").unwrap().spec.as_ref().unwrap();
        let pool = Pool::new(PathBuf::from("/"));
        let agent = || "a".to_owned();
        for (scope, is_heard) in [
            (Scope::Shared, true),
            (Scope::Agent(agent()), true),
            (Scope::Private(agent()), false),
            (Scope::Run { agent: agent(), run: "r".to_owned() }, false),
        ] {
            let server = pool.acquire(scope, spec);
            assert_eq!(server.voice.is_some(), is_heard, "{:?}", server.key);
            assert_eq!(server.announcements.is_some(), is_heard, "{:?}", server.key);
        }
    }
}
