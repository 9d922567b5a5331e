//! Authorization: a caller and a policy to a verdict, and the cache of verdicts.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::audit_trail::AuditDraft;
use super::error::GatewayError;
use super::gateway::Gateway;
use crate::gateway::config::{ActiveConfig, NoRules};
use crate::gateway::downstream::DownstreamServer;
use crate::identity::Caller;
use crate::policy::{GatewayRules, Verdict, evaluate};
use crate::util::Mutex;

/// Callers choose names, so the size is limited: at 1,024 entries the cache is cleared.
const MAX_ENTRIES: usize = 1_024;

/// The rules that apply to a caller, and the servers that a name can mean.
///
/// One implementation per rules file ([`GatewayPolicy`]), one per agent file (`AgentPolicy` in `sdk_servers`).
pub(crate) trait CallPolicy: Send + Sync {
    /// Evaluates the use of a server, or of a tool of it.
    fn evaluate(&self, server: &str, tool: Option<&str>) -> Arc<Verdict>;

    /// Returns true if there is a server of this name; a denied caller can have invented it.
    fn has_server(&self, name: &str) -> bool;

    /// Returns the reason why no rules are in force.
    fn no_rules(&self) -> Option<&NoRules> {
        None
    }

    /// Returns true for a client, which may receive log messages of the servers that it calls.
    fn is_client(&self) -> bool;

    /// Returns the names of all servers, allowed or not.
    fn server_names(&self) -> Vec<&str>;

    /// Returns the server `name` in the scope of the caller, who must be authorized already.
    fn server(&self, gateway: &Gateway, name: &str) -> Result<Arc<DownstreamServer>, GatewayError>;
}

/// Authorizes the use of `server`, or of `tool` of it, and stores the verdict in the draft of the audit entry.
pub(crate) fn authorize(
    policy: &impl CallPolicy,
    draft: &mut AuditDraft,
    server: &str,
    tool: Option<&str>,
) -> Result<(), GatewayError> {
    let verdict = draft.verdict.insert(policy.evaluate(server, tool));
    if verdict.is_allowed() {
        return Ok(());
    }
    draft.server_exists = policy.has_server(server);
    let sentence = match policy.no_rules() {
        None => verdict.message().to_owned(),
        Some(gap) => format!("{}; {gap}", verdict.message()),
    };
    Err(GatewayError::DeniedByPolicy { sentence })
}

/// The gateway rules, for one caller.
pub(crate) struct GatewayPolicy {
    pub(crate) in_force: Arc<ActiveConfig>,
    pub(crate) caller: Caller,
}

impl CallPolicy for GatewayPolicy {
    fn evaluate(&self, server: &str, tool: Option<&str>) -> Arc<Verdict> {
        let Self { in_force, caller } = self;
        in_force.verdict_cache.get_or_evaluate(&in_force.rules, &caller.name, server, tool)
    }

    fn has_server(&self, name: &str) -> bool {
        self.in_force.servers.get(name).is_some()
    }

    fn no_rules(&self) -> Option<&NoRules> {
        self.in_force.no_rules.as_ref()
    }

    fn is_client(&self) -> bool {
        true
    }

    fn server_names(&self) -> Vec<&str> {
        self.in_force.servers.names().collect()
    }

    fn server(&self, gateway: &Gateway, name: &str) -> Result<Arc<DownstreamServer>, GatewayError> {
        gateway.downstream_for(&self.in_force, &self.caller, name)
    }
}

/// Verdicts of one version of the rules.
#[derive(Default)]
pub(crate) struct VerdictCache {
    hasher: RandomState,
    entries: Mutex<HashMap<u64, CachedVerdict>>,
}

struct CachedVerdict {
    agent: String,
    server: String,
    tool: Option<String>,
    verdict: Arc<Verdict>,
}

impl VerdictCache {
    /// Returns the result of [`evaluate`]; all calls must pass the same `rules`.
    pub(crate) fn get_or_evaluate(
        &self,
        rules: &GatewayRules,
        agent: &str,
        server: &str,
        tool: Option<&str>,
    ) -> Arc<Verdict> {
        let key = self.hasher.hash_one((agent, server, tool));
        let mut known = self.entries.lock();
        if let Some(verdict) = known.get(&key)
            && verdict.matches(agent, server, tool)
        {
            return Arc::clone(&verdict.verdict);
        }
        let evaluation = Arc::new(evaluate(rules, agent, server, tool));
        if known.len() >= MAX_ENTRIES {
            known.clear();
        }
        let (agent, server) = (agent.to_owned(), server.to_owned());
        let tool = tool.map(str::to_owned);
        let verdict = CachedVerdict { agent, server, tool, verdict: Arc::clone(&evaluation) };
        known.insert(key, verdict);
        evaluation
    }
}

impl CachedVerdict {
    fn matches(&self, agent: &str, server: &str, tool: Option<&str>) -> bool {
        self.agent == agent && self.server == server && self.tool.as_deref() == tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn verdicts_are_cached_and_their_number_is_limited() {
        let rules = GatewayRules::deny_all(Path::new("rules.json"));
        let verdicts = VerdictCache::default();
        for number in 0..2 * MAX_ENTRIES {
            let agent = format!("agent-{number}");
            let asked = |tool| verdicts.get_or_evaluate(&rules, &agent, "s", tool);
            assert_eq!(*asked(Some("t")), evaluate(&rules, &agent, "s", Some("t")));
            assert!(Arc::ptr_eq(&asked(Some("t")), &asked(Some("t"))));
            assert_eq!(*asked(None), evaluate(&rules, &agent, "s", None));
        }
        assert!(verdicts.entries.lock().len() <= MAX_ENTRIES);
    }
}
