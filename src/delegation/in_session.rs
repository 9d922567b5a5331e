//! Runs with `session: true`: lease of the session, new or resumed process, result stored in the
//! session.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::credentials::claude_config_dir;
use super::deliver::{ReportDraft, settle};
use super::judge::{session_not_found, turn_was_completed, turn_was_interrupted};
use super::launch::PreparedLaunch;
use super::orchestrator::Orchestrator;
use super::phase_timings::RunPhase;
use super::pipeline::Run;
use super::process_spec::working_dir;
use super::processes::{
    AgentProcess, LiveProcess, NewProcess, pool_or_retire, run_in_new_process,
    run_in_pooled_process, take_warm_process,
};
use super::turn::TurnOutcome;
use crate::catalog::Agent;
use crate::outcome::{Code, Failure};
use crate::plan::SessionStart;
use crate::runs::{kill_remnants_of, kill_remnants_with};
use crate::sessions::{
    CompletedTurn, LeaseRequest, SessionError, SessionKey, SessionLease, SessionName, StartMode,
    expected_transcript,
};
use crate::util::run_blocking;

/// Runs one turn in the agent's session, and stores its result there.
pub(crate) async fn run(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    draft: &mut ReportDraft,
) -> Result<TurnOutcome, Failure> {
    let name = session_name(run, launch.agent())?;
    run.status.set_activity("waiting for the conversation");
    let began = Instant::now();
    let _turn = wait_for_local_turn(services, launch, &name).await?;
    let request = lease_request(services, run, launch.agent(), &launch.working_dir, &name);
    let request =
        LeaseRequest { timeout: request.timeout.saturating_sub(began.elapsed()), ..request };
    let (mut lease, live) = lease_session(services, launch, &name, request).await?;
    draft.timing.add(RunPhase::Queue, began.elapsed());
    let ready = match live {
        Some(live) => Some(live),
        None => start_or_resume(services, launch, &mut lease, draft).await,
    };
    let mut outcome = run_turn(services, run, launch, &mut lease, ready, draft).await?;
    if lease.start_mode() == StartMode::Resume && session_not_found(&outcome) {
        lease.restart("«No conversation found»").await.map_err(|error| session_failure(&error))?;
        launch.retire(services, outcome.process.take(), ());
        outcome = run_turn(services, run, launch, &mut lease, None, draft).await?;
    }
    draft.session_id = Some(lease.session_id().to_string());
    let recording = Instant::now();
    // Both wait for file I/O; run them concurrently.
    tokio::join!(commit(&mut lease, &outcome), settle(&launch.registered.budget, draft.cost_usd));
    draft.timing.add(RunPhase::Record, recording.elapsed());
    draft.notes.extend(lease.notes().iter().cloned());
    // The lease goes with the process: no other run may resume a session while a process still has it.
    pool_or_retire(services, run, launch, &mut outcome, lease, &name);
    Ok(outcome)
}

fn session_name(run: &Run, agent: &Agent) -> Result<SessionName, Failure> {
    let key = run.request.session_key.as_deref();
    let key = key.map_or_else(|| Ok(SessionKey::default()), str::parse).map_err(|error| {
        Failure::new(
            Code::InvalidArgument,
            format!("`session_key` cannot be used: {error}"),
            "give a short plain name",
        )
    })?;
    Ok(SessionName { agent: agent.name.clone(), key })
}

/// Waits for earlier runs of this server in the same session, so that each finds the live process of
/// the run before.
///
/// Only if processes are kept between runs. `None` after `session_wait`: the store then grants the lease or names
/// its holder.
async fn wait_for_local_turn(
    services: &Orchestrator,
    launch: &PreparedLaunch<'_>,
    name: &SessionName,
) -> Result<Option<OwnedMutexGuard<()>>, Failure> {
    if !services.process_pool.is_on() {
        return Ok(None);
    }
    let until = Instant::now() + services.catalog.snapshot().orchestration().session_wait;
    let queue = services.process_pool.session_queue(name).lock_owned();
    Ok(launch.limits.bound(timeout_at(until, queue)).await?.ok())
}

/// Predicts session id and transcript path of the run before it waits for anything.
///
/// A pooled process has its own session id; `attach_session` corrects the prediction when the process is taken.
pub(crate) async fn predict_session(
    services: &Orchestrator,
    run: &Run,
    agent: &Agent,
) -> ExpectedSession {
    let folder =
        working_dir(agent, &services.settings).unwrap_or_else(|_| services.settings.root.clone());
    let session_id = match session_name(run, agent) {
        Ok(name) if agent.session => {
            let request = lease_request(services, run, agent, &folder, &name);
            let sessions = services.sessions.clone();
            run_blocking(move || sessions.predict_session_id(&request))
                .await
                .unwrap_or(run.new_session_id)
        }
        Ok(_) | Err(_) => run.new_session_id,
    };
    ExpectedSession::new(session_id, &folder)
}

fn lease_request(
    services: &Orchestrator,
    run: &Run,
    agent: &Agent,
    folder: &Path,
    name: &SessionName,
) -> LeaseRequest {
    LeaseRequest {
        agent: name.agent.clone(),
        key: name.key.clone(),
        fresh: run.request.fresh,
        working_dir: folder.to_path_buf(),
        config_dir: claude_config_dir(),
        new_session_id: run.new_session_id,
        agent_digest: agent_digest(agent),
        run: run.id,
        timeout: services.catalog.snapshot().orchestration().session_wait,
    }
}

/// Leases the session, with its live process if there is one that can serve this run.
async fn lease_session(
    services: &Orchestrator,
    launch: &PreparedLaunch<'_>,
    name: &SessionName,
    request: LeaseRequest,
) -> Result<(SessionLease, Option<AgentProcess>), Failure> {
    let live = services.process_pool.take_live(name).and_then(LiveProcess::from_pooled);
    let leased = if let Some(live) = live {
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
    services: &Orchestrator,
    launch: &PreparedLaunch<'_>,
    lease: &mut SessionLease,
    draft: &mut ReportDraft,
) -> Option<AgentProcess> {
    match (lease.start_mode(), lease.last_run()) {
        (StartMode::Create, _) => {
            let warm = take_warm_process(services, launch, draft)?;
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
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    lease: &mut SessionLease,
    ready: Option<AgentProcess>,
    draft: &mut ReportDraft,
) -> Result<TurnOutcome, Failure> {
    if let Some(process) = ready {
        launch.attach_session(lease.session_id(), Path::new(&lease.session().folder));
        let source = session_start(lease).source();
        let turn = run_in_pooled_process(services, run, launch, process, source, draft).await;
        if let Some(outcome) = turn {
            return Ok(outcome);
        }
        // The failed process may have used its session id already.
        lease.set_session_id(Uuid::new_v4()).await;
    }
    let working_dir = PathBuf::from(&lease.session().folder);
    let new = NewProcess {
        session: session_start(lease),
        working_dir: &working_dir,
        session_cost_usd: lease.counted_before(),
    };
    run_in_new_process(services, run, launch, &new, draft).await
}

/// Stores the result of the turn in the session.
async fn commit(lease: &mut SessionLease, outcome: &TurnOutcome) {
    let cost_usd = outcome.progress.cost_usd;
    if turn_was_completed(outcome) {
        lease.record_completed(CompletedTurn { turns: 1, cost_usd }).await;
    } else if turn_was_interrupted(outcome) {
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
}

impl ExpectedSession {
    pub(crate) fn new(session_id: Uuid, folder: &Path) -> Self {
        // Claude Code derives the directory name from the resolved path.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        Self {
            session_id,
            transcript: expected_transcript(&claude_config_dir(), &folder, session_id),
        }
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
        SessionError::Unknown { .. }
        | SessionError::Unreadable(_)
        | SessionError::QueueUnavailable { .. }
        | SessionError::NotSaved(_) => {
            (Code::StoreUnavailable, "a person must make `data/` readable and writable")
        }
    };
    Failure::new(code, error.to_string(), help)
}
