//! Registration of a run: in `data/runs/`, so that other processes can list and stop it, and in the event log.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::approval::ApprovalBroker;
use super::authorize::Authorized;
use super::budget::RunBudget;
use super::in_session::{ExpectedSession, predict_session};
use super::pipeline::Run;
use super::recorder::RunRecorder;
use super::status::RunStatus;
use crate::catalog::Agent;
use crate::events::RunSubject;
use crate::process::ProcessHandle;
use crate::runs::RunRegistration;

/// A run that other processes see.
pub(crate) struct Registered {
    pub(crate) agent: Arc<Agent>,
    pub(crate) budget: Arc<RunBudget>,
    pub(crate) recorder: Arc<RunRecorder>,
    pub(crate) approvals: Arc<ApprovalBroker>,
    /// Entry in `data/runs/`, removed when dropped; `None` if it cannot be written.
    pub(crate) registration: Option<Arc<RunRegistration>>,
}

/// Records `RunQueued` and registers the run.
pub(crate) async fn register(run: &Run, authorized: Authorized) -> Registered {
    let Authorized { agent, budget, .. } = authorized;
    let ExpectedSession { session_id, transcript, .. } = predict_session(run, &agent).await;
    let mut subject = RunSubject::new(run.id, agent.name.as_str(), Some(run.caller.clone()));
    subject.session_id = Some(session_id.to_string());
    let transcript = agent.session.then_some(transcript);
    subject.keeps_transcript = agent.session;
    subject.transcript.clone_from(&transcript);
    let recorder = Arc::new(run.services.new_recorder(&agent, subject));
    let registration = add_entry(run, &agent, transcript);
    let approvals = ApprovalBroker::new(run, &agent);
    Registered { agent, budget, recorder, approvals, registration }
}

impl Registered {
    /// Registers and records a process of the run. `source` is `startup` or `resume`.
    pub(crate) fn process_started(&self, process: &ProcessHandle, source: &'static str) {
        if let Some(registration) = &self.registration {
            registration.set_process(process);
        }
        self.recorder.process_started(process.pid(), source);
    }
}

/// Adds the entry of the run. After a write error the run continues without, with a note in its report.
fn add_entry(
    run: &Run,
    agent: &Agent,
    transcript: Option<PathBuf>,
) -> Option<Arc<RunRegistration>> {
    let (registry, agent) = (&run.services.run_registry, agent.name.as_str());
    match registry.register_with_transcript(run.id, agent, &run.caller, transcript) {
        Ok(registration) => {
            let registration = Arc::new(registration);
            let (status, cancel) = (run.status.subscribe(), run.cancel.clone());
            tokio::spawn(sync_registration(Arc::clone(&registration), status, cancel));
            Some(registration)
        }
        Err(error) => {
            let note = format!("{error}; `adjutant runs` does not show this run.");
            tracing::warn!("{note}");
            run.draft().notes.push(note);
            None
        }
    }
}

/// Copies the status to the registry entry, and forwards a stop request to the run, until the run ends.
async fn sync_registration(
    registration: Arc<RunRegistration>,
    mut status: watch::Receiver<RunStatus>,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = registration.wait_for_stop() => return cancel.cancel(),
            changed = status.changed() => if changed.is_err() { return },
        }
        let now = status.borrow_and_update().clone();
        registration.update(|progress| {
            progress.doing = now.doing;
            progress.turns = u32::try_from(now.turns).unwrap_or(u32::MAX);
            progress.cost_usd = now.cost_usd;
        });
    }
}
