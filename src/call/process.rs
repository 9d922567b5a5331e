//! A call and its processes: servers first, then a process, one message with its answer, and the end of the process.

use std::path::Path;
use std::sync::Arc;

use tokio::time::{sleep_until, timeout_at};
use uuid::Uuid;

use super::bridge::{Bridge, Errand};
use super::converse::{Leash, Run, Stop, converse};
use super::go_on::Foreseen;
use super::ground::{Ground, options, session_of, source_of};
use super::judge::{judge, stopped, turn_was_completed};
use super::open::Open;
use super::orchestrator::Orchestrator;
use super::prepare;
use super::replies::Replies;
use super::steps::Call;
use super::timing::Span;
use crate::base::{one_line, shorten};
use crate::catalog::Agent;
use crate::claude::Options;
use crate::config::env_vars;
use crate::gateway::{GatewayError, Tunnel};
use crate::outcome::{Answer, Code, Failure};
use crate::plan::ConversationStart;
use crate::worker::Process;

impl Call {
    /// `session: false`: a fresh process that leaves no transcript.
    pub(super) async fn pass_by(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
    ) -> Result<Answer, Failure> {
        let warm = match self.warm_one(shared, ground) {
            Some(kept) => {
                let session = kept.session_id.unwrap_or(self.new_session);
                self.belongs_to(session, &ground.folder);
                self.reuse(shared, ground, kept.open, "startup").await
            }
            None => None,
        };
        let passing = ConversationStart::Passing(self.new_session.to_string());
        let mut run = match warm {
            Some(run) => run,
            None => self.converse(shared, ground, &ground.folder, &passing, 0.0).await?,
        };
        self.part(shared, run.open.take(), ());
        let judging = std::time::Instant::now();
        let judged = judge(&ground.agent, &run, &ground.wanted);
        self.timing.since(Span::Judge, judging);
        judged
    }

    /// Lets a process end behind the answer. Its place at the door, and what else it `holds`, is free when it is gone.
    pub(super) fn part(
        &self,
        shared: &Orchestrator,
        open: Option<Open>,
        holds: impl Send + 'static,
    ) {
        let Some(mut open) = open else { return };
        let held = (self.permit.clone(), holds);
        shared.running.spawn(async move {
            open.say_goodbye().await;
            drop((open, held));
        });
    }

    /// One process from its start to its result, or to its end.
    pub(super) async fn converse(
        &mut self,
        shared: &Orchestrator,
        ground: &Ground,
        folder: &Path,
        start: &ConversationStart,
        spent_before: f64,
    ) -> Result<Run, Failure> {
        let agent = &ground.agent;
        let connecting = std::time::Instant::now();
        let tunnel = self.tunnel(shared, agent, &ground.leash).await?;
        self.timing.since(Span::Servers, connecting);
        let plan = ground.plan(start);
        let files = prepare::private_folder(&shared.settings, self.run)
            .map_err(|error| no_folder(&error))?;
        let mut launch = prepare::launch(agent, &plan, self.run, folder.to_path_buf(), &files)?;
        if let Some(parent) = self.recorder.as_ref().and_then(|recorder| recorder.traceparent()) {
            launch.environment.push((env_vars::TRACEPARENT.into(), parent.into()));
        }
        let waiting = std::time::Instant::now();
        let turn = tokio::select! {
            turn = shared.doorway.enter() => turn,
            // Whoever starts it sees at once that it need not.
            () = ground.leash.cancel.cancelled() => None,
            () = sleep_until(ground.leash.deadline) => None,
        };
        self.timing.since(Span::Queue, waiting);
        let errand = self.errand(ground);
        let bridge = Bridge::new(Arc::clone(agent), tunnel);
        bridge.attend(self.run, &errand);
        if let Ok(session) = session_of(start).parse() {
            self.belongs_to(session, folder);
        }
        let options = Options { session_cost_usd: spent_before, ..options(shared, agent, start) };
        let started = |process: &Process| self.has_started(process, source_of(start));
        let opened = Open::start(launch, files, options, bridge, &ground.leash, started).await;
        drop(turn);
        let run = match opened {
            Ok(open) => {
                self.timing.add(Span::Spawn, open.took.0);
                self.timing.add(Span::Initialize, open.took.1);
                let began = std::time::Instant::now();
                let run = self.talk(ground, open).await;
                errand.seen().clock.count(began, &mut self.timing);
                run
            }
            Err(not_open) => not_open.into(),
        };
        self.count(&errand, &run);
        Ok(run)
    }

    /// What a process does for this run.
    pub(super) fn errand(&self, ground: &Ground) -> Arc<Errand> {
        let approvals = Some(Arc::clone(&self.approvals));
        let errand = Errand::new(self.board.clone(), self.recorder.clone(), approvals);
        if let Some(meter) = &ground.leash.meter {
            errand.metered_by(Arc::clone(meter));
        }
        errand
    }

    /// Says the message in an open process, and what there is to say to its results.
    pub(super) async fn talk(&mut self, ground: &Ground, open: Open) -> Run {
        self.put_in_prompt(ground, &open).await;
        let message = self.request.message(&self.caller.name, self.run);
        let mut replies = Replies::new(&message, &ground.wanted, ground.leash.meter.clone());
        let run = converse(open, message, &ground.leash, |result| replies.to(result)).await;
        if let Some(said) = replies.tried_again_after {
            let said = shorten(&one_line(&said), 200);
            self.facts.notes.push(format!("The API failed once ({said}), and was asked again."));
        }
        if !turn_was_completed(&run) {
            let refusal = ground.leash.meter.as_ref().and_then(|meter| meter.refusal());
            self.facts.notes.extend(refusal);
        }
        run
    }

    /// A task that begins with a prompt of one of the agent's servers has that prompt's text instead.
    async fn put_in_prompt(&mut self, ground: &Ground, open: &Open) {
        let asking = open.bridge.prompt_behind(&self.request.prompt);
        match timeout_at(ground.leash.deadline, asking).await {
            Ok(Some(Ok(text))) => self.request.prompt = text,
            Ok(Some(Err(error))) => {
                let note = format!("The prompt of a server could not be put in: {error}.");
                self.facts.notes.push(note);
            }
            // No prompt is meant; or time is up, and the turn that follows says so.
            Ok(None) | Err(_) => {}
        }
    }

    /// Says which conversation the run is part of, as soon as that is settled.
    pub(super) fn belongs_to(&self, session_id: Uuid, folder: &Path) {
        if let Some(recorder) = &self.recorder {
            recorder.belongs_to(Foreseen::new(session_id, folder));
        }
    }

    /// Says which process the run has, and how its conversation begins.
    pub(super) fn has_started(&self, process: &Process, source: &'static str) {
        if let Some(posting) = &self.posting {
            posting.started(process);
        }
        if let Some(recorder) = &self.recorder {
            recorder.started(process.pid(), source);
        }
    }

    /// What one process did and cost, for the report.
    pub(super) fn count(&mut self, errand: &Errand, run: &Run) {
        if let Some(recorder) = &self.recorder {
            recorder.session_ended(run.ended.word(), run.progress.usage);
        }
        self.facts.denials.extend(errand.seen().denials);
        *self.facts.cost_usd.get_or_insert(0.0) += run.progress.cost_usd;
        *self.facts.turns.get_or_insert(0) += run.progress.turns;
    }

    /// Connects the agent's servers before its process has its first turn.
    pub(super) async fn tunnel(
        &mut self,
        shared: &Orchestrator,
        agent: &Arc<Agent>,
        leash: &Leash,
    ) -> Result<Option<Arc<Tunnel>>, Failure> {
        if agent.servers.is_empty() || self.tunnel.is_some() {
            return Ok(self.tunnel.clone());
        }
        self.board.doing("connecting its servers");
        let opening = Tunnel::open(&shared.gateway, agent, self.run);
        let opened = tokio::select! {
            opened = timeout_at(leash.deadline, opening) => opened,
            () = self.cancel.cancelled() => return Err(stopped(agent, &Stop::Cancelled)),
        };
        match opened {
            Ok(Ok((tunnel, notes))) => {
                self.facts.notes.extend(notes);
                self.tunnel = Some(Arc::new(tunnel));
                Ok(self.tunnel.clone())
            }
            Ok(Err(error)) => {
                let message = format!("`{}` cannot start: {error}", agent.name);
                let help = match &error {
                    GatewayError::SignInNeeded { command, .. } => {
                        format!("a person must run `{command}`")
                    }
                    _ => format!("look at `mcp_servers` and `tools` in {}", agent.file.display()),
                };
                Err(Failure::new(Code::ServerUnavailable, message, help))
            }
            Err(_) => Err(stopped(agent, &Stop::Deadline)),
        }
    }
}

fn no_folder(error: &std::io::Error) -> Failure {
    let message = format!("a private folder for the run cannot be made: {error}");
    Failure::new(Code::SpawnFailed, message, "look at the free space and the rights of `data/`")
}
