//! Processes that are started before anybody asks: as many as the agents' files want, as long as there is room.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::bridge::Bridge;
use super::contract::contract;
use super::converse::Leash;
use super::ground::options;
use super::kept::{Kept, pool_limits};
use super::open::Open;
use super::orchestrator::Orchestrator;
use super::prepare;
use crate::base::RunId;
use crate::catalog::Agent;
use crate::gateway::Tunnel;
use crate::plan::{ConversationStart, PlanRequest, plan};
use crate::worker::Place;

/// How long a process may take to be ready before it is given up.
const PATIENCE: Duration = Duration::from_mins(1);
/// After a start that failed the agent is left alone for so long, unless the files change.
const AFTER_A_FAILURE: Duration = Duration::from_mins(1);
/// How often it is looked whether something that was told to nobody has changed: memory, a process that died.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Orchestrator {
    /// From now on processes are kept between calls: warm ones where an agent's file wants them, live ones for conversations.
    /// For a server that stays; without this every call is cold and leaves nothing.
    pub fn keep_processes(self: &Arc<Self>) {
        self.warmth.turn_on();
        tokio::spawn(tend(Arc::downgrade(self)));
    }
}

/// Fills up when something has changed, until the server ends.
async fn tend(shared: Weak<Orchestrator>) {
    let Some(strong) = shared.upgrade() else { return };
    let mut changes = strong.catalog.changed();
    let stopping = strong.shutdown().stopping().clone();
    drop(strong);
    let mut failed = HashMap::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = fill(&strong, &mut failed) => {}
        }
        let again = sleep_until(Instant::now() + LOOK_AGAIN);
        tokio::select! {
            () = stopping.cancelled() => return,
            () = strong.warmth.used.notified() => {}
            () = again => {}
            changed = changes.changed() => {
                if changed.is_err() { return }
                failed.clear();
            }
        }
    }
}

/// Ends what no file wants any more, and starts what is missing, one after the other: calls come first.
async fn fill(shared: &Orchestrator, failed: &mut HashMap<String, Instant>) {
    let snapshot = shared.catalog.snapshot();
    shared.warmth.pool.set_limits(pool_limits(snapshot.orchestration()));
    let wanting: Vec<Arc<Agent>> = snapshot
        .entries()
        .iter()
        .filter_map(|entry| entry.agent())
        .filter(|agent| agent.warm > 0)
        .cloned()
        .collect();
    shared.warmth.pool.end_unwanted(|name| wanting.iter().any(|agent| agent.name.as_str() == name));
    failed.retain(|_, until| *until > Instant::now());
    for agent in wanting {
        if failed.contains_key(agent.name.as_str()) {
            continue;
        }
        if let Err(why) = fill_for(shared, &agent).await {
            tracing::warn!(agent = %agent.name, "no process can be kept warm: {why}");
            failed.insert(agent.name.to_string(), Instant::now() + AFTER_A_FAILURE);
        }
    }
}

async fn fill_for(shared: &Orchestrator, agent: &Arc<Agent>) -> Result<(), String> {
    loop {
        let id = Uuid::new_v4().to_string();
        let start = match agent.session {
            true => ConversationStart::Create(id),
            false => ConversationStart::Passing(id),
        };
        let planned = Planned::new(shared, agent, &start).await?;
        let place = Place::Warm { contract: planned.contract.clone() };
        shared.warmth.pool.end_outdated(agent.name.as_str(), Some(&planned.contract));
        if shared.warmth.pool.count(&place) >= agent.warm as usize || !shared.warmth.pool.has_room()
        {
            return Ok(());
        }
        let kept = planned.start(shared, agent, &start).await?;
        let idle = shared.catalog.snapshot().orchestration().warm_idle;
        shared.warmth.pool.keep(agent.name.as_str(), place, kept, idle);
    }
}

/// Exactly what would be started for the next fresh call.
struct Planned {
    plan: crate::plan::LaunchPlan,
    folder: std::path::PathBuf,
    contract: String,
}

impl Planned {
    async fn new(
        shared: &Orchestrator,
        agent: &Arc<Agent>,
        start: &ConversationStart,
    ) -> Result<Self, String> {
        let sentence = |failure: crate::outcome::Failure| failure.sentence();
        let folder = prepare::folder(agent, &shared.settings).map_err(sentence)?;
        let memory = prepare::memory(agent).map_err(sentence)?;
        let program = shared.programs.find(&shared.settings).await.map_err(sentence)?;
        let plan = plan(PlanRequest {
            agent,
            program: &program.path,
            features: &program.features,
            memory: memory.as_deref(),
            present: &prepare::present_variables(),
            conversation: start,
        });
        let contract =
            contract(agent, &plan, &program, &folder, &shared.gateway).map_err(sentence)?;
        Ok(Self { plan, folder, contract })
    }

    async fn start(
        self,
        shared: &Orchestrator,
        agent: &Arc<Agent>,
        start: &ConversationStart,
    ) -> Result<Kept, String> {
        let id = RunId::new();
        let tunnel = tunnel(shared, agent, id).await?;
        let files =
            prepare::private_folder(&shared.settings, id).map_err(|error| error.to_string())?;
        let launch = prepare::launch(agent, &self.plan, id, self.folder, &files)
            .map_err(|failure| failure.sentence())?;
        let bridge = Bridge::new(Arc::clone(agent), tunnel);
        let leash = Leash {
            deadline: Instant::now() + PATIENCE,
            idle: None,
            cancel: shared.shutdown().ending().child_token(),
            meter: None,
        };
        let options = options(shared, agent, start);
        let turn = shared.doorway.enter().await;
        let open = Open::start(launch, files, options, bridge, &leash, |_| {})
            .await
            .map_err(|not_open| format!("claude did not start: {}", not_open.stderr.trim()))?;
        drop(turn);
        let doing = "warm: waits for its first prompt";
        let posting = shared.runs.post_idle(agent.name.as_str(), &open.process, doing).ok();
        let session_id = match start {
            ConversationStart::Create(id) | ConversationStart::Passing(id) => id.parse().ok(),
            ConversationStart::Resume(_) => None,
        };
        Ok(Kept { open, contract: self.contract, session_id, held: None, posting })
    }
}

/// Its servers, all of them: one that is missing would have to be told to the caller, and there is none yet.
async fn tunnel(
    shared: &Orchestrator,
    agent: &Arc<Agent>,
    id: RunId,
) -> Result<Option<Arc<Tunnel>>, String> {
    if agent.servers.is_empty() {
        return Ok(None);
    }
    match Tunnel::open(&shared.gateway, agent, id).await {
        Ok((tunnel, notes)) if notes.is_empty() => Ok(Some(Arc::new(tunnel))),
        Ok((_, notes)) => Err(notes.join(" ")),
        Err(error) => Err(error.to_string()),
    }
}
