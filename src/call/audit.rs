//! Every delegation leaves a line in the audit log, whoever asked for it and whatever was said to that.

use super::orchestrator::Orchestrator;
use super::steps::Call;
use crate::base::{RunId, shortened};
use crate::gateway::{Delegation, Gateway};
use crate::identity::Caller;
use crate::outcome::{Code, Failure, Outcome, Report};

const MAX_NAME_CHARACTERS: usize = 256;

/// Writes down whether a call may go on. It may not if that cannot be written.
pub(super) fn verdict(
    shared: &Orchestrator,
    call: &Call,
    refused: Option<&Failure>,
) -> Result<(), Failure> {
    write(&shared.gateway, &call.caller, &call.request.agent_name, call.run, refused)
}

/// Writes down a call that was refused before it became one.
pub(super) fn refused(gateway: &Gateway, caller: &Caller, report: &Report) -> Result<(), Failure> {
    let failure = match &report.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Answered(_) => None,
    };
    write(gateway, caller, &report.agent, report.run_id, failure)
}

fn write(
    gateway: &Gateway,
    caller: &Caller,
    agent: &str,
    run: RunId,
    refused: Option<&Failure>,
) -> Result<(), Failure> {
    // A text that is too long to be a name is refused for that, and is not to fill the log.
    let agent = &shortened(agent, MAX_NAME_CHARACTERS);
    let written = match refused {
        None => gateway.record_delegation(caller, agent, run, Delegation::Allowed),
        Some(failure) => {
            let (code, reason) = (failure.code.as_str(), failure.message.as_str());
            let denied = matches!(failure.code, Code::CallerNotAllowed | Code::IdentityMismatch);
            let what = match denied {
                true => Delegation::Denied { code, reason },
                false => Delegation::Failed { code, reason },
            };
            gateway.record_delegation(caller, agent, run, what)
        }
    };
    written.map_err(|error| {
        let help = "a person must make the file writable, or set `audit: best_effort` in agents/defaults.yaml";
        Failure::new(Code::SpawnFailed, error.to_string(), help)
    })
}
