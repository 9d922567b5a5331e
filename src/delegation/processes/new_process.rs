//! Start of a new process for a run: connects its servers, starts `claude`, binds the run.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::super::deliver::ReportDraft;
use super::super::launch::PreparedLaunch;
use super::super::orchestrator::Orchestrator;
use super::super::phase_timings::RunPhase;
use super::super::pipeline::Run;
use super::super::process_spec::{create_run_dir, process_spec};
use super::super::turn::{TurnOutcome, run_turn};
use super::agent_process::{AgentProcess, StartError};
use super::process_control::{ActiveRun, ProcessControl};
use crate::catalog::Agent;
use crate::claude::{ClientOptions, HookEvent};
use crate::config::env_vars;
use crate::outcome::{Code, Failure};
use crate::plan::SessionStart;
use crate::process::ProcessHandle;

/// Session of a new process.
pub(crate) struct NewProcess<'a> {
    pub(crate) session: SessionStart,
    pub(crate) working_dir: &'a Path,
    /// Costs that the session has counted before, in US dollars.
    pub(crate) session_cost_usd: f64,
}

/// Starts a process and runs the turn in it.
pub(crate) async fn run_in_new_process(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    new: &NewProcess<'_>,
    draft: &mut ReportDraft,
) -> Result<TurnOutcome, Failure> {
    match start_process(services, run, launch, new, draft).await? {
        Ok(process) => {
            draft.timing.add(RunPhase::Spawn, process.start_durations.0);
            draft.timing.add(RunPhase::Initialize, process.start_durations.1);
            Ok(run_turn(run, launch, process, draft).await)
        }
        Err(not_started) => {
            let outcome = TurnOutcome::from(not_started);
            draft.add_process(&launch.registered.recorder, &outcome);
            Ok(outcome)
        }
    }
}

/// A ready process, or the failure of its start.
type StartResult = Result<AgentProcess, Box<StartError>>;

async fn start_process(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    new: &NewProcess<'_>,
    draft: &mut ReportDraft,
) -> Result<StartResult, Failure> {
    let (agent, registered) = (launch.agent(), launch.registered);
    let connecting = Instant::now();
    let servers = launch.connect_servers(services, run, draft).await?;
    draft.timing.add_since(RunPhase::Servers, connecting);
    let plan = launch.plan(&new.session);
    let files =
        create_run_dir(&services.settings, run.id).map_err(|error| run_dir_failure(&error))?;
    let mut spec = process_spec(agent, &plan, run.id, new.working_dir.to_path_buf(), &files)?;
    if let Some(parent) = registered.recorder.traceparent() {
        spec.environment.push((env_vars::TRACEPARENT.into(), parent.into()));
    }
    let waiting = Instant::now();
    // A run that exceeds a limit gets no permit: the start below then fails at once.
    let permit = launch.limits.bound(services.startup_limiter.acquire()).await;
    draft.timing.add_since(RunPhase::Queue, waiting);
    let control =
        ProcessControl::new(Arc::clone(agent), servers, Arc::clone(&services.control_files));
    control.bind_run(run.id, ActiveRun::new(run, launch));
    if let Ok(session_id) = new.session.id().parse() {
        launch.attach_session(session_id, new.working_dir);
    }
    let options = ClientOptions {
        session_cost_usd: new.session_cost_usd,
        ..client_options(services, agent, &new.session)
    };
    let exceeded = launch.limits.exceeded(control.activity());
    let started =
        |process: &ProcessHandle| registered.process_started(process, new.session.source());
    let started = AgentProcess::start(spec, files, options, control, exceeded, started).await;
    drop(permit);
    Ok(started)
}

pub(crate) fn client_options(
    services: &Orchestrator,
    agent: &Agent,
    session: &SessionStart,
) -> ClientOptions {
    let most = services.catalog.snapshot().orchestration().max_line_mb << 20;
    let max_line_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    ClientOptions {
        session_id: expected_session(session),
        max_line_bytes,
        hooks: HookEvent::ALL
            .into_iter()
            .filter(|event| registers_callback(agent, *event))
            .collect(),
        ..ClientOptions::default()
    }
}

/// Returns `true` if the hook event is registered with the CLI as a callback.
///
/// Callbacks that would delay a turn are registered only if the agent has a hook for them; otherwise the recorder
/// derives the event from the output stream.
pub(crate) fn registers_callback(agent: &Agent, event: HookEvent) -> bool {
    !event.is_implied_by_output() || agent.has_hook_for(event.name())
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

fn run_dir_failure(error: &std::io::Error) -> Failure {
    let message = format!("a private folder for the run cannot be made: {error}");
    Failure::new(Code::SpawnFailed, message, "look at the free space and the rights of `data/`")
}
