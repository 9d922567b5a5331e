//! Before a run starts: a place at the door.

use tokio::time::timeout_at;

use super::converse::{Leash, Stop};
use super::judge::stopped;
use super::orchestrator::Orchestrator;
use super::steps::Call;
use crate::catalog::Agent;
use crate::outcome::{Code, Failure};
use crate::worker::Permit;

impl Call {
    /// Waits for a free place.
    pub(super) async fn admit(
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
}

/// The worker's refusals say what and, after a colon, what to do.
fn split_advice(text: &str) -> (String, String) {
    match text.split_once(": ") {
        Some((what, help)) => (what.to_owned(), help.to_owned()),
        None => (text.to_owned(), "try again later".to_owned()),
    }
}
