//! What a call stands on: the agent, the program, the folder, and everything a process is started with.

use std::path::PathBuf;
use std::sync::Arc;

use super::contract::contract;
use super::converse::Leash;
use super::orchestrator::Orchestrator;
use super::prepare;
use super::program::Program;
use super::steps::Call;
use super::wanted::Wanted;
use crate::catalog::Agent;
use crate::claude::{HookEvent, Options};
use crate::outcome::Failure;
use crate::plan::{ConversationStart, LaunchPlan, PlanRequest, plan};

/// What a launch is made from, besides the conversation.
pub(super) struct Ground {
    pub(super) agent: Arc<Agent>,
    pub(super) program: Program,
    pub(super) memory: Option<String>,
    pub(super) folder: PathBuf,
    pub(super) wanted: Wanted,
    pub(super) leash: Leash,
    /// The digest of everything a process for this call is started with.
    pub(super) contract: String,
}

impl Ground {
    pub(super) fn plan(&self, conversation: &ConversationStart) -> LaunchPlan {
        planned(&self.agent, &self.program, self.memory.as_deref(), conversation)
    }
}

impl Call {
    pub(super) async fn ground(
        &mut self,
        shared: &Orchestrator,
        agent: Arc<Agent>,
        leash: Leash,
    ) -> Result<Ground, Failure> {
        self.board.doing("starting");
        let folder = prepare::folder(&agent, &shared.settings)?;
        let memory = prepare::memory(&agent)?;
        let program = shared.programs.find(&shared.settings).await?;
        let wanted = Wanted::of(&agent)?;
        let start = ConversationStart::Passing(self.new_session.to_string());
        let plan = planned(&agent, &program, memory.as_deref(), &start);
        let contract = contract(&agent, &plan, &program, &folder, &shared.gateway)?;
        Ok(Ground { agent, program, memory, folder, wanted, leash, contract })
    }
}

fn planned(
    agent: &Agent,
    program: &Program,
    memory: Option<&str>,
    conversation: &ConversationStart,
) -> LaunchPlan {
    plan(PlanRequest {
        agent,
        program: &program.path,
        features: &program.features,
        memory,
        present: &prepare::present_variables(),
        conversation,
    })
}

pub(super) fn options(shared: &Orchestrator, agent: &Agent, start: &ConversationStart) -> Options {
    let most = shared.catalog.snapshot().orchestration().max_line_mb << 20;
    let max_line_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    Options {
        session_id: expected_session(start),
        max_line_bytes,
        hooks: HookEvent::ALL.into_iter().filter(|event| comes_by_pipe(agent, *event)).collect(),
        ..Options::default()
    }
}

/// Whether the process asks us about such an event. What it would hold a turn up for is asked only where somebody has an
/// answer; else the recorder writes the event down from what it sees.
pub(super) fn comes_by_pipe(agent: &Agent, event: HookEvent) -> bool {
    !event.is_seen_anyway() || agent.has_hook_for(event.name())
}

/// Claude Code's word for how a conversation begins.
pub(super) fn source_of(start: &ConversationStart) -> &'static str {
    match start {
        ConversationStart::Passing(_) | ConversationStart::Create(_) => "startup",
        ConversationStart::Resume(_) => "resume",
    }
}

pub(super) fn session_of(start: &ConversationStart) -> &str {
    match start {
        ConversationStart::Passing(id)
        | ConversationStart::Create(id)
        | ConversationStart::Resume(id) => id,
    }
}

/// The session that the CLI must work in. One that leaves nothing may have any: an older CLI cannot be told.
fn expected_session(start: &ConversationStart) -> Option<String> {
    match start {
        ConversationStart::Passing(_) => None,
        ConversationStart::Create(id) | ConversationStart::Resume(id) => Some(id.clone()),
    }
}
