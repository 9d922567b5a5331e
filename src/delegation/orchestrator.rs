//! State shared by all runs, and the entry points for starting runs, for shutdown and for health checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::approval::ApprovalPrompt;
use super::authorize::{audit_rejection, callable_agents};
use super::budget::Budgets;
use super::deliver::ReportDraft;
use super::file_access::ControlFiles;
use super::pipeline::Run;
use super::processes::{ProcessPool, ProgramCache, locate_program};
use super::recorder::RunRecorder;
use super::request::RunRequest;
use super::run_trace;
use super::run_trace::RunTrace;
use super::secrets::server_redactor;
use super::start_up::{admission_limits, clean_up_after_crash, event_log, forget_unused_sessions};
use super::status::StatusSender;
use super::user_hooks::UserHooks;
use crate::catalog::{Agent, Catalog, CatalogWatcher};
use crate::config::Settings;
use crate::costs::CostLedger;
use crate::events::{EventLog, RunSubject};
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::outcome::{Code, Failure, Outcome, Report};
use crate::process::Shutdown;
use crate::runs::{Admission, AdmissionCounts, RunRegistry, StartupLimiter};
use crate::sessions::SessionStore;
use crate::store::check_writable;
use crate::telemetry::{RunMetrics, RunRow, SpanExporter};
use crate::util::{Mutex, RunId, run_blocking};

/// Limit of the wait for the event log at shutdown.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of the wait for open sandboxes at shutdown.
const SANDBOXES_TIMEOUT: Duration = Duration::from_secs(5);

/// Shared state of all runs: catalog, sessions, limits, logs, pools.
pub struct Orchestrator {
    pub(crate) settings: Settings,
    pub(crate) catalog: Arc<Catalog>,
    _catalog_watcher: CatalogWatcher,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) control_files: Arc<ControlFiles>,
    pub(crate) program_cache: ProgramCache,
    pub(crate) startup_limiter: StartupLimiter,
    pub(crate) sessions: SessionStore,
    events: EventLog,
    /// Span exporter, if the environment configures a collector.
    span_exporter: Option<Arc<SpanExporter>>,
    pub(crate) budgets: Budgets,
    pub(crate) admission: Admission,
    pub(crate) run_registry: RunRegistry,
    pub(crate) metrics: RunMetrics,
    pub(crate) process_pool: ProcessPool,
    shutdown: Shutdown,
    pub(crate) tasks: TaskTracker,
    /// Open sandboxes: what they need outside is removed before Adjutant exits.
    pub(crate) sandboxes: TaskTracker,
}

impl Orchestrator {
    /// Loads the project and starts the background tasks. Needs a Tokio runtime.
    pub fn start(settings: Settings, shutdown: Shutdown, gateway: Arc<Gateway>) -> Arc<Self> {
        let catalog = Catalog::open(&settings);
        let snapshot = catalog.snapshot();
        let orchestration = snapshot.orchestration();
        let (data_dir, tasks) = (settings.data_dir(), TaskTracker::new());
        let events = event_log(&settings, orchestration);
        clean_up_after_crash(&settings, &events, &tasks);
        let sessions = SessionStore::open(&data_dir);
        forget_unused_sessions(&sessions, orchestration);
        let services = Arc::new(Self {
            _catalog_watcher: catalog.watch(),
            admission: Admission::new(admission_limits(orchestration)),
            run_registry: RunRegistry::at(&data_dir),
            metrics: RunMetrics::default(),
            process_pool: ProcessPool::new(orchestration),
            sessions,
            budgets: Budgets::new(CostLedger::at(&data_dir)),
            events,
            span_exporter: run_trace::exporter_from_environment(),
            catalog,
            gateway,
            control_files: Arc::new(ControlFiles::from_settings(&settings)),
            program_cache: ProgramCache::default(),
            startup_limiter: StartupLimiter::new(),
            settings,
            shutdown,
            tasks,
            sandboxes: TaskTracker::new(),
        });
        services.follow_reloads();
        services
    }

    /// Runs one delegation and returns its report. `asker` reaches the person behind the caller.
    ///
    /// Dropping the future does not cancel the run: it continues in its own task and is recorded.
    pub async fn run(
        self: &Arc<Self>,
        request: RunRequest,
        caller: Caller,
        status_sender: StatusSender,
        cancel: CancellationToken,
        asker: Arc<dyn ApprovalPrompt>,
    ) -> Report {
        let asked = request.agent_name.clone();
        if self.shutdown.stopping().is_cancelled() {
            return self.reject(&caller, &asked, shutting_down()).await;
        }
        let run = Run {
            id: RunId::new(),
            started_at: Instant::now(),
            request,
            caller,
            status: Arc::new(status_sender),
            prompt: asker,
            cancel: self.with_shutdown(cancel),
            new_session_id: Uuid::new_v4(),
            draft: Mutex::default(),
            services: Arc::clone(self),
        };
        let services = Arc::clone(self);
        // A task of its own: a disconnected caller drops its future, and the run must still end in order.
        let running = self.tasks.spawn(async move {
            let report = run.execute().await;
            services.metrics.count(&report);
            report
        });
        match running.await {
            Ok(report) => report,
            Err(_) => rejection_report(&asked, RunId::new(), internal_error()),
        }
    }

    /// Refuses a call before it becomes a run, and writes the audit entry.
    pub async fn reject(&self, caller: &Caller, agent: &str, failure: Failure) -> Report {
        let run = RunId::new();
        let written = audit_rejection(&self.gateway, caller, agent, run, &failure).await;
        rejection_report(agent, run, written.err().unwrap_or(failure))
    }

    pub fn callable_agents(&self, caller: &Caller) -> Vec<Arc<Agent>> {
        callable_agents(&self.catalog.snapshot(), caller).cloned().collect()
    }

    /// Subscribes to changes of the catalog.
    pub fn catalog_changes(&self) -> watch::Receiver<u64> {
        self.catalog.changed()
    }

    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for running delegations, then closes the pools and flushes all logs. New runs are refused.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        // Only after the last run: no run can add a process now.
        self.process_pool.idle.close().await;
        self.sandboxes.close();
        // A process that is being started is ended by the shutdown, too; the next start sweeps what is left.
        let _ = timeout(SANDBOXES_TIMEOUT, self.sandboxes.wait()).await;
        self.sessions.flush().await;
        if let Some(spans) = &self.span_exporter {
            spans.flush().await;
        }
        let events = self.events.clone();
        let missing = run_blocking(move || events.flush(EVENTS_TIMEOUT)).await.unwrap_or(0);
        if missing > 0 {
            let file = self.events.file().display();
            tracing::warn!(missing, %file, "events could not be recorded");
        }
    }

    /// Cancels all runs, waits for them, and stops the gateway.
    pub async fn stop_all(&self) {
        self.shutdown.ending().cancel();
        self.drain().await;
        self.gateway.shutdown().await;
    }

    /// Checks everything that a run needs. Blocks on file I/O.
    pub fn readiness(self: &Arc<Self>) -> Readiness {
        let snapshot = self.catalog.snapshot();
        let sound = snapshot.entries().iter().filter(|entry| entry.agent().is_some()).count();
        Readiness {
            valid_agents: sound,
            invalid_agents: snapshot.entries().len() - sound,
            store_writable: check_writable(&self.settings.data_dir()).is_ok(),
            claude_found: locate_program(&self.settings).is_ok(),
        }
    }

    /// Returns the number of running and waiting runs.
    pub fn admission_counts(&self) -> AdmissionCounts {
        self.admission.counts()
    }

    /// Returns the number of warm and of live processes in the pool.
    pub fn pooled_processes(&self) -> (usize, usize) {
        self.process_pool.idle.counts()
    }

    /// Returns the number of ended runs by agent and outcome.
    pub fn run_rows(&self) -> Vec<RunRow> {
        self.metrics.rows()
    }

    /// Creates the recorder of a run and records `RunQueued`. Shutdown waits for hooks that are still running.
    pub(crate) fn new_recorder(&self, agent: &Arc<Agent>, subject: RunSubject) -> RunRecorder {
        let redactor = server_redactor(agent);
        let hooks = UserHooks::new(agent, self.settings.root.clone(), self.tasks.clone());
        let trace = self.span_exporter.as_ref().and_then(RunTrace::start);
        RunRecorder::queued(self.events.clone(), redactor, hooks, trace, subject)
    }

    /// Returns a token that is cancelled by the caller or by shutdown.
    fn with_shutdown(&self, cancel: CancellationToken) -> CancellationToken {
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

/// Builds the report of a call that was refused before it became a run.
fn rejection_report(agent: &str, run: RunId, failure: Failure) -> Report {
    let outcome = Outcome::Failed(failure);
    ReportDraft::default().report(agent.to_owned(), run, Duration::ZERO, outcome)
}

fn shutting_down() -> Failure {
    let message = "Adjutant was told to stop and takes no new calls";
    Failure::new(Code::Cancelled, message, "call again when it has been started again")
}

fn internal_error() -> Failure {
    let message = "a fault inside Adjutant ended the call";
    Failure::new(Code::ClaudeFailed, message, "please report it with the log of `adjutant serve`")
}

/// State of everything that a run needs. Holds no path and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Agents that can be called.
    pub valid_agents: usize,
    /// Agents whose files have errors.
    pub invalid_agents: usize,
    /// True if `data/` can be written.
    pub store_writable: bool,
    /// True if a `claude` binary was found.
    pub claude_found: bool,
}
