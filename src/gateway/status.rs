//! The status report of the gateway, with all problems in one line.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::audit_trail::AuditDraft;
use super::error::GatewayError;
use super::gateway::{Gateway, RequestIdentity};
use super::listing::set_field;
use crate::catalog::Pinning;
use crate::gateway::config::{ActiveConfig, ConfigFileReport};
use crate::gateway::downstream::ServerScope;
use crate::telemetry::{CallCount, MetricsReport};

impl Gateway {
    /// Returns the result of `get_gateway_status` for an agent, limited to the servers that it may use.
    pub async fn status(&self, who: &RequestIdentity) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("get_gateway_status", who.clone());
        let result = match self.view_for(who, &mut draft) {
            Ok(view) => Ok(self.report(&|server| view.may_use(server, None))),
            // Without rules no agent is known, and the user must be able to learn why.
            Err(GatewayError::NoRules(_)) => Ok(self.files_report()),
            Err(error) => Err(error),
        };
        self.audit_trail.record_value(draft, result).await
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
        let no_metrics = json!({ "agents": {}, "servers": {}, "tools": {} });
        set_field(&mut outline, "metrics", no_metrics);
        set_field(&mut outline, "audit", json!({ "path": "", "problem": null }));
        // Warnings contain names of servers.
        if let Some(remarks) = outline.pointer_mut("/reload_status/mcp_config/last_warnings") {
            *remarks = json!([]);
        }
        outline
    }

    /// Returns the number of calls per agent, server, tool and decision.
    pub fn call_counts(&self) -> Vec<CallCount> {
        self.audit_trail.metrics.calls()
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
            let mut state = json!(server.report());
            match &server.key.scope {
                ServerScope::Shared => {}
                ServerScope::Agent(agent) => set_field(&mut state, "agent", json!(agent)),
                ServerScope::Private(_) | ServerScope::Run { .. } => continue,
            }
            shown.push(state);
        }
        for none in states.values_mut().filter(|states| states.is_empty()) {
            none.push(json!({ "state": "idle", "restarts": 0 }));
        }
        json!(states)
    }

    fn visible_metrics(&self, sees: &dyn Fn(&str) -> bool) -> MetricsReport {
        let mut report = self.audit_trail.metrics.report();
        report.servers.retain(|server, _| sees(server));
        report.tools.retain(|name, _| name.split_once('/').is_some_and(|(server, _)| sees(server)));
        report
    }

    fn changed_tools(&self, sees: &dyn Fn(&str) -> bool) -> Value {
        let mut changed = self.pins.changed();
        changed.retain(|server, _| sees(server));
        json!(changed)
    }

    /// Lists the problems that concern the files and the servers selected by `sees`.
    fn status_message(&self, in_force: &ActiveConfig, sees: &dyn Fn(&str) -> bool) -> String {
        let mut said: Vec<String> = Vec::new();
        said.extend(rules_message(in_force));
        said.extend(servers_file_message(&in_force.report.mcp_config));
        said.extend(self.failing_servers(sees));
        said.extend(self.changed_tool_messages(in_force, sees));
        said.extend(self.pins.findings().err().map(|error| error.to_string()));
        said.extend(
            self.audit_error().map(|reason| format!("the audit log cannot be written: {reason}")),
        );
        if said.is_empty() { "all is well".to_owned() } else { said.join("; ") }
    }

    fn failing_servers(&self, sees: &dyn Fn(&str) -> bool) -> Vec<String> {
        let states = self.server_states(sees);
        let fails = |states: &Value| {
            states.as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "failed"))
        };
        let states = states.as_object().into_iter().flatten();
        let failing = states.filter(|(_, states)| fails(states));
        failing.map(|(name, _)| format!("server `{name}` cannot be used")).collect()
    }

    fn changed_tool_messages(
        &self,
        in_force: &ActiveConfig,
        sees: &dyn Fn(&str) -> bool,
    ) -> Vec<String> {
        let sentence = |server: &str, tools: &[String]| {
            let spec = in_force.servers.get(server).and_then(|entry| entry.spec.as_ref().ok());
            let strict = spec.is_some_and(|spec| spec.pinning == Pinning::Strict);
            let what = if strict { "are withheld" } else { "changed" };
            format!("tools of `{server}` {what}: `{}`", tools.join("`, `"))
        };
        let changed = self.pins.changed();
        let seen = changed.iter().filter(|(server, _)| sees(server));
        seen.map(|(server, tools)| sentence(server, tools)).collect()
    }
}

fn rules_message(in_force: &ActiveConfig) -> Option<String> {
    if let Some(gap) = &in_force.no_rules {
        return Some(gap.to_string());
    }
    let broken = in_force.report.gateway_rules.last_error.is_some();
    broken.then(|| "the rules are broken; their last good version is in force".to_owned())
}

fn servers_file_message(report: &ConfigFileReport) -> Option<String> {
    let sentence = match (&report.last_error, report.success_count) {
        (Some(_), 0) => "`.mcp.json` is broken, so there are no servers",
        (Some(_), _) => "`.mcp.json` is broken; its last good version is in force",
        (None, _) if report.is_missing() => "there is no `.mcp.json`",
        (None, _) => return None,
    };
    Some(sentence.to_owned())
}
