//! `session: true`: which conversation goes on, and what becomes of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::converse::{Run, Stop};
use super::credentials::config_dir;
use super::ground::{Ground, source_of};
use super::judge::{
    conversation_is_unknown, judge, stopped, turn_was_completed, turn_was_interrupted,
};
use super::on_disk::on_disk;
use super::open::Open;
use super::orchestrator::Orchestrator;
use super::prepare;
use super::reuse::Live;
use super::steps::Call;
use super::timing::Span;
use crate::catalog::Agent;
use crate::outcome::{Answer, Code, Failure};
use crate::plan::ConversationStart;
use crate::sessions::{
    Begin, CompletedTurn, ConversationName, Lease, SessionError, SessionKey, Start,
    expected_transcript,
};
use crate::worker::{end_leftovers_of, end_leftovers_with};

impl Call {
    /// `session: true`: the conversation goes on where it ended.
    pub(super) async fn go_on(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
    ) -> Result<Answer, Failure> {
        let name = self.conversation_name(&ground.agent)?;
        self.board.doing("waiting for the conversation");
        let began = Instant::now();
        let _turn = self.turn_among_ours(shared, ground, &name).await?;
        let begin = self.begin(shared, &ground.agent, &ground.folder, &name, began.elapsed());
        let (mut lease, mut ready) = match shared.warmth.take_live(&name).and_then(Live::of) {
            Some(live) => live.go_on(begin, &ground.contract).await,
            None => (self.lease(shared, ground, begin).await?, None),
        };
        self.timing.add(Span::Queue, began.elapsed());
        if ready.is_none() {
            ready = self.begin_conversation(shared, ground, &mut lease).await;
        }
        let mut run = self.resume(shared, ground, &mut lease, ready).await?;
        if lease.start() == Start::Resume && conversation_is_unknown(&run) {
            lease
                .restart_fresh("«No conversation found»")
                .await
                .map_err(|error| session_failure(&error))?;
            self.part(shared, run.open.take(), ());
            run = self.resume(shared, ground, &mut lease, None).await?;
        }
        self.facts.session_id = Some(lease.session_id().to_string());
        let judging = Instant::now();
        let judged = judge(&ground.agent, &run, &ground.wanted);
        self.timing.add(Span::Judge, judging.elapsed());
        let recording = Instant::now();
        let cost_usd = run.progress.cost_usd;
        let keeping = async {
            if turn_was_completed(&run) {
                lease.completed(CompletedTurn { turns: 1, cost_usd }).await;
            } else if turn_was_interrupted(&run) {
                lease.interrupted(cost_usd).await;
            } else {
                lease.failed(cost_usd).await;
            }
        };
        // Both wait for the disk; together they wait once.
        tokio::join!(keeping, self.settle());
        self.timing.add(Span::Record, recording.elapsed());
        self.facts.notes.extend(lease.notes().iter().cloned());
        // Nobody resumes a conversation while a process still has it.
        self.keep_or_part(shared, ground, &mut run, lease, &name);
        judged
    }

    fn conversation_name(&self, agent: &Agent) -> Result<ConversationName, Failure> {
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
        Ok(ConversationName { agent: agent.name.clone(), key })
    }

    /// Where processes are kept, calls of this server stand in line here first, so that each finds the process of the one
    /// before. Whoever waits too long is refused by the store, which knows who has the conversation.
    async fn turn_among_ours(
        &self,
        shared: &Orchestrator,
        ground: &Ground,
        name: &ConversationName,
    ) -> Result<Option<OwnedMutexGuard<()>>, Failure> {
        if !shared.warmth.is_on() {
            return Ok(None);
        }
        let patience = Instant::now() + shared.catalog.snapshot().orchestration().session_wait;
        let line = shared.warmth.queue(name).lock_owned();
        tokio::select! {
            turn = timeout_at(patience.min(ground.leash.deadline), line) => Ok(turn.ok()),
            () = self.cancel.cancelled() => Err(stopped(&ground.agent, &Stop::Cancelled)),
        }
    }

    /// Which conversation the call will be part of, and where its transcript is, as far as that can be said before it has
    /// waited for anything. A process that waits for calls has an id of its own; the start of the run says that then.
    pub(super) async fn foresee(&self, shared: &Orchestrator, agent: &Agent) -> Foreseen {
        let folder = prepare::folder(agent, &shared.settings)
            .unwrap_or_else(|_| shared.settings.root.clone());
        let session_id = match self.conversation_name(agent) {
            Ok(name) if agent.session => {
                let begin = self.begin(shared, agent, &folder, &name, Duration::ZERO);
                let sessions = shared.sessions.clone();
                on_disk(move || sessions.foresee(&begin)).await.unwrap_or(self.new_session)
            }
            Ok(_) | Err(_) => self.new_session,
        };
        Foreseen::new(session_id, &folder)
    }

    fn begin(
        &self,
        shared: &Orchestrator,
        agent: &Agent,
        folder: &Path,
        name: &ConversationName,
        waited: Duration,
    ) -> Begin {
        let patience = shared.catalog.snapshot().orchestration().session_wait;
        Begin {
            agent: name.agent.clone(),
            key: name.key.clone(),
            fresh: self.request.fresh,
            folder: folder.to_path_buf(),
            config_dir: config_dir(),
            new_id: self.new_session,
            contract: contract_of(agent),
            run: self.run,
            patience: patience.saturating_sub(waited),
        }
    }

    async fn lease(
        &self,
        shared: &Orchestrator,
        ground: &Ground,
        begin: Begin,
    ) -> Result<Lease, Failure> {
        let begun = tokio::select! {
            begun = timeout_at(ground.leash.deadline, shared.sessions.begin(begin)) => begun,
            () = self.cancel.cancelled() => return Err(stopped(&ground.agent, &Stop::Cancelled)),
        };
        begun
            .map_err(|_| stopped(&ground.agent, &Stop::Deadline))?
            .map_err(|error| session_failure(&error))
    }

    /// Before a process of its own: a new conversation may take a warm one, an old one must not have another any more.
    async fn begin_conversation(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
        lease: &mut Lease,
    ) -> Option<Open> {
        match (lease.start(), lease.last_run()) {
            (Start::Create, _) => {
                let kept = self.warm_one(shared, ground)?;
                lease.take_id(kept.session_id?).await;
                Some(kept.open)
            }
            (Start::Resume, Some(last)) => {
                // The lease of a killed server is free at once, its `claude` gone a moment later: two never resume one conversation.
                let id = lease.session_id();
                let flags = ["--resume", "--session-id"].map(|flag| format!("{flag}={id}"));
                end_leftovers_with(flags.into()).await;
                end_leftovers_of(last).await;
                None
            }
            (Start::Resume, None) => None,
        }
    }

    async fn resume(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
        lease: &mut Lease,
        ready: Option<Open>,
    ) -> Result<Run, Failure> {
        if let Some(open) = ready {
            self.belongs_to(lease.session_id(), Path::new(&lease.conversation().folder));
            if let Some(run) = self.reuse(shared, ground, open, source_of(&start_of(lease))).await {
                return Ok(run);
            }
            // The id of a conversation that did not come about may be in use already.
            lease.take_id(Uuid::new_v4()).await;
        }
        let start = start_of(lease);
        let folder = PathBuf::from(&lease.conversation().folder);
        let before = lease.counted_before();
        self.converse(shared, ground, &folder, &start, before).await
    }
}

/// A conversation that a run is about to be part of.
#[derive(Clone, Debug)]
pub(super) struct Foreseen {
    pub(super) session_id: Uuid,
    pub(super) transcript: PathBuf,
}

impl Foreseen {
    pub(super) fn new(session_id: Uuid, folder: &Path) -> Self {
        // Claude Code names it by where it really is.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        Self { session_id, transcript: expected_transcript(&config_dir(), &folder, session_id) }
    }
}

fn start_of(lease: &Lease) -> ConversationStart {
    let id = lease.session_id().to_string();
    match lease.start() {
        Start::Create => ConversationStart::Create(id),
        Start::Resume => ConversationStart::Resume(id),
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
