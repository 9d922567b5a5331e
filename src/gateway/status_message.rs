//! The `message` of the gateway status: all problems in one line, or "all is well".

use super::gateway::Gateway;
use crate::catalog::Pinning;
use crate::gateway::config::{ActiveConfig, ConfigFileReport};

impl Gateway {
    /// Lists the problems that concern the files and the servers selected by `sees`.
    pub(crate) fn status_message(
        &self,
        in_force: &ActiveConfig,
        sees: &dyn Fn(&str) -> bool,
    ) -> String {
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
        let fails = |states: &serde_json::Value| {
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
