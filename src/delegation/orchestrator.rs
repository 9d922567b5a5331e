//! What calls share, and the door through which they come in.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::asking::Asker;
use super::audit;
use super::budget::Purse;
use super::find::callable;
use super::history::History;
use super::hooks::Hooks;
use super::kept::Warmth;
use super::prepare;
use super::program::Programs;
use super::recorder::Outlets;
use super::request::Request;
use super::spans::{self, RunTrace};
use super::start_up::{
    admission_limits, clean, event_log, follow_reloads, keep_servers_ready, retire_sessions,
};
use super::status::StatusBoard;
use super::steps::Call;
use crate::base::RunId;
use crate::catalog::{Agent, Catalog, Watching};
use crate::config::Settings;
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::outcome::{Code, Failure, Outcome, Report};
use crate::record::{CostLedger, Redactor, RunMetrics, SpanExporter};
use crate::sessions::SessionStore;
use crate::worker::{Admission, Doorway, RunBoard, Shutdown};

/// Everything that calls share: the catalog, the conversations, the limits, the record.
pub struct Orchestrator {
    pub(super) settings: Settings,
    pub(super) catalog: Arc<Catalog>,
    _watching: Watching,
    pub(super) gateway: Arc<Gateway>,
    pub(super) programs: Programs,
    pub(super) doorway: Doorway,
    pub(super) sessions: SessionStore,
    pub(super) history: History,
    /// The way to a collector, where the environment names one.
    spans: Option<Arc<SpanExporter>>,
    pub(super) purse: Purse,
    pub(super) admission: Admission,
    pub(super) runs: RunBoard,
    pub(super) metrics: RunMetrics,
    pub(super) warmth: Warmth,
    shutdown: Shutdown,
    pub(super) running: TaskTracker,
}

impl Orchestrator {
    /// Reads the project, follows its files, and is ready for calls.
    pub fn start(settings: Settings, shutdown: Shutdown, gateway: Arc<Gateway>) -> Arc<Self> {
        let catalog = Catalog::open(&settings);
        let watching = catalog.watch();
        let admission = Admission::new(admission_limits(catalog.snapshot().orchestration()));
        let history = History::new(event_log(&settings, catalog.snapshot().orchestration()));
        let running = TaskTracker::new();
        clean(&settings, &history, &running);
        follow_reloads(&catalog, &admission, &gateway, &shutdown);
        let sessions = SessionStore::open(&settings.data_dir());
        retire_sessions(&sessions, catalog.snapshot().orchestration());
        Arc::new(Self {
            admission,
            runs: RunBoard::at(&settings.data_dir()),
            metrics: RunMetrics::default(),
            warmth: Warmth::new(catalog.snapshot().orchestration()),
            sessions,
            purse: Purse::new(CostLedger::at(&settings.data_dir())),
            history,
            spans: spans::exporter(),
            catalog,
            _watching: watching,
            gateway,
            programs: Programs::default(),
            doorway: Doorway::new(),
            settings,
            shutdown,
            running,
        })
    }

    /// Starts the servers that agents want ahead, and follows the files in that. For a process that stays.
    pub fn stay_ready(&self) {
        keep_servers_ready(&self.catalog, &self.gateway, &self.shutdown);
    }

    /// Takes one call through all its steps; `asker` is the way to the person behind the caller. It goes on to its end, and is recorded, even if nobody waits any more.
    pub async fn run(
        self: &Arc<Self>,
        request: Request,
        caller: Caller,
        board: StatusBoard,
        cancel: CancellationToken,
        asker: Arc<dyn Asker>,
    ) -> Report {
        let asked = request.agent_name.clone();
        if self.shutdown.stopping().is_cancelled() {
            return self.refused(&asked, going_away());
        }
        let call = Call::new(request, caller, board, self.leashed(cancel), asker, &self.gateway);
        let shared = Arc::clone(self);
        // A task of its own: a caller that goes away drops its future, and the run must still end in order.
        let run = self.running.spawn(async move {
            let report = call.run(&shared).await;
            shared.metrics.count(&report);
            report
        });
        match run.await {
            Ok(report) => report,
            Err(_) => self.refused(&asked, broken()),
        }
    }

    /// Refuses a call whose caller is not who it should be, and writes that down.
    pub fn turn_away(&self, caller: &Caller, agent: &str, failure: Failure) -> Report {
        let report = self.refused(agent, failure);
        let refused = audit::refused(&self.gateway, caller, &report);
        match refused {
            Ok(()) => report,
            Err(failure) => self.refused(agent, failure),
        }
    }

    /// A report for a call that was refused before it became one.
    pub fn refused(&self, agent: &str, failure: Failure) -> Report {
        Report {
            agent: agent.to_owned(),
            run_id: RunId::new(),
            duration_ms: 0,
            outcome: Outcome::Failed(failure),
            session_id: None,
            cost_usd: None,
            turns: None,
            denials: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The agents that this caller may call, in order of name.
    pub fn callable_by(&self, caller: &Caller) -> Vec<Arc<Agent>> {
        callable(&self.catalog.snapshot(), caller).cloned().collect()
    }

    /// Says when the catalog has changed.
    pub fn catalog_changes(&self) -> watch::Receiver<u64> {
        self.catalog.changed()
    }

    /// How everything ends.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for the runs that are going on; new ones are no longer taken.
    pub async fn finish(&self) {
        self.running.close();
        self.running.wait().await;
        // After the last call: nobody puts anything there any more.
        self.warmth.pool.close().await;
        self.sessions.settle().await;
        if let Some(spans) = &self.spans {
            spans.flush().await;
        }
        let history = self.history.clone();
        // Only a panic could keep it from being done.
        let _ = tokio::task::spawn_blocking(move || history.settle()).await;
    }

    /// Ends all runs and waits until nothing of them is left.
    pub async fn end_all(&self) {
        self.shutdown.ending().cancel();
        self.finish().await;
        self.gateway.shutdown().await;
    }

    /// Where the events of an agent's run go besides the log. Hooks that are still told of something are waited for at the end.
    pub(super) fn outlets(&self, agent: &Arc<Agent>) -> Outlets {
        Outlets {
            redactor: Redactor::new(prepare::secrets(agent)),
            hooks: Hooks::of(agent, self.settings.root.clone(), self.running.clone()),
            trace: self.spans.as_ref().and_then(RunTrace::begin),
        }
    }

    /// Cancelled when the caller cancels, and when everything ends.
    fn leashed(&self, cancel: CancellationToken) -> CancellationToken {
        let both = self.shutdown.ending().child_token();
        let linked = both.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => linked.cancel(),
                () = linked.cancelled() => {}
            }
        });
        both
    }
}

fn going_away() -> Failure {
    let message = "Adjutant was told to stop and takes no new calls";
    Failure::new(Code::Cancelled, message, "call again when it has been started again")
}

fn broken() -> Failure {
    let message = "a fault inside Adjutant ended the call";
    Failure::new(Code::ClaudeFailed, message, "please report it with the log of `adjutant serve`")
}
