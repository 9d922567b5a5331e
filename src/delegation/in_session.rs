//! Runs with `session: true`: lease of the session, new or resumed process, result stored in the
//! session.

use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use uuid::Uuid;

use super::deliver::settle;
use super::judge::session_not_found;
use super::launch::PreparedLaunch;
use super::phase_timings::RunPhase;
use super::pipeline::Run;
use super::process_spec::working_dir;
use super::processes::{
    AgentProcess, claude_config_dir, pool_or_retire, run_in_new_process, run_in_pooled_process,
    take_warm_process,
};
use super::turn::{RunEnd, TurnOutcome};
use crate::catalog::Agent;
use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::SessionStart;
use crate::runs::{kill_remnants_of, kill_remnants_with};
use crate::sessions::{
    CompletedTurn, LeaseRequest, SessionError, SessionKey, SessionLease, SessionName, StartMode,
    expected_transcript, transcripts_dir,
};
use crate::util::run_blocking;

/// Runs one turn in the agent's session, and stores its result there.
pub(crate) async fn run(launch: &PreparedLaunch<'_>) -> Result<TurnOutcome, Failure> {
    let run = launch.run;
    let name = session_name(run, launch.agent())?;
    run.status.set_activity("waiting for the conversation");
    let began = Instant::now();
    let _turn = wait_for_local_turn(launch, &name).await?;
    let mut request = lease_request(run, launch.agent(), &name, &launch.working_dir);
    request.timeout = request.timeout.saturating_sub(began.elapsed());
    let (mut lease, live) = lease_session(launch, &name, request).await?;
    run.add_time(RunPhase::Queue, began);
    let ready = match live {
        Some(live) => Some(live),
        None => start_or_resume(launch, &mut lease).await,
    };
    let mut outcome = run_turn(launch, &mut lease, ready).await?;
    if lease.start_mode() == StartMode::Resume && session_not_found(&outcome) {
        lease.restart("«No conversation found»").await.map_err(|error| session_failure(&error))?;
        launch.retire(outcome.process.take(), ());
        outcome = run_turn(launch, &mut lease, None).await?;
    }
    let recording = Instant::now();
    let cost_usd = run.draft().cost_usd;
    // Both wait for file I/O; run them concurrently.
    tokio::join!(commit(&mut lease, &outcome), settle(&launch.registered.budget, cost_usd));
    run.add_time(RunPhase::Record, recording);
    run.draft().session_id = Some(lease.session_id().to_string());
    run.draft().notes.extend(lease.notes().iter().cloned());
    // The lease goes with the process: no other run may resume a session while a process still has it.
    pool_or_retire(launch, &mut outcome, lease, &name);
    Ok(outcome)
}

fn session_name(run: &Run, agent: &Agent) -> Result<SessionName, Failure> {
    let key = run.request.session_key.as_deref();
    let key = key.map_or_else(|| Ok(SessionKey::default()), str::parse).map_err(|error| {
        let message = format!("`session_key` cannot be used: {error}");
        Failure::new(Code::InvalidArgument, message, "give a short plain name")
    })?;
    Ok(SessionName { agent: agent.name.clone(), key })
}

/// Waits for earlier runs of this server in the same session, so that each finds the live process of
/// the run before.
///
/// Only if processes are kept between runs. `None` after `session_wait`: the store then grants the lease or names
/// its holder.
async fn wait_for_local_turn(
    launch: &PreparedLaunch<'_>,
    name: &SessionName,
) -> Result<Option<OwnedMutexGuard<()>>, Failure> {
    let services = &launch.run.services;
    if !services.process_pool.is_on() {
        return Ok(None);
    }
    let session_wait = services.catalog.snapshot().orchestration().session_wait;
    let queue = services.process_pool.session_queue(name).lock_owned();
    Ok(launch.limits.bound(timeout(session_wait, queue)).await?.ok())
}

/// Predicts session id and transcript path of the run before it waits for anything.
///
/// A pooled process has its own session id; `attach_session` corrects the prediction when the process is taken.
pub(crate) async fn predict_session(run: &Run, agent: &Agent) -> ExpectedSession {
    let settings = &run.services.settings;
    let folder = working_dir(agent, settings).unwrap_or_else(|_| settings.root.clone());
    let session_id = match session_name(run, agent) {
        Ok(name) if agent.session => {
            let request = lease_request(run, agent, &name, &folder);
            let sessions = run.services.sessions.clone();
            run_blocking(move || sessions.predict_session_id(&request)).await
        }
        Ok(_) | Err(_) => None,
    };
    let session_id = session_id.unwrap_or(run.new_session_id);
    ExpectedSession::new(agent, settings, session_id, &folder)
}

fn lease_request(run: &Run, agent: &Agent, name: &SessionName, folder: &Path) -> LeaseRequest {
    LeaseRequest {
        agent: name.agent.clone(),
        key: name.key.clone(),
        fresh: run.request.fresh,
        working_dir: folder.to_path_buf(),
        config_dir: claude_config_dir(),
        new_session_id: run.new_session_id,
        agent_digest: agent_digest(agent),
        run: run.id,
        timeout: run.services.catalog.snapshot().orchestration().session_wait,
    }
}

/// Leases the session, with its live process if there is one that can serve this run.
async fn lease_session(
    launch: &PreparedLaunch<'_>,
    name: &SessionName,
    request: LeaseRequest,
) -> Result<(SessionLease, Option<AgentProcess>), Failure> {
    let services = &launch.run.services;
    let leased = if let Some(live) = services.process_pool.take_live(name) {
        live.renew(request, &launch.digest).await
    } else {
        let leased = launch.limits.bound(services.sessions.lease(request)).await?;
        leased.map(|lease| (lease, None))
    };
    leased.map_err(|error| session_failure(&error))
}

/// Prepares the process of a session.
///
/// A new session may take a warm process from the pool. For a resumed one, any process that a crashed server left
/// attached to the session is killed first, because two writers would corrupt its transcript.
async fn start_or_resume(
    launch: &PreparedLaunch<'_>,
    lease: &mut SessionLease,
) -> Option<AgentProcess> {
    match (lease.start_mode(), lease.last_run()) {
        (StartMode::Create, _) => {
            let warm = take_warm_process(launch)?;
            lease.set_session_id(warm.session_id?).await;
            Some(warm.process)
        }
        (StartMode::Resume, Some(last)) => {
            // The kernel releases the lease of a killed server at once, but its `claude` exits later.
            let id = lease.session_id();
            let flags = ["--resume", "--session-id"].map(|flag| format!("{flag}={id}"));
            kill_remnants_with(flags.into()).await;
            kill_remnants_of(last).await;
            None
        }
        (StartMode::Resume, None) => None,
    }
}

async fn run_turn(
    launch: &PreparedLaunch<'_>,
    lease: &mut SessionLease,
    ready: Option<AgentProcess>,
) -> Result<TurnOutcome, Failure> {
    if let Some(process) = ready {
        launch.attach_session(lease.session_id(), Path::new(&lease.session().folder));
        let source = session_start(lease).source();
        if let Some(outcome) = run_in_pooled_process(launch, process, source).await {
            return Ok(outcome);
        }
        // The failed process may have used its session id already.
        lease.set_session_id(Uuid::new_v4()).await;
    }
    let folder = Path::new(&lease.session().folder);
    run_in_new_process(launch, &session_start(lease), folder, lease.counted_before()).await
}

/// Stores the result of the turn in the session.
async fn commit(lease: &mut SessionLease, outcome: &TurnOutcome) {
    let cost_usd = outcome.progress.cost_usd;
    if outcome.is_completed() {
        lease.record_completed(CompletedTurn { turns: 1, cost_usd }).await;
    } else if matches!(outcome.end, RunEnd::Interrupted(_)) {
        // Closed in order: the text so far is in the transcript.
        lease.record_interrupted(cost_usd).await;
    } else {
        lease.record_failed(cost_usd).await;
    }
}

/// Session id and transcript path that a run is expected to have.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedSession {
    pub(crate) session_id: Uuid,
    pub(crate) transcript: PathBuf,
    /// True if `claude` itself sees another path.
    pub(crate) is_sandboxed: bool,
}

impl ExpectedSession {
    pub(crate) fn new(agent: &Agent, settings: &Settings, session_id: Uuid, folder: &Path) -> Self {
        let config_dir = match agent.sandbox {
            Some(_) => transcripts_dir(&settings.data_dir(), session_id),
            None => claude_config_dir(),
        };
        // Claude Code derives the directory name from the resolved path.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let transcript = expected_transcript(&config_dir, &folder, session_id);
        Self { session_id, transcript, is_sandboxed: agent.sandbox.is_some() }
    }
}

fn session_start(lease: &SessionLease) -> SessionStart {
    let id = lease.session_id().to_string();
    match lease.start_mode() {
        StartMode::Create => SessionStart::Create(id),
        StartMode::Resume => SessionStart::Resume(id),
    }
}

/// Returns the digest of an agent's definition: prompt, permissions, model, servers, limits.
fn agent_digest(agent: &Agent) -> String {
    let meaning = serde_json::to_vec(agent).unwrap_or_default();
    format!("sha256:{:x}", Sha256::digest(meaning))
}

fn session_failure(error: &SessionError) -> Failure {
    let (code, help) = match error {
        SessionError::Busy { .. } => {
            (Code::SessionBusy, "call again later, or give another `session_key`")
        }
        SessionError::AlreadyRestarted { .. } => {
            (Code::ClaudeFailed, "call it again with `fresh: true`")
        }
        SessionError::Unreadable(_)
        | SessionError::QueueUnavailable { .. }
        | SessionError::NotSaved(_) => {
            (Code::StoreUnavailable, "a person must make `data/` readable and writable")
        }
    };
    Failure::new(code, error.to_string(), help)
}
