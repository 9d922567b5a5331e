//! Parser of `policy`. A rule without effect is a warning, a typo is an error.

use super::super::diagnostic::Severity;
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
pub(crate) fn parse_policy(node: &Node<'_>, servers: &[ServerEntry]) -> PolicyRules {
    let mut policy = PolicyRules::default();
    let Some(fields) = node.fields() else { return policy };
    fields.reject_unknown(&names(POLICY));
    if let Some(inside) = fields.read("tools", Node::fields) {
        read_tool_rules(&inside, servers, &mut policy);
    }
    if let Some(inside) = fields.read("mcp", Node::fields) {
        read_server_rules(&inside, servers, &mut policy);
    }
    if let Some(node) = fields.get("mcp_servers") {
        policy.trusted_servers = read_trust(&node, servers);
    }
    policy
}

fn read_tool_rules(fields: &MappingFields<'_>, servers: &[ServerEntry], policy: &mut PolicyRules) {
    fields.reject_unknown(&names(LISTS));
    let read = |node, unknown| check_servers(tools::parse_tools(&node), servers, unknown);
    policy.tools_allowed = fields.get("allowed").map(|node| read(node, UnknownServer::Error));
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        policy.tools_exclude.extend(read(node, UnknownServer::ErrorIfSimilar));
    }
}

fn read_server_rules(
    fields: &MappingFields<'_>,
    servers: &[ServerEntry],
    policy: &mut PolicyRules,
) {
    fields.reject_unknown(&names(LISTS));
    let read = |node, unknown| server_names(&node, servers, unknown);
    policy.mcp_allowed = fields.get("allowed").map(|node| read(node, UnknownServer::Error));
    for node in ["exclude", "excluded"].iter().filter_map(|key| fields.get(key)) {
        policy.mcp_excluded.extend(read(node, UnknownServer::ErrorIfSimilar));
    }
}

fn server_names(node: &Node<'_>, servers: &[ServerEntry], unknown: UnknownServer) -> Vec<String> {
    let mut names = Vec::new();
    for item in node.items_or_text().unwrap_or_default() {
        let Some(text) = item.text() else { continue };
        if !is_name_or_pattern(text) || text.contains("__") {
            let message = format!("`{text}` is neither a server's name nor a pattern of one");
            item.error("invalid-server-name", message);
            continue;
        }
        check_server(text, &item, servers, unknown);
        names.push(text.to_owned());
    }
    names
}

fn read_trust(node: &Node<'_>, servers: &[ServerEntry]) -> Vec<String> {
    let Some(fields) = node.fields() else { return Vec::new() };
    let mut trusted = Vec::new();
    for (name, node) in fields.iter() {
        let Some(inside) = node.fields() else { continue };
        inside.reject_unknown(&names(TRUST));
        if !servers.iter().any(|server| server.name == name) {
            node.key_error("unknown-server", unknown_server_message(name))
                .help(unknown_server_help(name, servers));
        }
        if inside.read("trust", Node::boolean) == Some(true) {
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

/// Reports tools of unknown servers and returns all tools.
pub(crate) fn check_servers(
    tools: Vec<(ToolRef, Node<'_>)>,
    servers: &[ServerEntry],
    unknown: UnknownServer,
) -> Vec<ToolRef> {
    for (tool, node) in &tools {
        if let ToolRef::Mcp { server, .. } = tool {
            check_server(server, node, servers, unknown);
        }
    }
    tools.into_iter().map(|(tool, _)| tool).collect()
}

/// Reports a server name or pattern that matches no server.
pub(crate) fn check_server(
    server: &str,
    node: &Node<'_>,
    servers: &[ServerEntry],
    unknown: UnknownServer,
) {
    let pattern = Pattern::new(server);
    let all_of_them = server.chars().all(|c| c == '*');
    if all_of_them || servers.iter().any(|entry| pattern.matches(&entry.name)) {
        return;
    }
    let near = !nearest_names(server, servers.iter().map(|entry| entry.name.as_str())).is_empty();
    let severity = match unknown {
        UnknownServer::ErrorIfSimilar if !near => Severity::Warning,
        UnknownServer::Error | UnknownServer::ErrorIfSimilar => Severity::Error,
    };
    node.problems
        .add(severity, "unknown-server", node.at(), unknown_server_message(server))
        .help(unknown_server_help(server, servers));
}

fn unknown_server_message(server: &str) -> String {
    format!("this agent has no MCP server `{server}`")
}

#[cfg(test)]
mod tests {
    use super::super::node::FileFormat;
    use super::*;
    use crate::catalog::model::ServerLaunch;
    use crate::catalog::problem::Problems;
    use test_case::test_case;

    #[test_case("api" => true)]
    #[test_case("a?i" => true)]
    #[test_case("[ab]*" => true; "a class")]
    #[test_case("[!a]*" => false; "a negated class")]
    #[test_case("API" => false)]
    fn defect_14_policy_patterns_match_server_names(server: &str) -> bool {
        let servers = [ServerEntry::new("api", ServerLaunch::Shared)];
        let problems = Problems::default();
        let (value, path) = (serde_yaml::Value::Null, String::new());
        let node = Node { value: &value, path, format: FileFormat::Yaml, problems: &problems };
        check_server(server, &node, &servers, UnknownServer::Error);
        !problems.has_errors()
    }
}
