//! Registration of a run: in `data/runs/`, so that other processes can list and stop it, and in the event log.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::authorize::Authorized;
use super::budget::RunBudget;
use super::deliver::ReportDraft;
use super::in_session::{ExpectedSession, predict_session};
use super::orchestrator::Orchestrator;
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
    /// Entry in `data/runs/`, removed when dropped; `None` if it cannot be written.
    pub(crate) registration: Option<Arc<RunRegistration>>,
}

/// Records `RunQueued` and registers the run.
pub(crate) async fn register(
    services: &Orchestrator,
    run: &Run,
    authorized: Authorized,
    draft: &mut ReportDraft,
) -> Registered {
    let Authorized { agent, budget, .. } = authorized;
    let ExpectedSession { session_id, transcript } = predict_session(services, run, &agent).await;
    let mut subject = RunSubject::new(run.id, agent.name.as_str(), Some(run.caller.clone()));
    subject.session_id = Some(session_id.to_string());
    subject.transcript = Some(transcript.clone());
    let recorder = services.new_recorder(&agent, subject);
    let registration = add_entry(services, run, &agent, transcript, draft);
    Registered { agent, budget, recorder: Arc::new(recorder), registration }
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
    services: &Orchestrator,
    run: &Run,
    agent: &Agent,
    transcript: PathBuf,
    draft: &mut ReportDraft,
) -> Option<Arc<RunRegistration>> {
    let (agent, caller) = (agent.name.as_str(), &run.caller.name);
    let added = services.run_registry.register_with_transcript(run.id, agent, caller, transcript);
    let registration = match added {
        Ok(registration) => Arc::new(registration),
        Err(error) => {
            let note = format!("{error}; `adjutant runs` does not show this run.");
            tracing::warn!("{note}");
            draft.notes.push(note);
            return None;
        }
    };
    tokio::spawn(sync_registration(
        Arc::clone(&registration),
        run.status.subscribe(),
        run.cancel.clone(),
    ));
    Some(registration)
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
