//! The steps of a call, in the order they happen: find, admit, plan, run, judge, record, answer.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::approvals::Approvals;
use super::asking::Asker;
use super::budget::Tab;
use super::converse::Leash;
use super::find::find;
use super::meter::Meter;
use super::on_disk::on_disk;
use super::orchestrator::Orchestrator;
use super::recorder::Recorder;
use super::request::Request;
use super::status::StatusBoard;
use super::timing::{Span, Timing};
use super::{audit, redact};
use crate::base::RunId;
use crate::catalog::{Agent, IdentityRule};
use crate::gateway::{Gateway, Tunnel};
use crate::identity::Caller;
use crate::outcome::{Answer, Code, Denial, Failure, Outcome, Report};
use crate::record::RunSubject;
use crate::worker::{Permit, Posting};

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
    pub(super) tunnel: Option<Arc<Tunnel>>,
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
        let judged = match self.wanted_agent(shared) {
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
        let answer = answer.map_err(|failure| redact::without_secrets(&agent, failure));
        match (answer, &self.posting) {
            (Err(failure), Some(posting)) if posting.stop_was_requested() => {
                Err(stopped_by_person(failure))
            }
            (answer, _) => answer,
        }
    }

    fn wanted_agent(&self, shared: &Orchestrator) -> Result<Arc<Agent>, Failure> {
        self.request.check()?;
        let name = &self.request.agent_name;
        find(&shared.catalog.current(name), name, &self.caller)
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

fn stopped_by_person(failure: Failure) -> Failure {
    let message = "the run was stopped by `adjutant runs stop`";
    let partial = failure.partial.unwrap_or_default();
    Failure::new(Code::Cancelled, message, "call it again if it is still wanted")
        .with_partial(partial)
}
