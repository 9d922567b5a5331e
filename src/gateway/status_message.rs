//! The one sentence of the status: what is not well, or that all is.

use super::files::{FileReport, InForce};
use super::gateway::Gateway;
use super::server_config::Pinning;

impl Gateway {
    /// What a person should look at, as far as whoever asks may know of it.
    pub(super) fn message(&self, in_force: &InForce, sees: &dyn Fn(&str) -> bool) -> String {
        let mut said: Vec<String> = Vec::new();
        said.extend(about_rules(in_force));
        said.extend(about_servers_file(&in_force.report.mcp_config));
        said.extend(self.servers_that_fail(sees));
        said.extend(self.tools_that_changed(in_force, sees));
        said.extend(self.pins.findings().err().map(|error| error.to_string()));
        said.extend(
            self.audit_problem().map(|reason| format!("the audit log cannot be written: {reason}")),
        );
        if said.is_empty() { "all is well".to_owned() } else { said.join("; ") }
    }

    fn servers_that_fail(&self, sees: &dyn Fn(&str) -> bool) -> Vec<String> {
        let states = self.server_states(sees);
        let fails = |states: &serde_json::Value| {
            states.as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "failed"))
        };
        let states = states.as_object().into_iter().flatten();
        let failing = states.filter(|(_, states)| fails(states));
        failing.map(|(name, _)| format!("server `{name}` cannot be used")).collect()
    }

    fn tools_that_changed(&self, in_force: &InForce, sees: &dyn Fn(&str) -> bool) -> Vec<String> {
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

fn about_rules(in_force: &InForce) -> Option<String> {
    if let Some(gap) = &in_force.gap {
        return Some(gap.to_string());
    }
    let broken = in_force.report.gateway_rules.last_error.is_some();
    broken.then(|| "the rules are broken; their last good version is in force".to_owned())
}

fn about_servers_file(report: &FileReport) -> Option<String> {
    let sentence = match (&report.last_error, report.success_count) {
        (Some(_), 0) => "`.mcp.json` is broken, so there are no servers",
        (Some(_), _) => "`.mcp.json` is broken; its last good version is in force",
        (None, _) if report.is_missing() => "there is no `.mcp.json`",
        (None, _) => return None,
    };
    Some(sentence.to_owned())
}
