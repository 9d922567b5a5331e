//! Start-up of the server: cleanup after a crash, limits, reloads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::orchestrator::Orchestrator;
use crate::api::{ErrorObject, round_usd};
use crate::catalog::{IdentityRule, Orchestration};
use crate::config::Settings;
use crate::events::{EventLog, EventOptions, InterruptedRun};
use crate::process::reap_orphans;
use crate::runs::{AdmissionLimits, MachineLimit, RunEntry, clean_up};
use crate::sessions::SessionStore;

/// Delay of the cleanup: within this time a client has listed the tools.
const CLEANUP_DELAY: Duration = Duration::from_millis(20);

/// Reads the admission limits from `defaults.yaml`.
pub(crate) fn admission_limits(orchestration: &Orchestration) -> AdmissionLimits {
    AdmissionLimits {
        max_runs: orchestration.max_runs,
        max_waiting: orchestration.max_queue,
        machine: orchestration.max_machine_runs.map(MachineLimit::new),
        memory_floor: orchestration.min_free_memory_mb << 20,
    }
}

/// Opens the event log of a project, with the limits of `agents/defaults.yaml`.
pub(crate) fn event_log(settings: &Settings, orchestration: &Orchestration) -> EventLog {
    let options = EventOptions {
        rotate_bytes: orchestration.log_max_mb << 20,
        retention: orchestration.log_retention,
        ..EventOptions::default()
    };
    EventLog::new(&settings.data_dir(), options)
}

/// Becomes the parent of orphaned processes, and cleans up after an earlier crash in the background.
pub(crate) fn clean_up_after_crash(settings: &Settings, events: &EventLog, tasks: &TaskTracker) {
    if let Err(error) = reap_orphans() {
        tracing::warn!(%error, "orphaned processes cannot be adopted");
    }
    let (data, events) = (settings.data_dir(), events.clone());
    let cleaning = move || {
        for cleaned in clean_up(&data, |entry| close_interrupted(&events, entry)) {
            tracing::warn!("cleaned up after an earlier crash: {cleaned}");
        }
    };
    // Tracked: a short-lived process must still record the interrupted runs it finds.
    tasks.spawn(async move {
        // The process scan takes several milliseconds of CPU time; the first responses have priority.
        sleep(CLEANUP_DELAY).await;
        let _ = spawn_blocking(cleaning).await;
    });
}

/// Closes all open spans of a run whose server died, with outcome `INTERRUPTED`.
fn close_interrupted(events: &EventLog, entry: &RunEntry) -> io::Result<()> {
    let details = json!({
        "outcome": "INTERRUPTED", "cost_usd": round_usd(entry.progress.cost_usd), "turns": entry.progress.turns,
        "error": ErrorObject::new("INTERRUPTED", "the server ended while the run was going on"),
    });
    let transcript = entry.transcript.as_deref();
    let run = InterruptedRun { run: entry.run, agent: &entry.agent, transcript };
    events.end_interrupted_run(run, details)
}

/// Removes sessions that were not used for `session_retention`, in the background.
pub(crate) fn forget_unused_sessions(sessions: &SessionStore, orchestration: &Orchestration) {
    let Some(retention) = orchestration.session_retention else { return };
    let sessions = sessions.clone();
    spawn_blocking(move || match sessions.forget_unused(retention) {
        Ok(forgotten) => {
            for gone in forgotten.removed {
                let (name, since) = (gone.name(), gone.last_used);
                tracing::info!("forgot the conversation `{name}`: unused since {since}");
            }
        }
        Err(error) => tracing::warn!(%error, "old conversations could not be forgotten"),
    });
}

impl Orchestrator {
    /// Applies changed limits, and reloads all files on SIGHUP.
    pub(crate) fn follow_reloads(self: &Arc<Self>) {
        self.gateway.require_identity(self.requires_identity());
        let (mut changes, mut reloads) = (self.catalog.changed(), self.shutdown().reloads());
        let (services, ending) = (Arc::downgrade(self), self.shutdown().ending().clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = ending.cancelled() => return,
                    asked = reloads.changed() => {
                        if asked.is_err() { return }
                        if let Some(services) = services.upgrade() { services.catalog.reload(); }
                    }
                    changed = changes.changed() => if changed.is_err() { return },
                }
                let Some(services) = services.upgrade() else { return };
                let snapshot = services.catalog.snapshot();
                services.admission.set_limits(admission_limits(snapshot.orchestration()));
                services.gateway.require_identity(services.requires_identity());
            }
        });
    }

    fn requires_identity(&self) -> bool {
        self.catalog.snapshot().orchestration().identity == IdentityRule::Required
    }

    /// Starts private servers ahead and stops idle ones, as the files say, until shutdown.
    ///
    /// For long-lived servers.
    pub fn keep_servers_ready(self: &Arc<Self>) {
        let mut changes = self.catalog.changed();
        let (services, ending) = (Arc::downgrade(self), self.shutdown().ending().clone());
        tokio::spawn(async move {
            loop {
                let Some(strong) = services.upgrade() else { return };
                let snapshot = strong.catalog.snapshot();
                strong.gateway.set_idle_timeout(snapshot.orchestration().server_idle);
                let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
                strong.gateway.prestart_private_servers(agents);
                drop(strong);
                tokio::select! {
                    () = ending.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                }
            }
        });
    }
}
