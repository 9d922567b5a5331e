//! `session: true`: which conversation goes on, and what becomes of it.

use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tokio::time::timeout_at;

use super::converse::{Run, Stop};
use super::credentials::config_dir;
use super::judge::{
    conversation_is_unknown, judge, stopped, turn_was_completed, turn_was_interrupted,
};
use super::orchestrator::Orchestrator;
use super::steps::{Call, Ground};
use crate::catalog::Agent;
use crate::outcome::{Answer, Code, Failure};
use crate::plan::ConversationStart;
use crate::sessions::{Begin, CompletedTurn, Lease, SessionError, SessionKey, Start};
use crate::worker::end_leftovers_of;

impl Call {
    /// `session: true`: the conversation goes on where it ended.
    pub(super) async fn go_on(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
    ) -> Result<Answer, Failure> {
        let mut lease = self.lease(shared, ground).await?;
        if let (Start::Resume, Some(last)) = (lease.start(), lease.last_run()) {
            // The lease of a killed server is free at once, its `claude` gone a moment later: two never resume one conversation.
            end_leftovers_of(last).await;
        }
        let mut run = self.resume(shared, ground, &lease).await?;
        if lease.start() == Start::Resume && conversation_is_unknown(&run) {
            lease
                .restart_fresh("«No conversation found»")
                .await
                .map_err(|error| session_failure(&error))?;
            self.part(shared, run.open.take(), ());
            run = self.resume(shared, ground, &lease).await?;
        }
        self.facts.session_id = Some(lease.session_id().to_string());
        let judged = judge(&ground.agent, &run, &ground.wanted);
        let cost_usd = run.progress.cost_usd;
        if turn_was_completed(&run) {
            lease.completed(CompletedTurn { turns: 1, cost_usd }).await;
        } else if turn_was_interrupted(&run) {
            lease.interrupted(cost_usd).await;
        } else {
            lease.failed(cost_usd).await;
        }
        self.facts.notes.extend(lease.notes().iter().cloned());
        // Nobody resumes a conversation while a process still has it.
        self.part(shared, run.open.take(), lease);
        judged
    }

    async fn lease(&self, shared: &Orchestrator, ground: &Ground) -> Result<Lease, Failure> {
        self.board.doing("waiting for the conversation");
        let key = self
            .request
            .session_key
            .as_deref()
            .map_or_else(|| Ok(SessionKey::default()), str::parse);
        let key = key.map_err(|error| {
            Failure::new(
                Code::InvalidArgument,
                format!("`session_key` cannot be used: {error}"),
                "give a short plain name",
            )
        })?;
        let contract = contract_of(&ground.agent);
        let snapshot = shared.catalog.snapshot();
        let begin = Begin {
            agent: ground.agent.name.clone(),
            key,
            fresh: self.request.fresh,
            folder: ground.folder.clone(),
            config_dir: config_dir(),
            contract,
            run: self.run,
            patience: snapshot.orchestration().session_wait,
        };
        let begun = tokio::select! {
            begun = timeout_at(ground.leash.deadline, shared.sessions.begin(begin)) => begun,
            () = self.cancel.cancelled() => return Err(stopped(&ground.agent, &Stop::Cancelled)),
        };
        begun
            .map_err(|_| stopped(&ground.agent, &Stop::Deadline))?
            .map_err(|error| session_failure(&error))
    }

    async fn resume(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
        lease: &Lease,
    ) -> Result<Run, Failure> {
        let id = lease.session_id().to_string();
        let start = match lease.start() {
            Start::Create => ConversationStart::Create(id),
            Start::Resume => ConversationStart::Resume(id),
        };
        let folder = PathBuf::from(&lease.conversation().folder);
        let before = lease.counted_before();
        self.converse(shared, ground, &folder, &start, before).await
    }
}

/// A digest of what the agent's file and the defaults say: prompt, rights, model, servers, limits.
fn contract_of(agent: &Agent) -> String {
    let meaning = serde_json::to_vec(agent).unwrap_or_default();
    format!("sha256:{:x}", Sha256::digest(meaning))
}

fn session_failure(error: &SessionError) -> Failure {
    Failure::new(
        Code::SessionBusy,
        error.to_string(),
        "call again later, or give another `session_key`",
    )
}
