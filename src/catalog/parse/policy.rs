//! `policy`: what is taken away again. A rule that would take nothing away is doubted; a typo is an error.

use super::diagnostic::Severity;
use super::model::{PolicyRules, ServerEntry, ToolRef};
use super::node::{Fields, Node};
use super::problem::{At, Problems};
use super::read_servers::missing_server;
use super::read_tools::{self, is_pattern};
use crate::base::nearest;

/// Reads `policy` against the servers the agent has.
pub(super) fn read(
    node: &Node<'_>,
    servers: &[ServerEntry],
    problems: &mut Problems,
) -> PolicyRules {
    let mut policy = PolicyRules::default();
    let Some(fields) = node.fields(problems) else { return policy };
    fields.refuse_unknown(&["tools", "mcp", "mcp_servers"], problems);
    if let Some(inside) = fields.get("tools").and_then(|node| node.fields(problems)) {
        read_tool_rules(&inside, servers, &mut policy, problems);
    }
    if let Some(inside) = fields.get("mcp").and_then(|node| node.fields(problems)) {
        read_server_rules(&inside, servers, &mut policy, problems);
    }
    if let Some(node) = fields.get("mcp_servers") {
        policy.trusted_servers = read_trust(&node, servers, problems);
    }
    policy
}

/// Both spellings are in use for both lists; they mean the same.
const LIST_KEYS: [&str; 3] = ["allowed", "exclude", "excluded"];

fn read_tool_rules(
    fields: &Fields<'_>,
    servers: &[ServerEntry],
    policy: &mut PolicyRules,
    problems: &mut Problems,
) {
    fields.refuse_unknown(&LIST_KEYS, problems);
    if let Some(node) = fields.get("allowed") {
        let tools = read_tools::read_list(&node, problems);
        check_servers(&tools, servers, Doubt::Error, problems);
        policy.tools_allowed = Some(tools.into_iter().map(|(tool, _)| tool).collect());
    }
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        let tools = read_tools::read_list(&node, problems);
        check_servers(&tools, servers, Doubt::ErrorIfNear, problems);
        policy.tools_exclude.extend(tools.into_iter().map(|(tool, _)| tool));
    }
}

fn read_server_rules(
    fields: &Fields<'_>,
    servers: &[ServerEntry],
    policy: &mut PolicyRules,
    problems: &mut Problems,
) {
    fields.refuse_unknown(&LIST_KEYS, problems);
    if let Some(node) = fields.get("allowed") {
        policy.mcp_allowed = Some(server_names(&node, servers, Doubt::Error, problems));
    }
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        policy.mcp_excluded.extend(server_names(&node, servers, Doubt::ErrorIfNear, problems));
    }
}

fn server_names(
    node: &Node<'_>,
    servers: &[ServerEntry],
    doubt: Doubt,
    problems: &mut Problems,
) -> Vec<String> {
    let mut names = Vec::new();
    for item in node.items_or_text(problems).unwrap_or_default() {
        let Some(text) = item.text(problems) else { continue };
        if !is_pattern(text) || text.contains("__") {
            let message = format!("`{text}` is neither a server's name nor a pattern of one");
            problems.error("invalid-server-name", item.at(), message);
            continue;
        }
        check_server(text, item.at(), servers, doubt, problems);
        names.push(text.to_owned());
    }
    names
}

fn read_trust(node: &Node<'_>, servers: &[ServerEntry], problems: &mut Problems) -> Vec<String> {
    let Some(fields) = node.fields(problems) else { return Vec::new() };
    let mut trusted = Vec::new();
    for (name, node) in fields.iter() {
        let Some(inside) = node.fields(problems) else { continue };
        inside.refuse_unknown(&["trust"], problems);
        if !servers.iter().any(|server| server.name == name) {
            say_missing(name, node.at_key(), servers, Severity::Error, problems);
        }
        if inside.get("trust").and_then(|node| node.boolean(problems)) == Some(true) {
            trusted.push(name.to_owned());
        }
    }
    trusted
}

/// How a server that does not exist is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is always a mistake.
    Error,
    /// It takes nothing away, which is harmless unless it is a typo.
    ErrorIfNear,
}

/// Says which tools belong to servers that do not exist.
pub(super) fn check_servers(
    tools: &[(ToolRef, String)],
    servers: &[ServerEntry],
    doubt: Doubt,
    problems: &mut Problems,
) {
    for (tool, path) in tools {
        if let ToolRef::Mcp { server, .. } = tool {
            check_server(server, At::Value(path.clone()), servers, doubt, problems);
        }
    }
}

/// Says that a server does not exist, unless it does or a pattern meets one that does.
pub(super) fn check_server(
    server: &str,
    at: At,
    servers: &[ServerEntry],
    doubt: Doubt,
    problems: &mut Problems,
) {
    let known = |name: &str| wildmatch::WildMatch::new(server).matches(name);
    let all_of_them = server.chars().all(|c| c == '*');
    if all_of_them || servers.iter().any(|entry| known(&entry.name)) {
        return;
    }
    let near = !nearest(server, servers.iter().map(|entry| entry.name.as_str())).is_empty();
    let severity = match doubt {
        Doubt::Error => Severity::Error,
        Doubt::ErrorIfNear if near => Severity::Error,
        Doubt::ErrorIfNear => Severity::Warning,
    };
    say_missing(server, at, servers, severity, problems);
}

fn say_missing(
    server: &str,
    at: At,
    servers: &[ServerEntry],
    severity: Severity,
    problems: &mut Problems,
) {
    let message = format!("this agent has no MCP server `{server}`");
    problems.add(severity, "unknown-server", at, message).help(missing_server(server, servers));
}
