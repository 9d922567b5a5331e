//! Evaluation of a delegation: may this caller run this agent?
//!
//! Precedence: errors in the agent's files, its `allowed_callers`, `identity: required`. The first that denies decides.

use std::path::Path;
use std::sync::Arc;

use super::verdict::{Decision, Rule, Verdict};
use crate::catalog::{Agent, AgentState, AllowedCallers, CatalogEntry, IdentityRule};
use crate::identity::Caller;

/// Kind of rule that decides a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelegationRule {
    /// The agent's files must have no errors.
    ValidFiles,
    AllowedCallers,
    /// `identity: required` in `agents/defaults.yaml`.
    Identity,
}

/// Verdict on a delegation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DelegationVerdict {
    pub(crate) decided_by: DelegationRule,
    pub(crate) verdict: Arc<Verdict>,
}

/// Evaluates the call of an agent by `caller`.
pub(crate) fn evaluate_delegation(
    entry: &CatalogEntry,
    caller: &Caller,
    identity: IdentityRule,
) -> DelegationVerdict {
    let (decided_by, verdict) = match &entry.state {
        AgentState::Invalid => (DelegationRule::ValidFiles, invalid_files(entry)),
        AgentState::Valid(agent) => {
            let by_list = evaluate_allowed_callers(agent, caller);
            match identity_denial(caller, identity).filter(|_| by_list.is_allowed()) {
                Some(denial) => (DelegationRule::Identity, denial),
                None => (DelegationRule::AllowedCallers, by_list),
            }
        }
    };
    DelegationVerdict { decided_by, verdict: Arc::new(verdict) }
}

/// Denies an agent whose files have errors: what they permit cannot be determined.
fn invalid_files(entry: &CatalogEntry) -> Verdict {
    let (rule, what) = match entry.errors().next() {
        Some(error) => {
            let line = u32::try_from(error.line).ok();
            let what = format!("{} ({}:{})", error.message, error.file.display(), error.line);
            (Rule { line, ..Rule::new(Some(&error.file), error.code) }, what)
        }
        None => (Rule::new(Some(&entry.file), "agent"), "its files are wrong".to_owned()),
    };
    let reason = format!("the agent `{}` cannot be run: {what}", entry.name);
    Verdict { decision: Decision::Deny, rule, reason }
}

fn evaluate_allowed_callers(agent: &Agent, caller: &Caller) -> Verdict {
    let (who, name) = (caller.describe(), &agent.name);
    let (decision, path, reason) = match &agent.allowed_callers {
        AllowedCallers::Anyone => (
            Decision::Allow,
            "allowed_callers".to_owned(),
            format!("{who} may call `{name}`; its allowed_callers are: anyone"),
        ),
        AllowedCallers::Named(names) => match names.iter().position(|name| *name == caller.name) {
            Some(index) => (
                Decision::Allow,
                format!("allowed_callers[{index}]"),
                format!("{who} may call `{name}`; its allowed_callers name it"),
            ),
            None => (
                Decision::Deny,
                "allowed_callers".to_owned(),
                format!(
                    "{who} may not call `{name}`; its allowed_callers are: {}",
                    names.join(", ")
                ),
            ),
        },
    };
    Verdict { decision, rule: Rule::new(Some(&agent.file), path), reason }
}

/// Denies a caller that nothing identifies, if the project requires an identity.
fn identity_denial(caller: &Caller, identity: IdentityRule) -> Option<Verdict> {
    match identity {
        IdentityRule::Required if !caller.is_verified() => Some(Verdict {
            decision: Decision::Deny,
            rule: Rule::new(Some(Path::new("agents/defaults.yaml")), "identity"),
            reason: "nothing attests who is calling, and `identity: required` in agents/defaults.yaml refuses that"
                .to_owned(),
        }),
        IdentityRule::Required | IdentityRule::Optional => None,
    }
}

#[cfg(test)]
#[path = "delegation_decision_tests.rs"]
mod tests;
