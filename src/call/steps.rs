//! The steps of a call, in the order they happen: find, admit, plan, run, judge, record, answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::approvals::Approvals;
use super::asking::Asker;
use super::bridge::{Bridge, Errand};
use super::budget::Tab;
use super::contract::contract;
use super::converse::{Leash, Run, converse};
use super::find::find;
use super::go_on::Foreseen;
use super::judge::{judge, stopped};
use super::meter::Meter;
use super::on_disk::on_disk;
use super::open::Open;
use super::orchestrator::Orchestrator;
use super::program::Program;
use super::recorder::Recorder;
use super::replies::Replies;
use super::request::Request;
use super::status::{Status, StatusBoard};
use super::timing::{Span, Timing};
use super::wanted::Wanted;
use super::{audit, converse::Stop, cut, prepare, redact};
use crate::base::{RunId, create_private_dir, one_line, shorten, write_atomic};
use crate::catalog::{Agent, IdentityRule};
use crate::claude::{HookEvent, Options};
use crate::config::env_vars;
use crate::gateway::{Gateway, GatewayError, Tunnel};
use crate::identity::Caller;
use crate::outcome::{Answer, Code, Denial, Failure, Outcome, Report};
use crate::plan::{ConversationStart, LaunchPlan, PlanRequest, plan};
use crate::record::RunSubject;
use crate::worker::{Permit, Posting, Process};

/// One call on its way through the steps.
pub(super) struct Call {
    pub(super) run: RunId,
    pub(super) started: Instant,
    pub(super) request: Request,
    pub(super) caller: Caller,
    pub(super) board: StatusBoard,
    pub(super) approvals: Arc<Approvals>,
    pub(super) cancel: CancellationToken,
    /// What is written down of it, from the moment it is more than a refused request.
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) posting: Option<Arc<Posting>>,
    /// Where its money is written down.
    pub(super) tab: Option<Arc<Tab>>,
    /// Its place at the door, given back when the last process of the call is gone.
    pub(super) permit: Option<Arc<Permit>>,
    /// Its servers, connected once for all processes of the call.
    tunnel: Option<Arc<Tunnel>>,
    /// Whether it took a warm process, so that another one is wanted.
    pub(super) used_warm: bool,
    /// Where its time goes.
    pub(super) timing: Timing,
    /// The id of a conversation that begins with it.
    pub(super) new_session: Uuid,
    pub(super) facts: Facts,
}

/// What becomes known on the way and belongs into the report, however the call ends.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) session_id: Option<String>,
    pub(super) cost_usd: Option<f64>,
    pub(super) turns: Option<u64>,
    pub(super) denials: Vec<Denial>,
    pub(super) notes: Vec<String>,
}

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
    fn plan(&self, conversation: &ConversationStart) -> LaunchPlan {
        planned(&self.agent, &self.program, self.memory.as_deref(), conversation)
    }
}

impl Call {
    pub(super) fn new(
        request: Request,
        caller: Caller,
        board: StatusBoard,
        cancel: CancellationToken,
        asker: Arc<dyn Asker>,
        gateway: &Arc<Gateway>,
    ) -> Self {
        let facts = Facts::default();
        let run = RunId::new();
        Self {
            approvals: Approvals::new(run, &caller, asker, gateway),
            run,
            started: Instant::now(),
            request,
            caller,
            board,
            cancel,
            recorder: None,
            posting: None,
            tab: None,
            permit: None,
            tunnel: None,
            used_warm: false,
            timing: Timing::default(),
            new_session: Uuid::new_v4(),
            facts,
        }
    }

    pub(super) async fn run(mut self, shared: &Orchestrator) -> Report {
        let outcome = match self.answer(shared).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(failure) => Outcome::Failed(failure),
        };
        self.cancel.cancel();
        if self.used_warm {
            shared.warmth.used.notify_one();
        }
        let recorder = self.recorder.take();
        let settling = std::time::Instant::now();
        self.settle().await;
        self.timing.since(Span::Record, settling);
        let timing = self.timing.milliseconds();
        let report = self.report(outcome);
        if let Some(recorder) = recorder {
            recorder.ended(&report, &timing);
        }
        report
    }

    async fn answer(&mut self, shared: &Orchestrator) -> Result<Answer, Failure> {
        self.request.check()?;
        let found = find(
            &shared.catalog.current(&self.request.agent_name),
            &self.request.agent_name,
            &self.caller,
        );
        let judged = match found {
            Ok(agent) => self.may_it(shared, &agent).await.map(|()| agent),
            Err(failure) => Err(failure),
        };
        audit::verdict(shared, self, judged.as_ref().err())?;
        let agent = judged?;
        let foreseen = self.foresee(shared, &agent).await;
        let mut subject = RunSubject::new(self.run, agent.name.as_str(), Some(self.caller.clone()));
        subject.session_id = Some(foreseen.session_id.to_string());
        subject.transcript = Some(foreseen.transcript.clone());
        let recorder = shared.history.queued(subject, shared.outlets(&agent));
        self.recorder = Some(Arc::new(recorder));
        self.posting = self.post(shared, agent.name.as_str(), foreseen.transcript);
        let answer = self.answer_of(shared, Arc::clone(&agent)).await;
        let answer = answer.map_err(|failure| without_secrets(&agent, failure));
        match (answer, &self.posting) {
            (Err(failure), Some(posting)) if posting.stop_was_requested() => {
                Err(stopped_by_person(failure))
            }
            (answer, _) => answer,
        }
    }

    /// What the run has cost is safe on the disk before anybody is told about it.
    pub(super) async fn settle(&self) {
        let (Some(tab), Some(cost_usd)) = (self.tab.clone(), self.facts.cost_usd) else { return };
        on_disk(move || tab.close(cost_usd)).await;
    }

    /// The rules of the house: who is known well enough, and whose money is not spent.
    async fn may_it(&mut self, shared: &Orchestrator, agent: &Agent) -> Result<(), Failure> {
        let snapshot = shared.catalog.snapshot();
        let limits = snapshot.orchestration();
        if limits.identity == IdentityRule::Required && !self.caller.is_sure() {
            let message = "nothing attests who is calling, and `identity: required` in agents/defaults.yaml refuses that";
            return Err(Failure::new(
                Code::CallerNotAllowed,
                message,
                "a person can run `adjutant init`, which installs the hooks that attest it",
            ));
        }
        let session = self.caller.session_id.as_deref();
        let tab = shared.purse.open_tab(self.run, agent.name.as_str(), session, limits);
        self.tab = Some(Arc::clone(&tab));
        on_disk(move || tab.check()).await.unwrap_or(Ok(()))
    }

    async fn answer_of(
        &mut self,
        shared: &Orchestrator,
        agent: Arc<Agent>,
    ) -> Result<Answer, Failure> {
        let leash = self.leash(&agent);
        let queued = std::time::Instant::now();
        self.permit = Some(Arc::new(self.admit(shared, &agent, &leash).await?));
        self.timing.since(Span::Queue, queued);
        let planning = std::time::Instant::now();
        let ground = self.ground(shared, agent, leash).await?;
        self.timing.since(Span::Plan, planning);
        let mut answer = match ground.agent.session {
            true => self.go_on(shared, &ground).await?,
            false => self.pass_by(shared, &ground).await?,
        };
        // As the CLI has it: an answer that cost more than it may is not one, but it is not thrown away.
        if let Some(failure) = ground.leash.meter.as_ref().and_then(|meter| meter.over()) {
            return Err(failure.with_partial(answer.text));
        }
        self.keep_secrets(&ground.agent, &mut answer);
        answer.text = self.cut(shared, &ground.agent, answer.text);
        Ok(answer)
    }

    fn leash(&self, agent: &Arc<Agent>) -> Leash {
        let deadline = self.started + agent.limits.timeout;
        let meter = Some(Meter::start(Arc::clone(agent), self.tab.clone()));
        Leash { deadline, idle: agent.limits.idle_timeout, cancel: self.cancel.clone(), meter }
    }

    /// Puts the run on the board, where other terminals see it and can stop it.
    fn post(
        &self,
        shared: &Orchestrator,
        agent: &str,
        transcript: PathBuf,
    ) -> Option<Arc<Posting>> {
        let caller = &self.caller.name;
        let posted = shared.runs.post_with_transcript(self.run, agent, caller, transcript);
        let posting = match posted {
            Ok(posting) => Arc::new(posting),
            Err(error) => {
                tracing::warn!(%error, "the run cannot be shown in `adjutant runs list`");
                return None;
            }
        };
        tokio::spawn(keep_posted(
            Arc::clone(&posting),
            self.board.subscribe(),
            self.cancel.clone(),
        ));
        Some(posting)
    }

    /// Waits for a free place.
    async fn admit(
        &self,
        shared: &Orchestrator,
        agent: &Agent,
        leash: &Leash,
    ) -> Result<Permit, Failure> {
        self.board.doing("waiting for a free place");
        let admitted = shared.admission.admit(&agent.name, agent.limits.max_concurrent);
        let admitted = tokio::select! {
            admitted = timeout_at(leash.deadline, admitted) => admitted,
            () = self.cancel.cancelled() => return Err(stopped(agent, &Stop::Cancelled)),
        };
        match admitted {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(refused)) => {
                let (what, help) = split_advice(&refused.to_string());
                Err(Failure::new(Code::TooManyRuns, what, help))
            }
            Err(_) => Err(stopped(agent, &Stop::Deadline)),
        }
    }

    async fn ground(
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

    /// Connects the agent's servers before its process has its first turn.
    async fn tunnel(
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

    /// `session: false`: a fresh process that leaves no transcript.
    async fn pass_by(&mut self, shared: &Orchestrator, ground: &Ground) -> Result<Answer, Failure> {
        let warm = match self.warm_one(shared, ground) {
            Some(kept) => {
                let session = kept.session_id.unwrap_or(self.new_session);
                self.belongs_to(session, &ground.folder);
                self.reuse(ground, kept.open, "startup").await
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
        let errand = self.errand(ground);
        let bridge = Bridge::new(Arc::clone(agent), tunnel);
        bridge.attend(self.run, &errand);
        if let Ok(session) = session_of(start).parse() {
            self.belongs_to(session, folder);
        }
        let options = Options { session_cost_usd: spent_before, ..options(shared, start) };
        let started = |process: &Process| self.has_started(process, source_of(start));
        let opened = Open::start(launch, files, options, bridge, &ground.leash, started).await;
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

    /// What an agent's servers know stays with them, whatever the agent answers.
    fn keep_secrets(&mut self, agent: &Agent, answer: &mut Answer) {
        let secrets = prepare::secrets(agent);
        let in_text = redact::redact(&mut answer.text, &secrets);
        let output = answer.output.as_mut();
        if output.is_some_and(|output| redact::redact_value(output, &secrets)) | in_text {
            self.facts.notes.push(
                "The answer held a secret of the agent's servers; its name stands in its place."
                    .to_owned(),
            );
        }
    }

    /// An answer over the limit goes to a file; the caller gets its beginning and the file's name.
    fn cut(&mut self, shared: &Orchestrator, agent: &Agent, text: String) -> String {
        let Some(beginning) = cut::beginning(&text, agent.limits.max_output_chars) else {
            return text;
        };
        let all = text.chars().count();
        let shown = beginning.chars().count();
        let folder = shared.settings.data_dir().join("results");
        let file = folder.join(format!("{}.txt", self.run));
        let kept = create_private_dir(&folder).and_then(|()| write_atomic(&file, text.as_bytes()));
        let note = match kept {
            Ok(()) => format!(
                "The answer has {all} characters; these are the first {shown}. All of it is in `{}`.",
                file.display()
            ),
            Err(error) => format!(
                "The answer has {all} characters; these are the first {shown}. The rest could not be kept: {error}."
            ),
        };
        let text = format!("{beginning}\n\n[cut by Adjutant: {note}]");
        self.facts.notes.push(note);
        text
    }

    fn report(self, outcome: Outcome) -> Report {
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let Facts { session_id, cost_usd, turns, denials, notes } = self.facts;
        let agent = self.request.agent_name;
        Report {
            agent,
            run_id: self.run,
            duration_ms,
            outcome,
            session_id,
            cost_usd,
            turns,
            denials,
            notes,
        }
    }
}

/// Carries the status to the board, and a stop from there to the run, until the run is over.
async fn keep_posted(
    posting: Arc<Posting>,
    mut status: watch::Receiver<Status>,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = posting.stop_requested() => return cancel.cancel(),
            changed = status.changed() => if changed.is_err() { return },
        }
        let now = status.borrow_and_update().clone();
        posting.update(|progress| {
            progress.doing = now.doing;
            progress.turns = u32::try_from(now.turns).unwrap_or(u32::MAX);
            progress.cost_usd = now.cost_usd;
        });
    }
}

/// A failure quotes what the agent had written, and servers that do not start.
fn without_secrets(agent: &Agent, mut failure: Failure) -> Failure {
    let secrets = prepare::secrets(agent);
    redact::redact(&mut failure.message, &secrets);
    if let Some(partial) = &mut failure.partial {
        redact::redact(partial, &secrets);
    }
    failure
}

fn stopped_by_person(failure: Failure) -> Failure {
    let message = "the run was stopped by `adjutant runs stop`";
    let partial = failure.partial.unwrap_or_default();
    Failure::new(Code::Cancelled, message, "call it again if it is still wanted")
        .with_partial(partial)
}

/// The worker's refusals say what and, after a colon, what to do.
fn split_advice(text: &str) -> (String, String) {
    match text.split_once(": ") {
        Some((what, help)) => (what.to_owned(), help.to_owned()),
        None => (text.to_owned(), "try again later".to_owned()),
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

pub(super) fn options(shared: &Orchestrator, start: &ConversationStart) -> Options {
    let most = shared.catalog.snapshot().orchestration().max_line_mb << 20;
    let max_line_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    Options {
        session_id: expected_session(start),
        max_line_bytes,
        hooks: HookEvent::ALL.to_vec(),
        ..Options::default()
    }
}

/// Claude Code's word for how a conversation begins.
pub(super) fn source_of(start: &ConversationStart) -> &'static str {
    match start {
        ConversationStart::Passing(_) | ConversationStart::Create(_) => "startup",
        ConversationStart::Resume(_) => "resume",
    }
}

fn session_of(start: &ConversationStart) -> &str {
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

fn no_folder(error: &std::io::Error) -> Failure {
    let message = format!("a private folder for the run cannot be made: {error}");
    Failure::new(Code::SpawnFailed, message, "look at the free space and the rights of `data/`")
}
