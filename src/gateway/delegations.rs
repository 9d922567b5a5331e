//! Delegations in the audit log: who wanted which agent, and what was said to that.

use super::error::GatewayError;
use super::gateway::Gateway;
use crate::base::RunId;
use crate::identity::Caller;
use crate::policy::Decision;
use crate::record::AuditLine;

/// What became of the wish to run an agent.
#[derive(Clone, Copy, Debug)]
pub enum Delegation<'a> {
    /// It may be run.
    Allowed,
    /// The caller may not, or is not who it says it is.
    Denied {
        /// The code.
        code: &'a str,
        /// The sentence that the caller was told.
        reason: &'a str,
    },
    /// It could not be judged, or something other than a right stood in the way.
    Failed {
        /// The code.
        code: &'a str,
        /// The sentence that the caller was told.
        reason: &'a str,
    },
}

impl Gateway {
    /// Writes the line. What cannot be recorded is not done, unless the log may be missing.
    pub fn record_delegation(
        &self,
        caller: &Caller,
        agent: &str,
        run: RunId,
        what: Delegation<'_>,
    ) -> Result<(), GatewayError> {
        let mut line = AuditLine::new("run_subagent").by(caller);
        line.tool = Some(agent.to_owned());
        line.run_id = Some(run);
        line.call_id.clone_from(&caller.tool_use_id);
        let (decision, failed) = match what {
            Delegation::Allowed => (Some(Decision::Allow), None),
            Delegation::Denied { code, reason } => (Some(Decision::Deny), Some((code, reason))),
            Delegation::Failed { code, reason } => (None, Some((code, reason))),
        };
        line.decision = decision;
        if let Some((code, reason)) = failed {
            line.error = Some(code.to_owned());
            line.reason = Some(reason.to_owned());
        }
        self.ledger.write(&line)
    }
}
