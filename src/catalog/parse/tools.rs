//! Tools by their typed names: `builtin:Bash`, `mcp:server:tool`, and the forms other files use.

use super::model::ToolRef;
use super::node::Node;
use super::problem::Problems;
use super::read_permissions::canonical_tool;

/// Reads a list of tools; one text with commas is a list too, as in Claude Code's own agents.
pub(super) fn read_list(node: &Node<'_>, problems: &mut Problems) -> Vec<(ToolRef, String)> {
    let items = node.items_or_text(problems).unwrap_or_default();
    let mut tools = Vec::new();
    for item in items {
        let Some(text) = item.text(problems) else { continue };
        for part in split_outside_parentheses(text) {
            if let Some(tool) = read_one(&item, part.trim(), problems) {
                tools.push((tool, item.path.clone()));
            }
        }
    }
    tools
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    if text.contains('(') { vec![text] } else { text.split(',').collect() }
}

fn read_one(node: &Node<'_>, text: &str, problems: &mut Problems) -> Option<ToolRef> {
    if let Some(rest) = text.strip_prefix("mcp:") {
        let (server, tool) = rest.split_once(':').unwrap_or((rest, "*"));
        return mcp(node, text, server, tool, problems);
    }
    if let Some(rest) = text.strip_prefix("mcp__") {
        let (server, tool) = rest.split_once("__").unwrap_or((rest, "*"));
        return mcp(node, text, server, tool, problems);
    }
    let name = text.strip_prefix("builtin:").unwrap_or(text);
    if name.contains('(') {
        problems
            .error("invalid-tool", node.at(), format!("`{text}` is a permission rule, not a tool"))
            .help("put it into `permissions.allow`; the tool then counts as listed");
        return None;
    }
    if text == "*" {
        problems
            .error("invalid-tool", node.at(), "a bare `*` does not say which tools are meant")
            .help("write `builtin:*` for all built-in tools, `mcp:<server>:*` for a server's");
        return None;
    }
    if !is_pattern(name) {
        return refuse(node, text, problems);
    }
    canonical_tool(node, name, problems).map(ToolRef::Builtin)
}

fn mcp(
    node: &Node<'_>,
    text: &str,
    server: &str,
    tool: &str,
    problems: &mut Problems,
) -> Option<ToolRef> {
    if !is_pattern(server) || !is_pattern(tool) || server.contains("__") {
        return refuse(node, text, problems);
    }
    Some(ToolRef::Mcp { server: server.to_owned(), tool: tool.to_owned() })
}

fn refuse(node: &Node<'_>, text: &str, problems: &mut Problems) -> Option<ToolRef> {
    problems
        .error("invalid-tool", node.at(), format!("`{text}` does not name a tool"))
        .help("write `builtin:Bash` or `mcp:<server>:<tool>`; `*` and `?` are patterns");
    None
}

/// A name, or a pattern of one. Nothing in it can begin a second rule.
pub(super) fn is_pattern(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '?');
    !text.is_empty() && text.len() <= 128 && text.chars().all(allowed)
}
