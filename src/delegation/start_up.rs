//! What happens once, when calls begin to be taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::history::History;
use crate::catalog::{Catalog, IdentityRule, Orchestration};
use crate::config::Settings;
use crate::gateway::Gateway;
use crate::record::{EventLog, EventOptions};
use crate::sessions::SessionStore;
use crate::worker::{
    Admission, AdmissionLimits, MachineCap, Shutdown, adopt_orphans, clean_leftovers,
};

/// In this time a server has listed its tools.
const FIRST_WORDS: Duration = Duration::from_millis(20);

/// The limits at the door, as `defaults.yaml` has them.
pub(super) fn admission_limits(orchestration: &Orchestration) -> AdmissionLimits {
    AdmissionLimits {
        max_runs: orchestration.max_runs,
        max_waiting: orchestration.max_queue,
        machine: orchestration.max_machine_runs.map(MachineCap::new),
        memory_floor: orchestration.min_free_memory_mb << 20,
    }
}

/// Where and how events are recorded.
pub(super) fn event_log(settings: &Settings, orchestration: &Orchestration) -> EventLog {
    let options = EventOptions {
        rotate_bytes: orchestration.log_max_mb << 20,
        retention: orchestration.log_retention,
        ..EventOptions::default()
    };
    EventLog::new(&settings.data_dir(), options)
}

/// Takes in what falls from dead keepers, and cleans what an earlier crash left. Calls need not wait for it.
pub(super) fn clean(settings: &Settings, history: &History, tasks: &TaskTracker) {
    if let Err(error) = adopt_orphans() {
        tracing::warn!(%error, "processes that lose their keeper cannot be taken in");
    }
    let (data, history) = (settings.data_dir(), history.clone());
    let cleaning = move || {
        for cleaned in clean_leftovers(&data, |card| history.cut_off(card)) {
            tracing::warn!("cleaned up after an earlier crash: {cleaned}");
        }
    };
    // Tracked: what it finds belongs into the record, also where this process has only a moment to live.
    tasks.spawn(async move {
        // Looking through all processes takes a core for some milliseconds, which the first answer needs more.
        sleep(FIRST_WORDS).await;
        let _ = spawn_blocking(cleaning).await;
    });
}

/// Forgets conversations that nobody has used for as long as `session_retention` says. Calls need not wait for it.
pub(super) fn retire_sessions(sessions: &SessionStore, orchestration: &Orchestration) {
    let Some(retention) = orchestration.session_retention else { return };
    let sessions = sessions.clone();
    spawn_blocking(move || match sessions.retire(retention) {
        Ok(forgotten) => {
            for gone in forgotten.conversations {
                tracing::info!(
                    "forgot the conversation `{}`: unused since {}",
                    gone.name(),
                    gone.last_used
                );
            }
        }
        Err(error) => tracing::warn!(%error, "old conversations could not be forgotten"),
    });
}

/// Keeps the limits as the files have them, and reads everything again at SIGHUP.
pub(super) fn follow_reloads(
    catalog: &Arc<Catalog>,
    admission: &Admission,
    gateway: &Arc<Gateway>,
    shutdown: &Shutdown,
) {
    gateway.require_identity(requires_identity(catalog));
    let gateway = Arc::downgrade(gateway);
    let (catalog, admission) = (Arc::downgrade(catalog), admission.clone());
    let (mut reloads, ending) = (shutdown.reloads(), shutdown.ending().clone());
    let Some(mut changes) = catalog.upgrade().map(|catalog| catalog.changed()) else { return };
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = ending.cancelled() => return,
                asked = reloads.changed() => {
                    if asked.is_err() { return }
                    if let Some(catalog) = catalog.upgrade() { catalog.reload(); }
                }
                changed = changes.changed() => if changed.is_err() { return },
            }
            let Some(catalog) = catalog.upgrade() else { return };
            admission.set_limits(admission_limits(catalog.snapshot().orchestration()));
            if let Some(gateway) = gateway.upgrade() {
                gateway.require_identity(requires_identity(&catalog));
            }
        }
    });
}

fn requires_identity(catalog: &Catalog) -> bool {
    catalog.snapshot().orchestration().identity == IdentityRule::Required
}

/// Keeps private servers as the files have them: ahead where an agent wants that, and no longer idle than allowed.
pub(super) fn keep_servers_ready(
    catalog: &Arc<Catalog>,
    gateway: &Arc<Gateway>,
    shutdown: &Shutdown,
) {
    let (mut changes, ending) = (catalog.changed(), shutdown.ending().clone());
    let (catalog, gateway) = (Arc::downgrade(catalog), Arc::downgrade(gateway));
    tokio::spawn(async move {
        loop {
            let (Some(catalog), Some(gateway)) = (catalog.upgrade(), gateway.upgrade()) else {
                return;
            };
            let snapshot = catalog.snapshot();
            gateway.end_idle_servers_after(snapshot.orchestration().server_idle);
            gateway.keep_ready(snapshot.entries().iter().filter_map(|entry| entry.agent()));
            drop((catalog, gateway));
            tokio::select! {
                () = ending.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    });
}
