//! Parser of permission rules in Claude Code's syntax.
//!
//! Stricter than Claude Code: a rule that Claude Code accepts but never applies is an error.

use super::super::diagnostic::Severity;
use super::node::Node;
use super::policy::{UnknownServer, check_server};
use super::shape::{Property, Shape, names, property};
use crate::catalog::model::{BuiltinTool, Permissions, RuleText, ServerEntry, builtin_tools};

/// Keys of `permissions`.
pub(crate) const PERMISSIONS: &[Property] = &[
    property("allow", Shape::Texts, "Need no approval; the tools named here exist for the agent"),
    property("ask", Shape::Texts, "A person decides; denied if none can"),
    property("deny", Shape::Texts, "Denied; takes precedence over all other rules"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleList {
    Allow,
    Ask,
    Deny,
}

/// Parses `permissions`; rules for MCP tools are checked against `servers`.
pub(crate) fn parse_permissions(node: &Node<'_>, servers: &[ServerEntry]) -> Permissions {
    let Some(fields) = node.fields() else { return Permissions::default() };
    fields.reject_unknown(&names(PERMISSIONS));
    let list =
        |key, kind| fields.get(key).map(|node| read_list(&node, kind, servers)).unwrap_or_default();
    Permissions {
        allow: list("allow", RuleList::Allow),
        ask: list("ask", RuleList::Ask),
        deny: list("deny", RuleList::Deny),
    }
}

fn read_list(node: &Node<'_>, list: RuleList, servers: &[ServerEntry]) -> Vec<RuleText> {
    let items = node.items_or_text().unwrap_or_default();
    items.iter().filter_map(|item| read_rule(item, list, servers)).collect()
}

fn read_rule(node: &Node<'_>, list: RuleList, servers: &[ServerEntry]) -> Option<RuleText> {
    let text = node.text()?;
    let rule = match parse_rule(text) {
        Ok(rule) => rule,
        Err(reason) => {
            node.error("invalid-rule", format!("`{text}` is no permission rule: {reason}")).help(
                "write `Tool` or `Tool(specifier)`, such as `Bash(curl:*)` or `Read(src/**)`",
            );
            return None;
        }
    };
    if rule.tool.starts_with("mcp__") {
        check_mcp(node, &rule, list, servers).then_some(rule)
    } else {
        check_builtin(node, text, rule, list)
    }
}

/// Parses `Tool` or `Tool(specifier)`; the specifier ends at the last parenthesis.
fn parse_rule(text: &str) -> Result<RuleText, &'static str> {
    if text.chars().any(char::is_control) {
        return Err("it has a line break or another control character");
    }
    if text != text.trim() {
        return Err("it begins or ends with a space");
    }
    let (tool, specifier) = match text.split_once('(') {
        None => (text, None),
        Some((tool, rest)) => {
            let inside = rest.strip_suffix(')').ok_or("it does not end with `)`")?;
            (tool, Some(inside))
        }
    };
    if tool.is_empty() {
        return Err("no tool stands before the parenthesis");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
    if !tool.chars().all(allowed) {
        return Err("a tool's name has only letters, digits, `_` and `-`");
    }
    if specifier.is_some_and(|inside| inside.trim().is_empty()) {
        return Err("the parentheses are empty; leave them away to mean the whole tool");
    }
    Ok(RuleText { tool: tool.to_owned(), specifier: specifier.map(str::to_owned) })
}

fn check_mcp(node: &Node<'_>, rule: &RuleText, list: RuleList, servers: &[ServerEntry]) -> bool {
    if rule.specifier.is_some() {
        node.error("invalid-rule", format!("`{rule}`: rules for MCP tools take no parentheses"))
            .help(format!("write `{}`", rule.tool));
        return false;
    }
    let server = rule.tool.trim_start_matches("mcp__");
    let server = server.split_once("__").map_or(server, |(server, _)| server);
    if list == RuleList::Allow && server.contains('*') {
        node.error(
            "rule-never-consulted",
            format!("`{rule}` in `allow` is accepted by Claude Code and never consulted"),
        )
        .help("name the server: `mcp__<server>` or `mcp__<server>__*`");
        return false;
    }
    // In `ask` and `deny` an unknown server is harmless unless it is a typo.
    let unknown =
        if list == RuleList::Allow { UnknownServer::Error } else { UnknownServer::ErrorIfSimilar };
    check_server(server, node, servers, unknown);
    true
}

fn check_builtin(node: &Node<'_>, text: &str, rule: RuleText, list: RuleList) -> Option<RuleText> {
    let tool = canonical_tool(node, &rule.tool)?;
    let rule = RuleText { tool, ..rule };
    if let Some(instead) = replacement_for_ignored_rule(&rule, list) {
        node.error(
            "rule-never-consulted",
            format!("`{text}` is accepted by Claude Code and never consulted"),
        )
        .help(format!("write `{instead}`"));
        return None;
    }
    if let Some((reason, help)) = invalid_specifier(&rule) {
        let message = format!("`{text}` is no permission rule: {reason}");
        node.error("invalid-rule", message).help(help);
        return None;
    }
    Some(rule)
}

/// Returns the canonical tool name; reports unknown names.
pub(super) fn canonical_tool(node: &Node<'_>, written: &str) -> Option<String> {
    match builtin_tools::classify(written) {
        BuiltinTool::Known(name) => Some(name.to_owned()),
        BuiltinTool::Misspelled(near) => {
            node.error("unknown-tool", format!("there is no built-in tool `{written}`"))
                .help(format!("did you mean `{near}`?"));
            None
        }
        BuiltinTool::Unknown if written.contains(['*', '?']) => Some(written.to_owned()),
        BuiltinTool::Unknown => {
            let message = format!("`{written}` is no built-in tool that is known here");
            node.problems
                .add(Severity::Warning, "unknown-tool", node.at(), message)
                .help("it has an effect only if your version of Claude Code has it");
            Some(written.to_owned())
        }
    }
}

/// Returns the rule to write instead of one that Claude Code never applies.
/// Path rules apply under `Edit` and `Read` only, not under the names of other file tools.
fn replacement_for_ignored_rule(rule: &RuleText, list: RuleList) -> Option<String> {
    let specifier = rule.specifier.as_deref()?;
    // Rules on a parameter apply under the tool's own name, but not in `allow`.
    let names_parameter = specifier
        .split_once(':')
        .is_some_and(|(name, value)| crate::catalog::model::is_variable_name(name) && value != "*");
    if names_parameter && list != RuleList::Allow {
        return None;
    }
    match rule.tool.as_str() {
        "Write" | "NotebookEdit" | "MultiEdit" => Some(format!("Edit({specifier})")),
        "Glob" | "LS" | "NotebookRead" => Some(format!("Read({specifier})")),
        _ => None,
    }
}

fn invalid_specifier(rule: &RuleText) -> Option<(&'static str, String)> {
    let specifier = rule.specifier.as_deref()?;
    match rule.tool.as_str() {
        "Bash" if specifier.strip_suffix(":*").unwrap_or(specifier).contains(":*") => {
            Some(("`:*` stands only at its end", "write `Bash(git commit:*)`".to_owned()))
        }
        "Bash" if specifier == ":*" => {
            Some(("no command stands before `:*`", "write `Bash` for every command".to_owned()))
        }
        "WebFetch" if !specifier.starts_with("domain:") => Some((
            "the specifier of `WebFetch` is a domain",
            "write `WebFetch(domain:example.com)`".to_owned(),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("Bash(curl:*)" => Ok(("Bash".to_owned(), Some("curl:*".to_owned()))))]
    #[test_case("Read" => Ok(("Read".to_owned(), None)))]
    #[test_case("Bash(echo (a))" => Ok(("Bash".to_owned(), Some("echo (a)".to_owned()))))]
    #[test_case("Bash(" => Err("it does not end with `)`"))]
    #[test_case("Bash(a) , Read" => Err("it does not end with `)`"))]
    #[test_case("Bash, Read" => Err("a tool's name has only letters, digits, `_` and `-`"))]
    #[test_case("Bash()" => Err("the parentheses are empty; leave them away to mean the whole tool"))]
    #[test_case("(a)" => Err("no tool stands before the parenthesis"))]
    #[test_case("Bash(a\nb)" => Err("it has a line break or another control character"))]
    fn rule_syntax(text: &str) -> Result<(String, Option<String>), &'static str> {
        parse_rule(text).map(|rule| (rule.tool, rule.specifier))
    }
}
