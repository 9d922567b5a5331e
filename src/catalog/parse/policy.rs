//! Parser of `policy`. A rule without effect is a warning, a typo is an error.

use super::super::diagnostic::Severity;
use super::super::problem::{ProblemTarget, Problems};
use super::node::{MappingFields, Node};
use super::servers::unknown_server_help;
use super::shape::{Property, Shape, names, property};
use super::tools::{self, is_name_or_pattern};
use crate::catalog::model::{PolicyRules, ServerEntry, ToolRef};
use crate::util::{Pattern, nearest_names};

/// Keys of `policy`.
pub(crate) const POLICY: &[Property] = &[
    property("tools", Shape::Object(LISTS), "Tools, by typed name or pattern"),
    property("mcp", Shape::Object(LISTS), "Servers, by name or pattern"),
    property("mcp_servers", Shape::Map(&Shape::Object(TRUST)), "Settings of single servers"),
];
/// Both spellings are accepted for both lists.
const LISTS: &[Property] = &[
    property("allowed", Shape::Texts, "Only these remain"),
    property("exclude", Shape::Texts, "These are removed; takes precedence over `allowed`"),
    property("excluded", Shape::Texts, "Same as `exclude`"),
];
const TRUST: &[Property] = &[property("trust", Shape::Flag, "Its tools need no approval")];

/// Parses `policy`; server names are checked against `servers`.
pub(crate) fn parse_policy(
    node: &Node<'_>,
    servers: &[ServerEntry],
    problems: &mut Problems,
) -> PolicyRules {
    let mut policy = PolicyRules::default();
    let Some(fields) = node.fields(problems) else { return policy };
    fields.reject_unknown(&names(POLICY), problems);
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

fn read_tool_rules(
    fields: &MappingFields<'_>,
    servers: &[ServerEntry],
    policy: &mut PolicyRules,
    problems: &mut Problems,
) {
    fields.reject_unknown(&names(LISTS), problems);
    if let Some(node) = fields.get("allowed") {
        let tools = tools::parse_tools(&node, problems);
        check_servers(&tools, servers, UnknownServer::Error, problems);
        policy.tools_allowed = Some(tools.into_iter().map(|(tool, _)| tool).collect());
    }
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        let tools = tools::parse_tools(&node, problems);
        check_servers(&tools, servers, UnknownServer::ErrorIfSimilar, problems);
        policy.tools_exclude.extend(tools.into_iter().map(|(tool, _)| tool));
    }
}

fn read_server_rules(
    fields: &MappingFields<'_>,
    servers: &[ServerEntry],
    policy: &mut PolicyRules,
    problems: &mut Problems,
) {
    fields.reject_unknown(&names(LISTS), problems);
    if let Some(node) = fields.get("allowed") {
        policy.mcp_allowed = Some(server_names(&node, servers, UnknownServer::Error, problems));
    }
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        policy.mcp_excluded.extend(server_names(
            &node,
            servers,
            UnknownServer::ErrorIfSimilar,
            problems,
        ));
    }
}

fn server_names(
    node: &Node<'_>,
    servers: &[ServerEntry],
    unknown: UnknownServer,
    problems: &mut Problems,
) -> Vec<String> {
    let mut names = Vec::new();
    for item in node.items_or_text(problems).unwrap_or_default() {
        let Some(text) = item.text(problems) else { continue };
        if !is_name_or_pattern(text) || text.contains("__") {
            let message = format!("`{text}` is neither a server's name nor a pattern of one");
            problems.error("invalid-server-name", item.at(), message);
            continue;
        }
        check_server(text, item.at(), servers, unknown, problems);
        names.push(text.to_owned());
    }
    names
}

fn read_trust(node: &Node<'_>, servers: &[ServerEntry], problems: &mut Problems) -> Vec<String> {
    let Some(fields) = node.fields(problems) else { return Vec::new() };
    let mut trusted = Vec::new();
    for (name, node) in fields.iter() {
        let Some(inside) = node.fields(problems) else { continue };
        inside.reject_unknown(&names(TRUST), problems);
        if !servers.iter().any(|server| server.name == name) {
            report_unknown_server(name, node.at_key(), servers, Severity::Error, problems);
        }
        if inside.get("trust").and_then(|node| node.boolean(problems)) == Some(true) {
            trusted.push(name.to_owned());
        }
    }
    trusted
}

/// Severity of an unknown server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownServer {
    /// Always an error.
    Error,
    /// An error if the name resembles a known server, otherwise a warning: the rule removes nothing.
    ErrorIfSimilar,
}

/// Reports tools of unknown servers.
pub(crate) fn check_servers(
    tools: &[(ToolRef, String)],
    servers: &[ServerEntry],
    unknown: UnknownServer,
    problems: &mut Problems,
) {
    for (tool, path) in tools {
        if let ToolRef::Mcp { server, .. } = tool {
            check_server(server, ProblemTarget::Value(path.clone()), servers, unknown, problems);
        }
    }
}

/// Reports a server name or pattern that matches no server.
pub(crate) fn check_server(
    server: &str,
    at: ProblemTarget,
    servers: &[ServerEntry],
    unknown: UnknownServer,
    problems: &mut Problems,
) {
    let pattern = Pattern::new(server);
    let all_of_them = server.chars().all(|c| c == '*');
    if all_of_them || servers.iter().any(|entry| pattern.matches(&entry.name)) {
        return;
    }
    let near = !nearest_names(server, servers.iter().map(|entry| entry.name.as_str())).is_empty();
    let severity = match unknown {
        UnknownServer::Error => Severity::Error,
        UnknownServer::ErrorIfSimilar if near => Severity::Error,
        UnknownServer::ErrorIfSimilar => Severity::Warning,
    };
    report_unknown_server(server, at, servers, severity, problems);
}

fn report_unknown_server(
    server: &str,
    at: ProblemTarget,
    servers: &[ServerEntry],
    severity: Severity,
    problems: &mut Problems,
) {
    let message = format!("this agent has no MCP server `{server}`");
    problems
        .add(severity, "unknown-server", at, message)
        .help(unknown_server_help(server, servers));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::model::ServerLaunch;
    use test_case::test_case;

    #[test_case("api" => true)]
    #[test_case("a?i" => true)]
    #[test_case("[ab]*" => true; "a class")]
    #[test_case("[!a]*" => false; "a negated class")]
    #[test_case("API" => false)]
    fn defect_14_policy_patterns_match_server_names(server: &str) -> bool {
        let servers = [ServerEntry::new("api", ServerLaunch::Shared)];
        let mut problems = Problems::default();
        check_server(server, ProblemTarget::File, &servers, UnknownServer::Error, &mut problems);
        !problems.has_errors()
    }
}
