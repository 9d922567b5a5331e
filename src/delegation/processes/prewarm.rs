//! Warm processes: started before a run needs them, up to the number in the agents' files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::super::launch::{LaunchInputs, launch_digest};
use super::super::limits::LimitHit;
use super::super::orchestrator::Orchestrator;
use super::agent_process::AgentProcess;
use super::idle_pool::PoolKey;
use super::new_process::client_options;
use super::process_control::ProcessControl;
use super::process_pool::{PooledProcess, pool_limits};
use crate::catalog::Agent;
use crate::delegation::process_spec;
use crate::gateway::SdkServers;
use crate::outcome::Failure;
use crate::plan::{LaunchPlan, SessionStart};
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
async fn refill_on_changes(shared: Weak<Orchestrator>) {
    let Some(strong) = shared.upgrade() else { return };
    let mut changes = strong.catalog.changed();
    let stopping = strong.shutdown().stopping().clone();
    drop(strong);
    let mut failed = HashMap::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = refill(&strong, &mut failed) => {}
        }
        let again = sleep_until(Instant::now() + REFILL_INTERVAL);
        tokio::select! {
            () = stopping.cancelled() => return,
            () = strong.process_pool.warm_process_used.notified() => {}
            () = again => {}
            changed = changes.changed() => {
                if changed.is_err() { return }
                failed.clear();
            }
        }
    }
}

/// Stops unwanted processes and starts missing ones, one at a time: runs have priority.
async fn refill(shared: &Orchestrator, failed: &mut HashMap<String, Instant>) {
    let snapshot = shared.catalog.snapshot();
    shared.process_pool.idle.set_limits(pool_limits(snapshot.orchestration()));
    let wanting: Vec<Arc<Agent>> = snapshot
        .entries()
        .iter()
        .filter_map(|entry| entry.agent())
        .filter(|agent| agent.warm > 0)
        .cloned()
        .collect();
    shared
        .process_pool
        .idle
        .end_unwanted(|name| wanting.iter().any(|agent| agent.name.as_str() == name));
    failed.retain(|_, until| *until > Instant::now());
    for agent in wanting {
        if failed.contains_key(agent.name.as_str()) {
            continue;
        }
        if let Err(why) = refill_agent(shared, &agent).await {
            tracing::warn!(agent = %agent.name, "no process can be kept warm: {why}");
            failed.insert(agent.name.to_string(), Instant::now() + RETRY_INTERVAL);
        }
    }
}

async fn refill_agent(shared: &Orchestrator, agent: &Arc<Agent>) -> Result<(), String> {
    loop {
        let id = Uuid::new_v4().to_string();
        let start = match agent.session {
            true => SessionStart::Create(id),
            false => SessionStart::Ephemeral(id),
        };
        let planned = WarmPlan::new(shared, agent, &start).await;
        let planned = planned.map_err(|failure| failure.full_message())?;
        let place = PoolKey::Warm { digest: planned.launch_digest.clone() };
        shared.process_pool.idle.end_outdated(agent.name.as_str(), Some(&planned.launch_digest));
        if shared.process_pool.idle.count(&place) >= agent.warm as usize
            || !shared.process_pool.idle.has_room()
        {
            return Ok(());
        }
        let kept = planned.start(shared, agent, &start).await?;
        let idle = shared.catalog.snapshot().orchestration().warm_idle;
        shared.process_pool.idle.put(agent.name.as_str(), place, kept, idle);
    }
}

/// Launch of the next new process of an agent.
struct WarmPlan {
    plan: LaunchPlan,
    working_dir: PathBuf,
    launch_digest: String,
}

impl WarmPlan {
    async fn new(
        shared: &Orchestrator,
        agent: &Arc<Agent>,
        start: &SessionStart,
    ) -> Result<Self, Failure> {
        let (settings, control_files) = (&shared.settings, &shared.control_files);
        let working_dir = process_spec::working_dir(agent, settings)?;
        let reading = LaunchInputs::read(settings, &shared.program_cache, control_files, agent);
        let inputs = reading.await?;
        let plan = inputs.plan(start);
        let launch_digest =
            launch_digest(agent, &plan, &inputs.program, &working_dir, &shared.gateway)?;
        Ok(Self { plan, working_dir, launch_digest })
    }

    async fn start(
        self,
        shared: &Orchestrator,
        agent: &Arc<Agent>,
        start: &SessionStart,
    ) -> Result<PooledProcess, String> {
        let id = RunId::new();
        let sdk_servers = connect_servers(shared, agent, id).await?;
        let files = process_spec::create_run_dir(&shared.settings, id)
            .map_err(|error| error.to_string())?;
        let launch = process_spec::process_spec(agent, &self.plan, id, self.working_dir, &files)
            .map_err(|failure| failure.full_message())?;
        let control =
            ProcessControl::new(Arc::clone(agent), sdk_servers, Arc::clone(&shared.control_files));
        let options = client_options(shared, agent, start);
        let permit = shared.startup_limiter.acquire().await;
        let ending = shared.shutdown().ending();
        let given_up = async {
            match timeout(START_TIMEOUT, ending.cancelled()).await {
                Ok(()) => LimitHit::Cancelled,
                Err(_) => LimitHit::Deadline,
            }
        };
        let open = AgentProcess::start(launch, files, options, control, given_up, |_| {})
            .await
            .map_err(|not_open| format!("claude did not start: {}", not_open.stderr.trim()))?;
        drop(permit);
        let doing = "warm: waits for its first prompt";
        let posting =
            shared.run_registry.register_idle(agent.name.as_str(), &open.process, doing).ok();
        let session_id = match start {
            SessionStart::Create(id) | SessionStart::Ephemeral(id) => id.parse().ok(),
            SessionStart::Resume(_) => None,
        };
        Ok(PooledProcess {
            process: open,
            launch_digest: self.launch_digest,
            session_id,
            lease: None,
            registration: posting,
        })
    }
}

/// Connects the agent's servers. Fails if one is missing: without a run there is no caller to notify.
async fn connect_servers(
    shared: &Orchestrator,
    agent: &Arc<Agent>,
    id: RunId,
) -> Result<Option<Arc<SdkServers>>, String> {
    if agent.servers.is_empty() {
        return Ok(None);
    }
    match SdkServers::connect(&shared.gateway, agent, id).await {
        Ok((sdk_servers, notes)) if notes.is_empty() => Ok(Some(Arc::new(sdk_servers))),
        Ok((_, notes)) => Err(notes.join(" ")),
        Err(error) => Err(error.to_string()),
    }
}
