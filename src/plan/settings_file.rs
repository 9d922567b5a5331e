//! The settings file an agent's process gets: its permission rules and nothing of anybody else's.

use serde_json::{Value, json};

use crate::catalog::{Agent, RuleText};

/// The settings as Claude Code reads them.
pub(super) fn settings(agent: &Agent) -> Value {
    let permissions = &agent.permissions;
    let mut allow = texts(&permissions.allow);
    allow.extend(agent.policy.trusted_servers.iter().map(|server| format!("mcp__{server}")));
    json!({
        // Instructions about commits that no agent asked for; its own prompt says what it needs.
        "includeGitInstructions": false,
        "permissions": {
            "allow": allow,
            "ask": texts(&permissions.ask),
            "deny": texts(&permissions.deny),
        }
    })
}

fn texts(rules: &[RuleText]) -> Vec<String> {
    rules.iter().map(RuleText::to_string).collect()
}
