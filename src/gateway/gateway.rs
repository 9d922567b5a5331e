//! The MCP gateway: configuration in force, downstream servers, caller resolution.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::audit_trail::AuditTrail;
use super::error::GatewayError;
use crate::audit::{AuditEntry, AuditOptions};
use crate::catalog::{ServerIsolation, StartPolicy};
use crate::config::{GatewayFiles, GatewayOptions, Settings};
use crate::gateway::config::{ActiveConfig, ServerSpec, reload};
use crate::gateway::downstream::{
    DownstreamRegistry, DownstreamServer, LogSubscription, ServerLease, ServerScope, ToolPins,
};
use crate::identity::{AttestationError, Caller};
use crate::policy::{evaluate, resolve_caller};
use crate::util::Mutex;

/// The gateway of one process, used by `adjutant gateway` and `adjutant serve`.
pub struct Gateway {
    pub(crate) options: GatewayOptions,
    pub(crate) active_config: ArcSwap<ActiveConfig>,
    pub(crate) pins: Arc<ToolPins>,
    pub(crate) audit_trail: Arc<AuditTrail>,
    pub(crate) started: Instant,
    pool: DownstreamRegistry,
    /// Leases on private servers that are started in advance.
    prestarted: Mutex<Vec<ServerLease>>,
    visibility_changes: watch::Sender<u64>,
    identity_required: AtomicBool,
    shutdown_token: CancellationToken,
}

/// Caller information of one request, as far as known on arrival.
#[derive(Clone, Debug, Default)]
pub struct RequestIdentity {
    /// Verified or attested caller, if any.
    pub caller: Option<Caller>,
    /// Error of the attestation, if it is invalid.
    pub attestation_error: Option<AttestationError>,
    /// The `agent_id` argument.
    pub agent_id: Option<String>,
    /// Call id for the audit log.
    pub call_id: Option<String>,
}

impl Gateway {
    /// Reads the configuration, starts eager servers and watches the files.
    ///
    /// Must be called within a tokio runtime. Never fails: problems appear in the log and in the status, and deny
    /// access.
    pub fn start(settings: &Settings, options: GatewayOptions) -> Arc<Self> {
        Self::start_with_audit_options(settings, options, AuditOptions::default())
    }

    /// Like [`Self::start`], with options for the audit log.
    pub fn start_with_audit_options(
        settings: &Settings,
        options: GatewayOptions,
        audit: AuditOptions,
    ) -> Arc<Self> {
        let files = GatewayFiles::locate(settings);
        // Watch before reading, so that an edit in between is noticed.
        let watch = reload::WatchSet::start(&files);
        let in_force = ActiveConfig::read(&files);
        let gateway = Arc::new(Self {
            active_config: ArcSwap::from_pointee(in_force),
            options,
            pool: DownstreamRegistry::new(settings.root.clone()),
            pins: Arc::new(ToolPins::new(&settings.data_dir())),
            audit_trail: Arc::new(AuditTrail::new(&files.audit_log, audit)),
            prestarted: Mutex::default(),
            visibility_changes: watch::Sender::new(0),
            started: Instant::now(),
            identity_required: AtomicBool::new(false),
            shutdown_token: CancellationToken::new(),
        });
        gateway.start_eager_servers();
        watch.reload_on_change(&gateway);
        gateway
    }

    /// Returns true if there is a downstream server besides Adjutant's own entry.
    ///
    /// `adjutant serve` offers the gateway tools only then, because their schemas take up context in every agent.
    pub fn has_servers(&self) -> bool {
        !self.active_config.load().servers.is_empty()
    }

    /// Returns true if `get_gateway_status` is offered.
    pub fn offers_status_tool(&self) -> bool {
        self.options.debug
    }

    pub fn downstreams(&self) -> &DownstreamRegistry {
        &self.pool
    }

    pub(crate) fn replace_prestarted(&self, ready: Vec<ServerLease>) {
        // Dropped after the lock is released: the end of a lease takes other locks.
        let _before = std::mem::replace(&mut *self.prestarted.lock(), ready);
    }

    /// Writes an audit entry of another component. On error the caller must not execute the action.
    pub async fn write_audit_entry(&self, entry: AuditEntry) -> Result<(), GatewayError> {
        self.audit_trail.write(entry).await
    }

    /// Writes the audit entry of an invalid request and returns the error for the caller.
    pub async fn reject(
        &self,
        operation: &'static str,
        who: &RequestIdentity,
        error: GatewayError,
    ) -> GatewayError {
        self.audit_trail.reject(operation, who, error).await
    }

    /// Writes the audit entry of a request that was rejected before it was parsed. Errors are ignored.
    ///
    /// Does not block: if another process holds the log's lock, the entry is written when the lock is free.
    pub fn try_write_audit_entry(&self, entry: AuditEntry) {
        self.audit_trail.try_write(entry);
    }

    /// Returns the configuration in force.
    pub fn in_force(&self) -> Arc<ActiveConfig> {
        self.active_config.load_full()
    }

    /// Returns a counter that grows when the visible servers or tools may have changed.
    pub fn subscribe_visibility_changes(&self) -> watch::Receiver<u64> {
        self.visibility_changes.subscribe()
    }

    /// Returns the subscription through which a stdio client receives log messages of servers.
    pub fn log_subscription(&self) -> &Arc<LogSubscription> {
        self.pool.log_subscription()
    }

    /// Reads both files again, after an edit or SIGHUP.
    pub fn reload(self: &Arc<Self>) {
        let before = self.active_config.load_full();
        self.active_config.store(Arc::new(before.reload()));
        let wanted = self.active_config.load_full();
        self.pool.retain(|key| reload::is_still_configured(&wanted, key));
        self.start_eager_servers();
        if before.rules != wanted.rules || before.servers != wanted.servers {
            self.pool.stop_log_forwarding();
            self.visibility_changes.send_modify(|count| *count += 1);
        }
    }

    /// Ends all servers and waits for their processes.
    pub async fn shutdown(&self) {
        self.shutdown_token.cancel();
        self.pool.close().await;
        self.audit_trail.batcher.flush().await;
    }

    /// Returns a token that is cancelled at shutdown.
    pub fn closing(&self) -> CancellationToken {
        self.shutdown_token.clone()
    }

    /// Sets if unverified callers are rejected (`identity: required`).
    pub fn require_identity(&self, required: bool) {
        self.identity_required.store(required, Ordering::Relaxed);
    }

    /// Resolves the caller: verified identity, then the `agent_id` argument, then the configured fallbacks.
    pub fn resolve_caller(
        &self,
        in_force: &ActiveConfig,
        who: &RequestIdentity,
    ) -> Result<Caller, GatewayError> {
        if let Some(error) = who.attestation_error {
            return Err(error.into());
        }
        let claimed = who.agent_id.as_deref().filter(|id| !id.is_empty());
        match &who.caller {
            Some(caller) if caller.is_verified() => match claimed {
                Some(claimed) if claimed != caller.name => Err(GatewayError::IdentityMismatch {
                    known: caller.describe(),
                    claimed: claimed.to_owned(),
                }),
                _ => Ok(caller.clone()),
            },
            _ if self.identity_required.load(Ordering::Relaxed) => Err(GatewayError::NotAttested),
            _ => {
                if let Some(gap) = &in_force.no_rules {
                    return Err(gap.clone().into());
                }
                Ok(resolve_caller(&in_force.rules, claimed, self.options.default_agent.as_deref())?)
            }
        }
    }

    /// Returns the server `name` in the scope of `caller`. The caller must already be authorized.
    pub(crate) fn downstream_for(
        &self,
        in_force: &ActiveConfig,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<DownstreamServer>, GatewayError> {
        let Some(entry) = in_force.servers.get(name) else {
            let visible = in_force
                .servers
                .names()
                .filter(|other| evaluate(&in_force.rules, &caller.name, other, None).is_allowed());
            return Err(match in_force.servers.exclusion_reason(name) {
                Some(why) => GatewayError::excluded_entry(name, why),
                None => GatewayError::no_such_server(name, visible),
            });
        };
        match &entry.spec {
            Ok(spec) => {
                Ok(self.pool.get_or_create(DownstreamRegistry::scope_for(spec, &caller.name), spec))
            }
            Err(reason) => Err(GatewayError::invalid_entry(name, reason)),
        }
    }

    fn start_eager_servers(&self) {
        let in_force = self.active_config.load();
        let specs = in_force.servers.entries().iter().filter_map(|entry| entry.spec.as_ref().ok());
        for spec in specs.filter(|spec| self.is_eager(spec)) {
            let server = self.pool.get_or_create(ServerScope::Shared, spec);
            tokio::spawn(server.keep_alive());
        }
    }

    fn is_eager(&self, spec: &ServerSpec) -> bool {
        let shared = spec.isolation == ServerIsolation::Shared;
        let eager = spec.start.map_or(self.options.eager, |start| start == StartPolicy::Eager);
        shared && eager
    }
}
