//! Settings file of an agent's process: the agent's permission rules and nothing else.

use serde_json::{Value, json};

use crate::catalog::{Agent, RuleText};

pub(crate) fn settings(agent: &Agent, read_denials: &[String]) -> Value {
    let permissions = &agent.permissions;
    let mut allow = texts(&permissions.allow);
    allow.extend(agent.policy.trusted_servers.iter().map(|server| format!("mcp__{server}")));
    let mut deny = texts(&permissions.deny);
    deny.extend_from_slice(read_denials);
    json!({
        // Adds instructions about commits to the prompt, which agents do not need.
        "includeGitInstructions": false,
        "permissions": {
            "allow": allow,
            "ask": texts(&permissions.ask),
            "deny": deny,
        }
    })
}

fn texts(rules: &[RuleText]) -> Vec<String> {
    rules.iter().map(RuleText::to_string).collect()
}
