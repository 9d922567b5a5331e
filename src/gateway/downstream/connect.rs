//! Starting a server when it is needed, and bringing it back when it dies.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::connection::{Connection, Opening, RequestOptions, Unopened};
use super::downstream::{Downstream, Scope};
use super::error::GatewayError;
use super::offers::{Announcement, List};
use super::phase::{Phase, Waiting};
use super::resolved::{self, Resolved};
use super::sign_in::{Keeper, SignInTarget};
use crate::base::now;

const SET_LEVEL: &str = "logging/setLevel";

impl Downstream {
    /// Starts it, if it is not, and waits until it answers.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<Arc<Connection>, GatewayError> {
        let patience = self.spec.startup_timeout + Duration::from_secs(5);
        self.connection_by(Instant::now() + patience, patience, &CancellationToken::new()).await
    }

    /// Keeps it running and its tools known, with the breaker's pauses, until the gateway lets go of it.
    pub(super) async fn keep_up(self: Arc<Self>) {
        if self.is_kept_up.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut phases = self.phase.subscribe();
        loop {
            phases.mark_unchanged();
            // A failure is in the log and the status already.
            let _ = self.tools().await;
            let pause = self.phase.borrow().pause();
            tokio::select! {
                changed = phases.changed() => if changed.is_err() { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                () = self.closing.cancelled() => return,
            }
        }
    }

    /// The connection, if there is one that lives.
    pub(super) fn connected(&self) -> Option<Arc<Connection>> {
        match &*self.phase.borrow() {
            Phase::Ready { connection, .. } if connection.is_alive() => Some(connection.clone()),
            _ => None,
        }
    }

    pub(super) async fn connection_by(
        self: &Arc<Self>,
        end: Instant,
        allowed: Duration,
        cancelled: &CancellationToken,
    ) -> Result<Arc<Connection>, GatewayError> {
        if let Some(connection) = self.connected() {
            return Ok(connection);
        }
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
            voice: self.voice.clone(),
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
        tokio::select! {
            () = self.pass_on_until(connection.ended()) => {}
            never = self.hand_level_on(connection) => match never {},
        }
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

    /// Tells a server that knows levels which one the client wants, whenever it says so.
    async fn hand_level_on(&self, connection: &Connection) -> Infallible {
        let voice = self.voice.as_ref().filter(|_| connection.offers("logging"));
        let Some(voice) = voice else { return pending().await };
        let mut wanted = voice.level();
        loop {
            let level = *wanted.borrow_and_update();
            if let Some(level) = level {
                let options = RequestOptions::within(self.spec.timeout);
                let told = connection.request(SET_LEVEL, json!({ "level": level }), options).await;
                if let Err(error) = told {
                    tracing::debug!(server = %self.key.server, "the level of its log stays: {error}");
                }
            }
            if wanted.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Tells all who may use the server that one of its lists changed.
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
                (now.tools != known.tools, List::Tools),
                (now.resources != known.resources, List::Resources),
                (now.prompts != known.prompts, List::Prompts),
            ];
            for (_, list) in news.into_iter().filter(|(changed, _)| *changed) {
                // An error means that nobody listens.
                let _ = announcements.send(Announcement { server: self.key.server.clone(), list });
            }
            known = now;
        }
    }
}
