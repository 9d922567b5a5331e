//! Parser of `mcp_servers`: private servers and references to shared servers, as list or mapping.
//!
//! The entries themselves are parsed in `server_entry`.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::super::problem::ProblemTarget;
use super::node::{FileFormat, Node, suggestion};
use super::server_entry::{entry_keys, parse_entry};
use super::shape::Shape;
use crate::catalog::model::{ServerEntry, ServerLaunch};

const SERVER: Shape = Shape::Definition("server");
/// A list of names and entries, or entries by name.
pub(crate) const SERVERS: Shape = Shape::OneOf(&[
    Shape::List(&Shape::OneOf(&[Shape::Text, SERVER, Shape::Map(&SERVER)])),
    Shape::Map(&Shape::OneOf(&[SERVER, Shape::Null])),
]);

pub(crate) fn parse_servers(node: &Node<'_>) -> Vec<ServerEntry> {
    let named = match node.value {
        Value::Mapping(_) => from_map(node),
        _ => from_list(node),
    };
    let mut seen = BTreeSet::new();
    let mut servers = Vec::new();
    for (name, at, node) in named {
        if let Err(reason) = check_name(&name) {
            let message = format!("`{name}` cannot be a server's name: {reason}");
            node.problems.error("invalid-server-name", at, message);
            continue;
        }
        if !seen.insert(name.clone()) {
            let message = format!("there are two servers of the name `{name}`");
            node.problems.error("duplicate-server", at, message);
            continue;
        }
        servers.extend(read_server(&name, &node));
    }
    servers
}

type NamedServer<'v> = (String, ProblemTarget, Node<'v>);

fn from_map<'v>(node: &Node<'v>) -> Vec<NamedServer<'v>> {
    let Some(fields) = node.fields() else { return Vec::new() };
    fields.iter().map(|(name, node)| (name.to_owned(), node.at_key(), node)).collect()
}

fn from_list<'v>(node: &Node<'v>) -> Vec<NamedServer<'v>> {
    let items = node.items().unwrap_or_default();
    items.into_iter().filter_map(from_item).collect()
}

/// Accepts `- github`, `- name: github` and `- github: { … }`.
fn from_item(item: Node<'_>) -> Option<NamedServer<'_>> {
    if let Value::String(name) = item.value {
        return Some((name.clone(), item.at(), item));
    }
    let fields = item.fields()?;
    if let Some(name) = fields.get("name") {
        let text = name.text()?.to_owned();
        return Some((text, name.at(), item));
    }
    if let Some((name, inner)) = fields.iter().next().filter(|_| fields.len() == 1)
        && !entry_keys(FileFormat::Yaml).contains(&name)
    {
        return Some((name.to_owned(), inner.at_key(), inner));
    }
    item.error("missing-key", "this server has no name").help("write `- name: <server>` first");
    None
}

/// The name is part of tool names and rules, so it must not contain or border on the `__` separator.
fn check_name(name: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 {
        Err("it has 1 to 64 characters")
    } else if !name.chars().all(allowed) {
        Err("it has only letters, digits, `_` and `-`")
    } else if name.contains("__") || name.starts_with('_') || name.ends_with('_') {
        Err(
            "`__` divides server and tool in a tool's name, so it has no `__` and no `_` at its ends",
        )
    } else {
        Ok(())
    }
}

fn read_server(name: &str, node: &Node<'_>) -> Option<ServerEntry> {
    if matches!(node.value, Value::String(_) | Value::Null) {
        return Some(ServerEntry::new(name, ServerLaunch::Shared));
    }
    parse_entry(name, node)
}

/// Help text for an unknown server: the nearest known names.
pub(crate) fn unknown_server_help(server: &str, servers: &[ServerEntry]) -> String {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    if names.is_empty() {
        format!("add `mcp_servers: [{{ name: {server}, … }}]`")
    } else {
        suggestion(server, &names)
    }
}
