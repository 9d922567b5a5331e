//! One run, from request to report: the order of its steps, and nothing else.
//!
//! Each step is a function in a file of its own: it takes the value of the step before it, returns the next and calls
//! nothing back. Only the [`ReportDraft`] is filled on the way, because a run that fails has a report, too.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::admit::admit;
use super::approval::{ApprovalBroker, ApprovalPrompt};
use super::authorize::{Authorized, Refusal, audit, decide};
use super::budget::open_budget;
use super::deliver::{ReportDraft, deliver};
use super::judge::judge;
use super::launch::prepare;
use super::orchestrator::Orchestrator;
use super::register::{Registered, register};
use super::request::{RunRequest, validate};
use super::status::StatusSender;
use super::{in_session, one_shot};
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::outcome::{Answer, Failure, Outcome, Report};
use crate::util::RunId;

/// One delegation: what was asked and by whom. No step changes it.
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) started_at: Instant,
    pub(crate) request: RunRequest,
    pub(crate) caller: Caller,
    pub(crate) status: StatusSender,
    pub(crate) approvals: Arc<ApprovalBroker>,
    /// Cancelled by the caller, by a person, by shutdown, and at the end of the run.
    pub(crate) cancel: CancellationToken,
    /// Session id to use if a new session is created.
    pub(crate) new_session_id: Uuid,
}

impl Run {
    pub(crate) fn new(
        request: RunRequest,
        caller: Caller,
        status: StatusSender,
        cancel: CancellationToken,
        prompt: Arc<dyn ApprovalPrompt>,
        gateway: &Arc<Gateway>,
    ) -> Self {
        let id = RunId::new();
        Self {
            id,
            started_at: Instant::now(),
            request,
            approvals: ApprovalBroker::new(id, &caller, prompt, gateway),
            caller,
            status,
            cancel,
            new_session_id: Uuid::new_v4(),
        }
    }

    /// Takes all steps and returns the report; every call has one, also a refused call.
    pub(crate) async fn execute(self, services: &Orchestrator) -> Report {
        let _ended = self.cancel.clone().drop_guard();
        let authorized = match audit(&services.gateway, &self, self.check(services).await).await {
            Ok(authorized) => authorized,
            Err(failure) => return ReportDraft::default().report(self, Outcome::Failed(failure)),
        };
        let mut draft = ReportDraft::default();
        let registered = register(services, &self, authorized, &mut draft).await;
        let answer = self.run_agent(services, &registered, &mut draft).await;
        deliver(services, self, registered, draft, answer).await
    }

    /// Steps before the audit entry, which is written whatever they return.
    async fn check(&self, services: &Orchestrator) -> Result<Authorized, Refusal> {
        let validated = validate(&services.catalog, &self.request, &self.caller)?;
        let allowed = decide(validated, &self.caller)?;
        Ok(open_budget(&services.budgets, self, allowed).await?)
    }

    /// Steps between `RunQueued` and `RunEnded`.
    async fn run_agent(
        &self,
        services: &Orchestrator,
        registered: &Registered,
        draft: &mut ReportDraft,
    ) -> Result<Answer, Failure> {
        let admitted = admit(services, self, registered, draft).await?;
        let launch = prepare(services, self, registered, admitted, draft).await?;
        let turn = match registered.agent.session {
            true => in_session::run(services, self, &launch, draft).await?,
            false => one_shot::run(services, self, &launch, draft).await?,
        };
        judge(&launch, &turn, draft)
    }
}
