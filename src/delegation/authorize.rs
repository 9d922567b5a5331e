//! Authorization of a call: the verdict of the policy, and the audit entry of every call, allowed or refused.

use std::sync::Arc;

use super::budget::RunBudget;
use super::pipeline::Run;
use super::request::Validated;
use crate::audit::AuditEntry;
use crate::catalog::{Agent, AgentState, CatalogEntry, IdentityRule, Snapshot};
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::outcome::{Code, Failure};
use crate::policy::{Decision, DelegationRule, Verdict, evaluate_delegation};
use crate::util::{RunId, shorten};

/// An agent that the caller may run, with the verdict that says so.
pub(crate) struct Allowed {
    pub(crate) agent: Arc<Agent>,
    pub(crate) verdict: Arc<Verdict>,
    pub(crate) snapshot: Arc<Snapshot>,
}

/// Failure of a call before it becomes a run, with the verdict if a rule denied it.
pub(crate) struct Refusal {
    failure: Failure,
    verdict: Option<Arc<Verdict>>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, verdict: None }
    }
}

/// Decides if the caller may run the agent.
///
/// # Errors
///
/// `AGENT_INVALID` or `CALLER_NOT_ALLOWED`.
pub(crate) fn decide(validated: Validated, caller: &Caller) -> Result<Allowed, Refusal> {
    let Validated { entry, snapshot } = validated;
    let evaluated = evaluate_delegation(&entry, caller, snapshot.orchestration().identity);
    let verdict = evaluated.verdict;
    if let AgentState::Valid(agent) = &entry.state
        && verdict.is_allowed()
    {
        return Ok(Allowed { agent: Arc::clone(agent), verdict, snapshot });
    }
    let (code, help) = match evaluated.decided_by {
        DelegationRule::ValidFiles => (Code::AgentInvalid, INVALID_HELP.to_owned()),
        DelegationRule::AllowedCallers => {
            (Code::CallerNotAllowed, callers_help(&entry, caller, &snapshot))
        }
        DelegationRule::Identity => (Code::CallerNotAllowed, IDENTITY_HELP.to_owned()),
    };
    let failure = Failure::new(code, verdict.message(), help);
    Err(Refusal { failure, verdict: Some(verdict) })
}

/// Failure of a launch preview for an agent whose files have errors.
pub(crate) fn invalid_agent(entry: &CatalogEntry) -> Failure {
    let evaluated = evaluate_delegation(entry, &Caller::main(), IdentityRule::Optional);
    Failure::new(Code::AgentInvalid, evaluated.verdict.message(), INVALID_HELP)
}

const INVALID_HELP: &str = "run `adjutant check` to see everything that is wrong";
const IDENTITY_HELP: &str =
    "a person can run `adjutant init`, which installs the hooks that attest it";

fn callers_help(entry: &CatalogEntry, caller: &Caller, snapshot: &Snapshot) -> String {
    let file = entry.agent().map_or(&entry.file, |agent| &agent.file);
    let author =
        format!("its author can add the caller to `allowed_callers` in {}", file.display());
    let others: Vec<&str> =
        callable_agents(snapshot, caller).map(|agent| agent.name.as_str()).collect();
    match others.is_empty() {
        true => author,
        false => format!("you may call: {}; {author}", shorten(&others.join(", "), 400)),
    }
}

/// Returns the agents that `caller` may call, in order of name.
///
/// `identity: required` is left out: calls are attested one by one, and lists are not.
pub(crate) fn callable_agents<'a>(
    snapshot: &'a Snapshot,
    caller: &'a Caller,
) -> impl Iterator<Item = &'a Arc<Agent>> {
    let may_call = |entry: &&Arc<CatalogEntry>| {
        evaluate_delegation(entry, caller, IdentityRule::Optional).verdict.is_allowed()
    };
    snapshot.entries().iter().filter(may_call).filter_map(|entry| entry.agent())
}

/// A call that becomes a run once its audit entry is written.
pub(crate) struct Authorized {
    pub(crate) agent: Arc<Agent>,
    pub(crate) budget: Arc<RunBudget>,
    pub(crate) verdict: Arc<Verdict>,
}

/// Writes the audit entry of a call before it becomes a run, and returns the call if it was not refused.
///
/// # Errors
///
/// The refusal, or `AUDIT_UNAVAILABLE` if the entry cannot be written; the run must not start then.
pub(crate) async fn audit(
    run: &Run,
    checked: Result<Authorized, Refusal>,
) -> Result<Authorized, Failure> {
    let entry = new_entry(&run.caller, &run.request.agent_name, run.id);
    let entry = match &checked {
        Ok(authorized) => entry.with_verdict(Arc::clone(&authorized.verdict)),
        Err(Refusal { failure, verdict }) => {
            AuditEntry { verdict: verdict.clone(), ..with_failure(entry, failure) }
        }
    };
    write(&run.services.gateway, entry).await?;
    checked.map_err(|refusal| refusal.failure)
}

/// Writes the audit entry of a call that was refused before its agent was looked up.
pub(crate) async fn audit_rejection(
    gateway: &Gateway,
    caller: &Caller,
    agent: &str,
    run: RunId,
    failure: &Failure,
) -> Result<(), Failure> {
    let mut entry = with_failure(new_entry(caller, agent, run), failure);
    if failure.code == Code::IdentityMismatch {
        entry.decision = Some(Decision::Deny);
    }
    write(gateway, entry).await
}

fn new_entry(caller: &Caller, agent: &str, run: RunId) -> AuditEntry {
    let mut entry = AuditEntry::new("run_subagent").with_caller(caller);
    entry.tool = Some(agent.to_owned());
    entry.run_id = Some(run);
    entry.call_id.clone_from(&caller.tool_use_id);
    entry
}

fn with_failure(mut entry: AuditEntry, failure: &Failure) -> AuditEntry {
    entry.code = Some(failure.code.as_str().to_owned());
    entry.reason = Some(failure.message.clone());
    entry
}

async fn write(gateway: &Gateway, entry: AuditEntry) -> Result<(), Failure> {
    gateway.write_audit_entry(entry).await.map_err(|error| {
        let help = "a person must make the file writable, or set `audit: best_effort` in agents/defaults.yaml";
        Failure::new(Code::AuditUnavailable, error.to_string(), help)
    })
}
