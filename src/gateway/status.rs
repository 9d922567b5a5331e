//! What the gateway is doing, for people who look into it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::error::GatewayError;
use super::gateway::{Gateway, Who};
use super::ledger::Draft;
use crate::policy::evaluate;
use crate::record::{CallCount, MetricsReport};

impl Gateway {
    /// What `get_gateway_status` shows to an agent that may see anything at all.
    pub fn status(&self, who: &Who) -> Result<Value, GatewayError> {
        let mut draft = Draft::new("get_gateway_status", who);
        let in_force = self.in_force();
        let result = match self.resolve(&in_force, who) {
            Ok(caller) => {
                draft.caller = Some(caller.clone());
                // An agent learns of the servers that it may use, and of no others.
                let rules = &in_force.rules;
                Ok(self
                    .overview(&|server| evaluate(rules, &caller.name, server, None).is_allowed()))
            }
            // Nobody can be somebody then, and a person must be able to learn why.
            Err(GatewayError::NoRules(_)) => Ok(self.outline()),
            Err(error) => Err(error),
        };
        self.ledger.record(draft, result, |value| value.to_string().len())
    }

    /// Everything, for a person at the machine.
    pub fn overview(&self, sees: &dyn Fn(&str) -> bool) -> Value {
        let in_force = self.in_force();
        let agents: Vec<&str> = in_force.rules.agents().collect();
        let servers: Vec<&str> = in_force.servers.names().filter(|name| sees(name)).collect();
        json!({
            "reload_status": in_force.report,
            "policy_state": {
                "total_agents": agents.len(),
                "agent_ids": agents,
                "defaults": { "deny_on_missing_agent": in_force.rules.deny_on_missing_agent },
            },
            "available_servers": servers,
            "config_paths": {
                "mcp_config": in_force.files.mcp_config.path,
                "gateway_rules": in_force.files.rules.path,
            },
            "message": self.message(&in_force, sees),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "servers": self.server_states(sees),
            "changed_tools": self.changed_tools(sees),
            "metrics": self.seen_metrics(sees),
            "audit": { "path": in_force.files.audit_log, "problem": self.ledger.problem() },
        })
    }

    /// How the files are, in the same shape, and nothing about any server.
    fn outline(&self) -> Value {
        let mut outline = self.overview(&|_| false);
        if let Some(fields) = outline.as_object_mut() {
            let empty = MetricsReport {
                agents: BTreeMap::new(),
                servers: BTreeMap::new(),
                tools: BTreeMap::new(),
            };
            fields.insert("metrics".to_owned(), json!(empty));
            fields.insert("audit".to_owned(), json!({ "path": "", "problem": null }));
        }
        // These name servers.
        if let Some(remarks) = outline.pointer_mut("/reload_status/mcp_config/last_warnings") {
            *remarks = json!([]);
        }
        outline
    }

    /// Every combination of agent, server, tool and decision so far.
    pub fn call_counts(&self) -> Vec<CallCount> {
        self.ledger.calls()
    }

    /// Why the audit log could not be written, if it could not.
    pub fn audit_problem(&self) -> Option<String> {
        self.ledger.problem()
    }

    /// The states of all servers of `.mcp.json`, each with the agents that have one of their own.
    pub fn server_states(&self, sees: &dyn Fn(&str) -> bool) -> Value {
        let in_force = self.in_force();
        let mut states: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in in_force.servers.entries().iter().filter(|entry| sees(&entry.name)) {
            let broken = entry.spec.as_ref().err();
            let known = broken.map(|reason| json!({ "state": "failed", "reason": reason }));
            states.insert(entry.name.clone(), known.into_iter().collect());
        }
        for server in self.pool().all() {
            // Private servers are nobody else's business, not even as a name.
            let Some(shown) = states.get_mut(&server.key.server) else { continue };
            let mut state = serde_json::to_value(server.state()).unwrap_or_default();
            match &server.key.scope {
                super::downstream::Scope::Shared => {}
                super::downstream::Scope::Agent(agent) => {
                    if let Some(state) = state.as_object_mut() {
                        state.insert("agent".to_owned(), json!(agent));
                    }
                }
                super::downstream::Scope::Private(_) | super::downstream::Scope::Run { .. } => {
                    continue;
                }
            }
            shown.push(state);
        }
        let idle = || vec![json!({ "state": "idle", "restarts": 0 })];
        let shown = |states: Vec<Value>| if states.is_empty() { idle() } else { states };
        states
            .into_iter()
            .map(|(name, states)| (name, json!(shown(states))))
            .collect::<Map<_, _>>()
            .into()
    }

    fn seen_metrics(&self, sees: &dyn Fn(&str) -> bool) -> MetricsReport {
        let mut report = self.ledger.metrics();
        report.servers.retain(|server, _| sees(server));
        report.tools.retain(|name, _| name.split_once('/').is_some_and(|(server, _)| sees(server)));
        report
    }

    fn changed_tools(&self, sees: &dyn Fn(&str) -> bool) -> Value {
        let changed = self.pins.changed();
        changed
            .into_iter()
            .filter(|(server, _)| sees(server))
            .map(|(s, t)| (s, json!(t)))
            .collect::<Map<_, _>>()
            .into()
    }
}
