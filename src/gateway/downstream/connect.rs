//! Connects a server on demand and reconnects it when it ends.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::super::error::GatewayError;
use super::super::features::ListChanged;
use super::connection::DownstreamConnection;
use super::open_connection::{ConnectError, ConnectRequest};
use super::server::{DownstreamServer, ServerScope};
use super::state::{Backoff, ServerState, SignInPending};
use crate::gateway::config::{ServerEndpoint, resolve};
use crate::gateway::oauth::{SignInTarget, TokenSource};
use crate::util::now;

const SET_LEVEL_METHOD: &str = "logging/setLevel";

impl DownstreamServer {
    /// Keeps an eager server connected, with its tool list loaded, until it is retired.
    /// Restarts after backoff.
    pub(crate) async fn keep_alive(self: Arc<Self>) {
        if self.is_kept_alive.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut phases = self.state_sender.subscribe();
        loop {
            if matches!(*phases.borrow_and_update(), ServerState::Retired) {
                return;
            }
            // `watch_connection` sets the backoff after a connection ends; before that there is nothing to start.
            if self.restart_delay().is_none() && !self.is_ending() {
                // An error is already in the log and the status.
                let _ = self.tools().await;
            }
            let pause = self.restart_delay();
            tokio::select! {
                changed = phases.changed() => if changed.is_err() { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Returns the time until an eager server is restarted; `None` if it is running or due.
    fn restart_delay(&self) -> Option<Duration> {
        let phase = self.state_sender.borrow();
        let is_idle = matches!(*phase, ServerState::Idle { .. });
        if is_idle { self.remaining_restart_delay() } else { phase.remaining_delay() }
    }

    /// Returns true after the connection has ended and before `watch_connection` has updated the state.
    fn is_ending(&self) -> bool {
        matches!(&*self.state_sender.borrow(), ServerState::Ready { connection, .. } if !connection.is_alive())
    }

    /// Returns the connection if it is alive; never waits.
    pub(crate) fn live_connection(&self) -> Option<Arc<DownstreamConnection>> {
        match &*self.state_sender.borrow() {
            ServerState::Ready { connection, .. } if connection.is_alive() => {
                Some(connection.clone())
            }
            _ => None,
        }
    }

    /// Returns the connection; starts the server if necessary. Waits at most `startup_timeout` plus 5 s.
    pub(crate) async fn ensure_connected(
        self: &Arc<Self>,
    ) -> Result<Arc<DownstreamConnection>, GatewayError> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let limit = self.spec.startup_timeout + Duration::from_secs(5);
        let end = Instant::now() + limit;
        let mut phases = self.state_sender.subscribe();
        loop {
            let phase = phases.borrow_and_update().clone();
            match phase {
                ServerState::Ready { connection, .. } if connection.is_alive() => {
                    return Ok(connection);
                }
                ServerState::Connecting => {}
                ServerState::Retired => {
                    let reason = "its entry has changed, or the gateway stops it";
                    return Err(GatewayError::unavailable(&self.key.server, reason));
                }
                ServerState::Idle { .. } | ServerState::Ready { .. } => self.start_connecting(),
                failed @ ServerState::Failed { .. } => match failed.failure(&self.key.server) {
                    Some(error) => return Err(error),
                    None => self.start_connecting(),
                },
            }
            if timeout_at(end, phases.changed()).await.is_err() {
                let server = self.key.server.clone();
                return Err(GatewayError::Timeout { server, after: limit });
            }
        }
    }

    /// Starts a connection attempt unless another caller has started one.
    ///
    /// The attempt is a task of its own: a caller that is cancelled must not drop a half-started server.
    fn start_connecting(self: &Arc<Self>) {
        let mut failures = Backoff::default();
        let ours = self.state_sender.send_if_modified(|phase| {
            if let ServerState::Failed { backoff, .. } = phase {
                failures = backoff.clone();
            }
            let begins = match phase {
                ServerState::Connecting | ServerState::Retired => false,
                ServerState::Ready { connection, .. } => !connection.is_alive(),
                ServerState::Failed { .. } => phase.remaining_delay().is_none(),
                ServerState::Idle { .. } => true,
            };
            if begins {
                *phase = ServerState::Connecting;
            }
            begins
        });
        if ours {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.connect(failures).await });
        }
    }

    async fn connect(self: Arc<Self>, failures: Backoff) {
        self.start_count.fetch_add(1, Ordering::Relaxed);
        let cancel = self.closing.child_token();
        let opening = match self.connect_request() {
            Ok(opening) => opening,
            Err(reason) => return self.set_failed(reason, failures, None),
        };
        let token_source = opening.token_source.clone();
        // Read before the attempt, so that a sign-in during the attempt is detected.
        let seen = token_source.as_ref().and_then(|token_source| token_source.version());
        match opening.open(cancel).await {
            Ok(connection) => {
                tracing::info!(server = %self.key.server, "connected");
                let opened = Instant::now();
                let ready = Arc::clone(&connection);
                self.set_state(ServerState::Ready { connection: ready, since: now(), failures });
                self.watch_connection(&connection, opened).await;
            }
            Err(ConnectError { reason, sign_in }) => {
                let reason = sign_in.as_ref().map_or(reason, |needed| needed.reason.clone());
                let waiting = sign_in.zip(token_source).map(|(needed, token_source)| {
                    // A refresh that was rejected during this attempt is part of this failure, not a new sign-in.
                    let seen = token_source.version().filter(|_| seen.is_some()).or(seen);
                    SignInPending { needed, token_source, seen_version: seen }
                });
                self.set_failed(reason, failures, waiting);
            }
        }
    }

    fn connect_request(&self) -> Result<ConnectRequest, String> {
        let (resolved, secrets) = resolve(&self.spec, &self.root)?;
        let token_source = self.token_source(&resolved)?;
        Ok(ConnectRequest {
            token_source,
            server: self.key.server.as_str().into(),
            endpoint: resolved,
            secrets,
            changes: Arc::clone(&self.changes),
            log_forwarder: self.log_forwarder.clone(),
            connect_timeout: self.spec.startup_timeout,
        })
    }

    /// Returns the token source of an HTTP server; `None` if the entry has its own `Authorization` header.
    fn token_source(&self, resolved: &ServerEndpoint) -> Result<Option<Arc<TokenSource>>, String> {
        let ServerEndpoint::Http(network) = resolved else { return Ok(None) };
        if network.has_own_authorization() {
            return Ok(None);
        }
        let agent = match &self.key.scope {
            ServerScope::Shared => None,
            ServerScope::Agent(agent) => Some(agent).filter(|_| self.spec.oauth.per_agent),
            ServerScope::Private(agent) | ServerScope::Run { agent, .. } => Some(agent),
        };
        let target = SignInTarget::new(&self.root, &self.spec, agent.map(String::as_str));
        Ok(Some(Arc::new(TokenSource::new(target.map_err(|error| error.to_string())?))))
    }

    fn set_failed(&self, reason: String, mut backoff: Backoff, sign_in: Option<SignInPending>) {
        backoff.record_failure(Instant::now());
        tracing::warn!(server = %self.key.server, failures = backoff.failures(), "unavailable: {reason}");
        self.set_state(ServerState::Failed { reason, backoff, at: now(), sign_in });
    }

    /// Sets the state after a connection attempt. A server that was retired in the meantime stays retired.
    fn set_state(&self, outcome: ServerState) {
        self.state_sender.send_if_modified(|phase| {
            let is_in_use = !matches!(phase, ServerState::Retired);
            if is_in_use {
                *phase = outcome;
            }
            is_in_use
        });
    }

    /// Waits for the end of a connection, then sets the state and the backoff before the next attempt.
    async fn watch_connection(&self, connection: &Arc<DownstreamConnection>, opened: Instant) {
        tokio::select! {
            () = self.forward_notifications(connection.wait_until_ended()) => {}
            never = self.sync_log_level(connection) => match never {},
        }
        let reason = connection.end_reason().await;
        if self.closing.is_cancelled() {
            return;
        }
        tracing::warn!(server = %self.key.server, "ended: {reason}");
        self.state_sender.send_if_modified(|phase| {
            let ServerState::Ready { connection: current, failures, .. } = phase else {
                return false;
            };
            if !Arc::ptr_eq(current, connection) {
                return false;
            }
            let (reason, now_at) = (reason.clone(), Instant::now());
            *phase = if connection.has_responded() {
                self.restart_backoff.lock().record_disconnect(opened.elapsed(), now_at);
                ServerState::Idle { ended: Some(reason) }
            } else {
                let mut backoff = failures.clone();
                backoff.record_failure(now_at);
                ServerState::Failed { reason, backoff, at: now(), sign_in: None }
            };
            true
        });
    }

    /// Sends `logging/setLevel` whenever the client changes the level, if the server has the capability.
    async fn sync_log_level(&self, connection: &Arc<DownstreamConnection>) -> Infallible {
        let voice = self.log_forwarder.as_ref().filter(|_| connection.has_capability("logging"));
        let Some(voice) = voice else { return pending().await };
        let mut wanted = voice.subscribe_level();
        loop {
            let level = *wanted.borrow_and_update();
            if let Some(level) = level {
                let (params, timeout) = (json!({ "level": level }), self.spec.timeout);
                let told = connection.request(SET_LEVEL_METHOD, params, timeout, None).await;
                if let Err(error) = told {
                    tracing::debug!(server = %self.key.server, "the level of its log stays: {error}");
                }
            }
            if wanted.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Forwards `list_changed` notifications of the server until `ended` resolves.
    async fn forward_notifications(&self, ended: impl Future<Output = ()>) {
        let Some(announcements) = &self.list_changed_sender else { return ended.await };
        let mut changes = self.changes.subscribe();
        let mut known = *changes.borrow_and_update();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => return,
                changed = changes.changed() => if changed.is_err() { return ended.await },
            }
            let now = *changes.borrow_and_update();
            for list in now.since(known) {
                // An error means that there is no subscriber.
                let _ = announcements.send(ListChanged { server: self.key.server.clone(), list });
            }
            known = now;
        }
    }
}
