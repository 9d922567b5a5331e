//! Parser of typed tool names (`builtin:Bash`, `mcp:server:tool`) and of Claude Code's forms.

use super::node::Node;
use super::permissions::canonical_tool;
use crate::catalog::model::ToolRef;

/// Parses a list of tools; a comma-separated string counts as a list, as in Claude Code's agents.
pub(crate) fn parse_tools<'v>(node: &Node<'v>) -> Vec<(ToolRef, Node<'v>)> {
    let items = node.items_or_text().unwrap_or_default();
    let mut tools = Vec::new();
    for item in items {
        let Some(text) = item.text() else { continue };
        for part in split_list(text) {
            if let Some(tool) = parse_tool(&item, part.trim()) {
                tools.push((tool, item.clone()));
            }
        }
    }
    tools
}

fn split_list(text: &str) -> Vec<&str> {
    if text.contains('(') { vec![text] } else { text.split(',').collect() }
}

fn parse_tool(node: &Node<'_>, text: &str) -> Option<ToolRef> {
    if let Some(rest) = text.strip_prefix("mcp:") {
        let (server, tool) = rest.split_once(':').unwrap_or((rest, "*"));
        return parse_mcp_tool(node, text, server, tool);
    }
    if let Some(rest) = text.strip_prefix("mcp__") {
        let (server, tool) = rest.split_once("__").unwrap_or((rest, "*"));
        return parse_mcp_tool(node, text, server, tool);
    }
    let name = text.strip_prefix("builtin:").unwrap_or(text);
    if name.contains('(') {
        node.error("invalid-tool", format!("`{text}` is a permission rule, not a tool"))
            .help("put it into `permissions.allow`; the tool then counts as listed");
        return None;
    }
    if text == "*" {
        node.error("invalid-tool", "a bare `*` does not say which tools are meant")
            .help("write `builtin:*` for all built-in tools, `mcp:<server>:*` for a server's");
        return None;
    }
    if !is_name_or_pattern(name) {
        return report_invalid_tool(node, text);
    }
    canonical_tool(node, name).map(ToolRef::Builtin)
}

fn parse_mcp_tool(node: &Node<'_>, text: &str, server: &str, tool: &str) -> Option<ToolRef> {
    if !is_name_or_pattern(server) || !is_name_or_pattern(tool) || server.contains("__") {
        return report_invalid_tool(node, text);
    }
    Some(ToolRef::Mcp { server: server.to_owned(), tool: tool.to_owned() })
}

fn report_invalid_tool(node: &Node<'_>, text: &str) -> Option<ToolRef> {
    node.error("invalid-tool", format!("`{text}` does not name a tool"))
        .help("write `builtin:Bash` or `mcp:<server>:<tool>`; `*` and `?` are patterns");
    None
}

/// True for a name or pattern. The allowed characters cannot start another rule.
pub(crate) fn is_name_or_pattern(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '?');
    !text.is_empty() && text.len() <= 128 && text.chars().all(allowed)
}
