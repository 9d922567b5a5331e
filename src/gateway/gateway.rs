//! The gateway itself: the files in force, the servers behind them, and who may reach what.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::downstream::Downstream;
use super::error::GatewayError;
use super::files::InForce;
use super::lease::Lease;
use super::ledger::Ledger;
use super::log_relay::LogRelay;
use super::pins::Pins;
use super::pool::Pool;
use super::reload;
use super::server_config::{ServerSpec, Start};
use crate::base::nearest;
use crate::config::{GatewayFiles, GatewayOptions, Settings};
use crate::identity::{Caller, Doubt};
use crate::policy::{evaluate, resolve_agent};
use crate::record::{AuditLine, AuditOptions};

/// The gateway of one process, held by `adjutant gateway` and `adjutant serve` alike.
pub struct Gateway {
    pub(super) options: GatewayOptions,
    pub(super) in_force: ArcSwap<InForce>,
    pub(super) pins: Pins,
    pub(super) ledger: Arc<Ledger>,
    pub(super) started: Instant,
    pool: Pool,
    /// Servers that are kept ready, called or not.
    ready: Mutex<Vec<Lease>>,
    visible: watch::Sender<u64>,
    identity_required: AtomicBool,
    closing: CancellationToken,
}

/// Who a request comes from, as far as that is known when it arrives.
#[derive(Clone, Debug, Default)]
pub struct Who {
    /// What is known for certain or attested about this very call, if anything is.
    pub caller: Option<Caller>,
    /// Why that cannot be relied upon, if it cannot.
    pub doubt: Option<Doubt>,
    /// What the call says itself.
    pub agent_id: Option<String>,
    /// The call's id, for the audit log.
    pub call_id: Option<String>,
}

impl Gateway {
    /// Reads the files, starts what is to be started ahead, and follows the files from then on.
    ///
    /// Must be called within a tokio runtime. Never fails: what is wrong is said in the log and in
    /// the status, and denies rather than allows.
    pub fn start(settings: &Settings, options: GatewayOptions) -> Arc<Self> {
        Self::start_recording(settings, options, AuditOptions::default())
    }

    /// The same, with the audit log kept as `audit` says.
    pub fn start_recording(
        settings: &Settings,
        options: GatewayOptions,
        audit: AuditOptions,
    ) -> Arc<Self> {
        let files = GatewayFiles::locate(settings);
        // Watched first: an edit between the two is seen.
        let watch = reload::Watch::begin(&files);
        let in_force = InForce::read(&files);
        let gateway = Arc::new(Self {
            in_force: ArcSwap::from_pointee(in_force),
            options,
            pool: Pool::new(settings.root.clone()),
            pins: Pins::new(&settings.data_dir()),
            ledger: Arc::new(Ledger::new(&files.audit_log, audit)),
            ready: Mutex::default(),
            visible: watch::Sender::new(0),
            started: Instant::now(),
            identity_required: AtomicBool::new(false),
            closing: CancellationToken::new(),
        });
        gateway.start_eager();
        watch.follow(&gateway);
        gateway
    }

    /// Whether there is any server behind this gateway, besides Adjutant's own entry: `adjutant serve`
    /// offers the gateway's tools only then, because every agent carries them in its context.
    pub fn has_servers(&self) -> bool {
        !self.in_force.load().servers.is_empty()
    }

    /// Whether `get_gateway_status` is offered.
    pub fn debug(&self) -> bool {
        self.options.debug
    }

    /// The pool, for servers that are private to an agent.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn replace_ready(&self, ready: Vec<Lease>) {
        let before = std::mem::replace(
            &mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner),
            ready,
        );
        drop(before);
    }

    /// Writes a line about something that is decided elsewhere; what cannot be written must not be done.
    pub fn write_down(&self, line: &AuditLine) -> Result<(), GatewayError> {
        self.ledger.write(line)
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes down a request that makes no sense; returns what is to be told.
    pub fn refuse(&self, operation: &'static str, who: &Who, error: GatewayError) -> GatewayError {
        self.ledger.refuse(operation, who, error)
    }

    /// Writes a line about somebody who was refused before there was a request to judge.
    pub fn record(&self, line: &AuditLine) {
        self.ledger.add(line);
    }

    /// The files as they hold now.
    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Grows when what agents can see may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.visible.subscribe()
    }

    /// How a client that is alone with the servers hears what they log.
    pub fn log_relay(&self) -> &Arc<LogRelay> {
        self.pool.log_relay()
    }

    /// Reads both files again, as after an edit or SIGHUP.
    pub fn reload(self: &Arc<Self>) {
        let before = self.in_force.load_full();
        self.in_force.store(Arc::new(before.again()));
        let wanted = self.in_force.load_full();
        self.pool.retain(|key| reload::still_wanted(&wanted, key));
        self.start_eager();
        if before.rules != wanted.rules || before.servers != wanted.servers {
            self.pool.forget_calls();
            self.visible.send_modify(|count| *count += 1);
        }
    }

    /// Ends every server and waits for that.
    pub async fn shutdown(&self) {
        self.closing.cancel();
        self.pool.close().await;
    }

    /// Cancelled when the gateway ends.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Whether callers of whom nothing is sure are refused from now on (`identity: required`).
    pub fn require_identity(&self, required: bool) {
        self.identity_required.store(required, Ordering::Relaxed);
    }

    /// Who is calling: what is known for sure first, then what the call says, then the fallbacks.
    pub fn resolve(&self, in_force: &InForce, who: &Who) -> Result<Caller, GatewayError> {
        if let Some(doubt) = who.doubt {
            return Err(doubt.into());
        }
        let claimed = who.agent_id.as_deref().filter(|id| !id.is_empty());
        match &who.caller {
            Some(caller) if caller.is_sure() => match claimed {
                Some(claimed) if claimed != caller.name => Err(GatewayError::IdentityMismatch {
                    known: caller.described(),
                    claimed: claimed.to_owned(),
                }),
                _ => Ok(caller.clone()),
            },
            _ if self.identity_required.load(Ordering::Relaxed) => Err(GatewayError::NotAttested),
            _ => {
                if let Some(gap) = &in_force.gap {
                    return Err(gap.clone().into());
                }
                Ok(resolve_agent(&in_force.rules, claimed, self.options.default_agent.as_deref())?)
            }
        }
    }

    /// The server of this name as `caller` uses it. The caller's right to it was judged before.
    pub(super) fn server_for(
        &self,
        in_force: &InForce,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<Downstream>, GatewayError> {
        let Some(entry) = in_force.servers.get(name) else {
            let visible = in_force
                .servers
                .names()
                .filter(|other| evaluate(&in_force.rules, &caller.name, other, None).is_allowed());
            return Err(match in_force.servers.left_out(name) {
                Some(why) => GatewayError::left_out(name, why),
                None => GatewayError::no_such_server(name, nearest(name, visible).first().copied()),
            });
        };
        match &entry.spec {
            Ok(spec) => Ok(self.pool.acquire(Pool::scope_for(spec, &caller.name), spec)),
            Err(reason) => Err(GatewayError::unusable(name, reason)),
        }
    }

    fn start_eager(&self) {
        let in_force = self.in_force.load();
        let specs = in_force.servers.entries().iter().filter_map(|entry| entry.spec.as_ref().ok());
        for spec in specs.filter(|spec| self.is_eager(spec)) {
            let server = self.pool.acquire(super::downstream::Scope::Shared, spec);
            tokio::spawn(server.keep_up());
        }
    }

    fn is_eager(&self, spec: &ServerSpec) -> bool {
        let shared = spec.isolation == super::server_config::Isolation::Shared;
        let eager = spec.start.map_or(self.options.eager, |start| start == Start::Eager);
        shared && eager
    }
}
