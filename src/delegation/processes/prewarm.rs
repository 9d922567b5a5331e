//! Warm processes: started before a run needs them, up to the number in the agents' files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::super::launch::LaunchInputs;
use super::super::limits::LimitHit;
use super::super::orchestrator::Orchestrator;
use super::super::process_spec::working_dir;
use super::agent_process::{AgentProcess, AgentSpawn};
use super::idle_pool::PoolKey;
use super::process_pool::{PooledProcess, pool_limits};
use crate::catalog::Agent;
use crate::gateway::SdkServers;
use crate::outcome::Failure;
use crate::plan::SessionStart;
use crate::util::RunId;

/// Limit of the start of a warm process.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause after a failed start of an agent's process; a change of the files ends it.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Interval of a refill without notification, for changes that nothing reports: `memory.md`, a process
/// that exited.
const REFILL_INTERVAL: Duration = Duration::from_secs(30);

impl Orchestrator {
    /// Starts keeping processes between runs: warm ones as the agents' files say, live ones for sessions.
    ///
    /// For long-lived servers. Without this call, every run starts a new process.
    pub fn enable_process_pool(self: &Arc<Self>) {
        self.process_pool.enable();
        tokio::spawn(refill_on_changes(Arc::downgrade(self)));
    }
}

/// Refills the pool after every change, until shutdown.
async fn refill_on_changes(services: Weak<Orchestrator>) {
    let Some(strong) = services.upgrade() else { return };
    let mut changes = strong.catalog.changed();
    let stopping = strong.shutdown().stopping().clone();
    drop(strong);
    let mut failed = HashMap::new();
    loop {
        let Some(services) = services.upgrade() else { return };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = refill(&services, &mut failed) => {}
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = services.process_pool.warm_process_used.notified() => {}
            () = sleep(REFILL_INTERVAL) => {}
            changed = changes.changed() => {
                if changed.is_err() { return }
                failed.clear();
            }
        }
    }
}

/// Stops unwanted processes and starts missing ones, one at a time: runs have priority.
async fn refill(services: &Orchestrator, failed: &mut HashMap<String, Instant>) {
    let snapshot = services.catalog.snapshot();
    let idle = &services.process_pool.idle;
    idle.set_limits(pool_limits(snapshot.orchestration()));
    let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
    let wanting: Vec<&Arc<Agent>> = agents.filter(|agent| agent.warm > 0).collect();
    idle.end_unwanted(|name| wanting.iter().any(|agent| agent.name.as_str() == name));
    failed.retain(|_, until| *until > Instant::now());
    for agent in wanting {
        if failed.contains_key(agent.name.as_str()) {
            continue;
        }
        if let Err(why) = refill_agent(services, agent).await {
            tracing::warn!(agent = %agent.name, "no process can be kept warm: {why}");
            failed.insert(agent.name.to_string(), Instant::now() + RETRY_INTERVAL);
        }
    }
}

async fn refill_agent(services: &Orchestrator, agent: &Arc<Agent>) -> Result<(), String> {
    let told = |failure: Failure| failure.full_message();
    let Orchestrator { settings, program_cache, control_files, gateway, .. } = services;
    let (name, idle) = (agent.name.as_str(), &services.process_pool.idle);
    let snapshot = services.catalog.snapshot();
    loop {
        let session_id = Uuid::new_v4();
        let session = match agent.session {
            true => SessionStart::Create(session_id.to_string()),
            false => SessionStart::Ephemeral(session_id.to_string()),
        };
        let working_dir = working_dir(agent, settings).map_err(told)?;
        let reading = LaunchInputs::read(settings, program_cache, control_files, &snapshot, agent);
        let inputs = reading.await.map_err(told)?;
        let launch_digest = inputs.digest(&session, &working_dir, gateway).map_err(told)?;
        let key = PoolKey::Warm { digest: launch_digest.clone() };
        idle.end_outdated(name, &launch_digest);
        if idle.count(&key) >= agent.warm as usize || !idle.has_room() {
            return Ok(());
        }
        let process = start(services, &inputs, &session, &working_dir).await?;
        let doing = "warm: waits for its first prompt";
        let registration = services.run_registry.register_idle(name, &process.process, doing).ok();
        let session_id = Some(session_id);
        let warm = PooledProcess { process, launch_digest, session_id, lease: None, registration };
        let warm_idle = services.catalog.snapshot().orchestration().warm_idle;
        idle.put(name, key, warm, warm_idle);
    }
}

async fn start(
    services: &Orchestrator,
    inputs: &LaunchInputs,
    session: &SessionStart,
    working_dir: &Path,
) -> Result<AgentProcess, String> {
    let id = RunId::new();
    let servers = connect_servers(services, &inputs.agent, id).await?;
    let spawn = AgentSpawn::new(services, inputs, session, (id, working_dir), servers)
        .map_err(|failure| failure.full_message())?;
    let _permit = services.startup_limiter.acquire().await;
    let ending = services.shutdown().ending();
    let exceeded = async {
        match timeout(START_TIMEOUT, ending.cancelled()).await {
            Ok(()) => LimitHit::Cancelled,
            Err(_) => LimitHit::Deadline,
        }
    };
    AgentProcess::start(spawn, exceeded, |_| {})
        .await
        .map_err(|outcome| format!("claude did not start: {}", outcome.stderr.trim()))
}

/// Connects the agent's servers. Fails if one is missing: without a run there is no caller to notify.
async fn connect_servers(
    services: &Orchestrator,
    agent: &Arc<Agent>,
    id: RunId,
) -> Result<Option<Arc<SdkServers>>, String> {
    if agent.servers.is_empty() {
        return Ok(None);
    }
    match SdkServers::connect(&services.gateway, agent, id).await {
        Ok((servers, notes)) if notes.is_empty() => Ok(Some(Arc::new(servers))),
        Ok((_, notes)) => Err(notes.join(" ")),
        Err(error) => Err(error.to_string()),
    }
}
