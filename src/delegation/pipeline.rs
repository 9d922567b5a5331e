//! One run, from request to report: the order of its steps, and nothing else.
//!
//! Each step is a function in a file of its own: it takes the value of the step before it, returns the next and calls
//! nothing back. Only the [`ReportDraft`] is filled on the way, because a run that fails has a report, too.

use std::mem::take;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::admit::admit;
use super::approval::ApprovalPrompt;
use super::authorize::{Authorized, Refusal, audit, decide};
use super::budget::open_budget;
use super::deliver::{ReportDraft, deliver};
use super::judge::judge;
use super::launch::prepare;
use super::orchestrator::Orchestrator;
use super::phase_timings::RunPhase;
use super::register::{Registered, register};
use super::request::{RunRequest, validate};
use super::status::StatusSender;
use super::{in_session, one_shot};
use crate::identity::Caller;
use crate::outcome::{Answer, Failure, Outcome, Report};
use crate::util::{Mutex, RunId};

/// One delegation: what was asked and by whom. No step changes it but for the draft of its report.
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) started_at: Instant,
    pub(crate) request: RunRequest,
    pub(crate) caller: Caller,
    pub(crate) status: Arc<StatusSender>,
    /// Reaches the person behind the caller.
    pub(crate) prompt: Arc<dyn ApprovalPrompt>,
    /// Cancelled by the caller, by a person, by shutdown, and at the end of the run.
    pub(crate) cancel: CancellationToken,
    /// Session id to use if a new session is created.
    pub(crate) new_session_id: Uuid,
    pub(crate) draft: Mutex<ReportDraft>,
    pub(crate) services: Arc<Orchestrator>,
}

impl Run {
    /// Takes all steps and returns the report; every call has one, also a refused call.
    pub(crate) async fn execute(self) -> Report {
        let _ended = self.cancel.clone().drop_guard();
        let authorized = match audit(&self, self.check().await).await {
            Ok(authorized) => authorized,
            Err(failure) => return self.report(Outcome::Failed(failure)),
        };
        let registered = register(&self, authorized).await;
        let answer = self.run_agent(&registered).await;
        deliver(self, registered, answer).await
    }

    /// Steps before the audit entry, which is written whatever they return.
    async fn check(&self) -> Result<Authorized, Refusal> {
        let validated = validate(&self.services.catalog, &self.request, &self.caller)?;
        let allowed = decide(validated, &self.caller)?;
        Ok(open_budget(self, allowed).await?)
    }

    /// Steps between `RunQueued` and `RunEnded`.
    async fn run_agent(&self, registered: &Registered) -> Result<Answer, Failure> {
        let admitted = admit(self, registered).await?;
        let launch = prepare(self, registered, admitted).await?;
        let turn = match registered.agent.session {
            true => in_session::run(&launch).await?,
            false => one_shot::run(&launch).await?,
        };
        judge(&launch, &turn)
    }

    pub(crate) fn draft(&self) -> MutexGuard<'_, ReportDraft> {
        self.draft.lock()
    }

    /// Adds the time since `began` to a phase of the run.
    pub(crate) fn add_time(&self, phase: RunPhase, began: Instant) {
        self.draft().timing.add(phase, began.elapsed());
    }

    /// Returns the report with all that the draft has now.
    pub(crate) fn report(self, outcome: Outcome) -> Report {
        let draft = take(&mut *self.draft());
        draft.report(self.request.agent_name, self.id, self.started_at.elapsed(), outcome)
    }
}
