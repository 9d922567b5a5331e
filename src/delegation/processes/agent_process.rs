//! A started `claude` process that is ready for a turn. A process can serve several runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::launch::{LaunchInputs, PreparedLaunch};
use super::super::limits::LimitHit;
use super::super::orchestrator::Orchestrator;
use super::super::phase_timings::RunPhase;
use super::super::process_spec::{create_run_dir, process_spec};
use super::super::sandbox::inner_end;
use super::super::turn::{RunEnd, TurnOutcome, run_turn};
use super::process_control::{ActiveRun, ProcessControl, registers_callback};
use crate::claude::{ClaudeClient, ClientOptions, HookEvent, OpenError, TurnResult};
use crate::config::env_vars;
use crate::gateway::SdkServers;
use crate::outcome::Failure;
use crate::plan::SessionStart;
use crate::process::{ProcessEnd, ProcessHandle, ProcessSpec, StopMode, spawn_process};
use crate::runs::RunDir;
use crate::util::RunId;

/// Time for a process to exit after its stdin was closed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time between SIGTERM and SIGKILL.
const SIGTERM_GRACE_PERIOD: Duration = Duration::from_millis(400);

/// Starts a process for a run, connects its servers, and runs the turn in it.
///
/// `session_cost_usd` are the costs that the session has counted before, in US dollars.
pub(crate) async fn run_in_new_process(
    launch: &PreparedLaunch<'_>,
    session: &SessionStart,
    working_dir: &Path,
    session_cost_usd: f64,
) -> Result<TurnOutcome, Failure> {
    let (run, registered, limits) = (launch.run, launch.registered, &launch.limits);
    let servers = launch.connect_servers().await?;
    let (services, inputs) = (&run.services, &launch.inputs);
    let mut spawn = AgentSpawn::new(services, inputs, session, (run.id, working_dir), servers)?;
    if let Some(parent) = registered.recorder.traceparent() {
        spawn.spec.environment.push((env_vars::TRACEPARENT.into(), parent.into()));
    }
    spawn.options.session_cost_usd = session_cost_usd;
    let waiting = Instant::now();
    // A run that exceeds a limit gets no permit: the start below then fails at once.
    let permit = limits.bound(services.startup_limiter.acquire()).await;
    run.add_time(RunPhase::Queue, waiting);
    spawn.control.bind_run(run.id, ActiveRun::new(launch));
    if let Ok(session_id) = session.id().parse() {
        launch.attach_session(session_id, working_dir);
    }
    let exceeded = limits.exceeded(spawn.control.activity());
    let started = |process: &ProcessHandle| registered.process_started(process, session.source());
    let started = AgentProcess::start(spawn, exceeded, started).await;
    drop(permit);
    match started {
        Ok(process) => {
            let (spawn, initialize) = process.start_durations;
            run.draft().timing.add(RunPhase::Spawn, spawn);
            run.draft().timing.add(RunPhase::Initialize, initialize);
            Ok(run_turn(launch, process).await)
        }
        Err(outcome) => {
            run.draft().add_process(&registered.recorder, &outcome);
            Ok(*outcome)
        }
    }
}

/// Everything that a process is started with.
pub(crate) struct AgentSpawn {
    spec: ProcessSpec,
    run_dir: RunDir,
    options: ClientOptions,
    pub(crate) control: Arc<ProcessControl>,
}

impl AgentSpawn {
    /// Writes the private files of a process. The id names them; it is that of the run, or of its own for a warm process.
    pub(crate) fn new(
        services: &Orchestrator,
        inputs: &LaunchInputs,
        session: &SessionStart,
        (id, working_dir): (RunId, &Path),
        servers: Option<Arc<SdkServers>>,
    ) -> Result<Self, Failure> {
        let agent = &inputs.agent;
        let run_dir = create_run_dir(&services.settings, id)?;
        let spec =
            process_spec(agent, &inputs.plan(session), id, working_dir.to_path_buf(), &run_dir)?;
        let max_line_bytes = services.catalog.snapshot().orchestration().max_line_mb << 20;
        let hooks = HookEvent::ALL.into_iter();
        let options = ClientOptions {
            session_id: expected_session(session),
            max_line_bytes: usize::try_from(max_line_bytes).unwrap_or(usize::MAX),
            hooks: hooks.filter(|event| registers_callback(agent, *event)).collect(),
            ..ClientOptions::default()
        };
        let opened = inputs.sandbox.as_ref();
        let opened = opened
            .map(|sandbox| sandbox.open(agent, session, (id, &run_dir), &services.sandboxes))
            .transpose()?;
        let control_files = Arc::clone(&services.control_files);
        let control = ProcessControl::new(Arc::clone(agent), servers, control_files, opened);
        Ok(Self { spec, run_dir, options, control })
    }
}

/// Returns the session id that the CLI must report, if any.
///
/// Not checked for ephemeral sessions: an older CLI cannot be given an id for them.
fn expected_session(session: &SessionStart) -> Option<String> {
    match session {
        SessionStart::Ephemeral(_) => None,
        SessionStart::Create(id) | SessionStart::Resume(id) => Some(id.clone()),
    }
}

/// A process that has answered `initialize`. Dropping it kills the process and removes its files.
pub(crate) struct AgentProcess {
    pub(crate) process: ProcessHandle,
    pub(crate) client: ClaudeClient,
    ready_at: Instant,
    /// Sum of the costs of all runs in this process, in US dollars.
    pub(crate) total_cost_usd: f64,
    /// Time to spawn the process, and time from there until it was ready.
    start_durations: (Duration, Duration),
    pub(crate) control: Arc<ProcessControl>,
    _run_dir: RunDir,
}

impl AgentProcess {
    /// Starts the process and waits until it is ready, at most until `exceeded` resolves.
    pub(crate) async fn start(
        spawn: AgentSpawn,
        exceeded: impl Future<Output = LimitHit>,
        started: impl FnOnce(&ProcessHandle),
    ) -> Result<Self, Box<TurnOutcome>> {
        let AgentSpawn { spec, run_dir, options, control } = spawn;
        let failed = |end, stderr| Box::new(TurnOutcome::not_started(end, stderr));
        let began = Instant::now();
        let spec = match control.sandbox() {
            Some(sandbox) => sandbox.lock().wrap(spec),
            None => Ok(spec),
        };
        let spec = spec.map_err(|error| failed(RunEnd::NotSandboxed(error), String::new()))?;
        let mut process = spawn_process(spec)
            .await
            .map_err(|error| failed(RunEnd::NotStarted(error), String::new()))?;
        if let Some(sandbox) = control.sandbox() {
            sandbox.lock().set_ended(process.ended());
        }
        let spawned = began.elapsed();
        started(&process);
        let client = match initialize(&mut process, options, &control, exceeded).await {
            Ok(client) => client,
            Err(end) => {
                if let Some(sandbox) = control.sandbox() {
                    sandbox.lock().release();
                }
                return Err(failed(end, process.stderr_tail()));
            }
        };
        control.process_ready(client.handle());
        Ok(Self {
            process,
            client,
            ready_at: Instant::now(),
            total_cost_usd: 0.0,
            start_durations: (spawned, began.elapsed().saturating_sub(spawned)),
            control,
            _run_dir: run_dir,
        })
    }

    /// Returns the time since the process was ready.
    pub(crate) fn age(&self) -> Duration {
        self.ready_at.elapsed()
    }

    /// Closes stdin and waits 1.5 s for the exit, then stops the process like [`Self::stop`].
    pub(crate) async fn shutdown_gracefully(&mut self) -> ProcessEnd {
        self.client.close();
        match timeout(EXIT_TIMEOUT, self.process.wait()).await {
            Ok(end) => self.program_end(end),
            Err(_) => self.stop().await,
        }
    }

    /// Sends SIGTERM, after 400 ms SIGKILL, and waits until the process and its descendants have exited.
    pub(crate) async fn stop(&mut self) -> ProcessEnd {
        let end = self.process.stop(StopMode::Graceful { grace: SIGTERM_GRACE_PERIOD }).await;
        self.program_end(end)
    }

    /// Returns the end of `claude`; in a sandbox the process is bwrap, which reports the status of the relay.
    fn program_end(&self, end: ProcessEnd) -> ProcessEnd {
        let Some(sandbox) = self.control.sandbox() else { return end };
        sandbox.lock().release();
        inner_end(end)
    }

    /// Ends the process after a turn without a result: waits for it if the stream was closed, stops it
    /// otherwise.
    pub(crate) async fn stop_after(&mut self, ending: &TurnResult) -> ProcessEnd {
        match ending {
            TurnResult::Result(_) | TurnResult::StreamEnded => self.shutdown_gracefully().await,
            TurnResult::LineTooLong { .. }
            | TurnResult::ReadFailed { .. }
            | TurnResult::WrongSession { .. } => self.stop().await,
        }
    }
}

async fn initialize(
    process: &mut ProcessHandle,
    options: ClientOptions,
    control: &Arc<ProcessControl>,
    exceeded: impl Future<Output = LimitHit>,
) -> Result<ClaudeClient, RunEnd> {
    let (Some(stdout), Some(stdin)) = (process.stdout.take(), process.stdin.take()) else {
        let end = process.stop(StopMode::Kill).await;
        return Err(RunEnd::NotReady(OpenError::StreamEnded, end));
    };
    let parent = Arc::clone(control);
    let opened = tokio::select! {
        opened = ClaudeClient::open(stdout, stdin, parent, options) => opened,
        stop = exceeded => {
            process.stop(StopMode::Graceful { grace: SIGTERM_GRACE_PERIOD }).await;
            return Err(RunEnd::Stopped(stop));
        }
    };
    match opened {
        Ok(client) => Ok(client),
        Err(error) => {
            // The process may be about to write the reason to stderr: give it 1.5 s to exit.
            let end = match timeout(EXIT_TIMEOUT, process.wait()).await {
                Ok(end) => end,
                Err(_) => process.stop(StopMode::Kill).await,
            };
            Err(RunEnd::NotReady(error, end))
        }
    }
}
