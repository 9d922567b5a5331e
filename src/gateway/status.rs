//! The status report of the gateway.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::audit_trail::AuditDraft;
use super::error::GatewayError;
use super::gateway::{Gateway, RequestIdentity};
use crate::telemetry::{CallCount, MetricsReport};

impl Gateway {
    /// Returns the result of `get_gateway_status` for an agent, limited to the servers that it may use.
    pub async fn status(&self, who: &RequestIdentity) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("get_gateway_status", who);
        let result = match self.view_for(who, &mut draft) {
            Ok(view) => Ok(self.report(&|server| view.may_use(server, None))),
            // Without rules no agent is known, and the user must be able to learn why.
            Err(GatewayError::NoRules(_)) => Ok(self.files_report()),
            Err(error) => Err(error),
        };
        self.audit_trail.record_batched(draft, result, |value| value.to_string().len()).await
    }

    /// Returns the report about the servers selected by `sees`.
    pub fn report(&self, sees: &dyn Fn(&str) -> bool) -> Value {
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
            "message": self.status_message(&in_force, sees),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "servers": self.server_states(sees),
            "changed_tools": self.changed_tools(sees),
            "metrics": self.visible_metrics(sees),
            "audit": { "path": in_force.files.audit_log, "problem": self.audit_trail.last_error() },
        })
    }

    /// Returns the report about the files only, in the same format.
    fn files_report(&self) -> Value {
        let mut outline = self.report(&|_| false);
        if let Some(fields) = outline.as_object_mut() {
            let empty = MetricsReport {
                agents: BTreeMap::new(),
                servers: BTreeMap::new(),
                tools: BTreeMap::new(),
            };
            fields.insert("metrics".to_owned(), json!(empty));
            fields.insert("audit".to_owned(), json!({ "path": "", "problem": null }));
        }
        // Warnings contain names of servers.
        if let Some(remarks) = outline.pointer_mut("/reload_status/mcp_config/last_warnings") {
            *remarks = json!([]);
        }
        outline
    }

    /// Returns the number of calls per agent, server, tool and decision.
    pub fn call_counts(&self) -> Vec<CallCount> {
        self.audit_trail.call_counts()
    }

    /// Returns the error of the last write to the audit log, if it failed.
    pub fn audit_error(&self) -> Option<String> {
        self.audit_trail.last_error()
    }

    /// Returns the states of all servers of `.mcp.json`, including the processes of single agents.
    pub fn server_states(&self, sees: &dyn Fn(&str) -> bool) -> Value {
        let in_force = self.in_force();
        let mut states: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in in_force.servers.entries().iter().filter(|entry| sees(&entry.name)) {
            let broken = entry.spec.as_ref().err();
            let known = broken.map(|reason| json!({ "state": "failed", "reason": reason }));
            states.insert(entry.name.clone(), known.into_iter().collect());
        }
        for server in self.downstreams().all() {
            // Private servers are not shown, not even by name.
            let Some(shown) = states.get_mut(&server.key.server) else { continue };
            let mut state = serde_json::to_value(server.report()).unwrap_or_default();
            match &server.key.scope {
                crate::gateway::downstream::ServerScope::Shared => {}
                crate::gateway::downstream::ServerScope::Agent(agent) => {
                    if let Some(state) = state.as_object_mut() {
                        state.insert("agent".to_owned(), json!(agent));
                    }
                }
                crate::gateway::downstream::ServerScope::Private(_)
                | crate::gateway::downstream::ServerScope::Run { .. } => {
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

    fn visible_metrics(&self, sees: &dyn Fn(&str) -> bool) -> MetricsReport {
        let mut report = self.audit_trail.metrics();
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
