//! Claude Code's permission rules as applied to whole tools; `claude` evaluates specifiers itself.

use super::builtin_tools::all_names;
use crate::catalog::RuleText;
use crate::util::Pattern;

/// Prefix of MCP tool names: `mcp__server__tool`.
pub(crate) const MCP_PREFIX: &str = "mcp__";

/// True if a `deny` rule removes a built-in tool: `Bash` and `Bash(*)` do, `Bash(rm:*)` does not.
pub(crate) fn removes_builtin(rule: &RuleText, tool: &str) -> bool {
    let whole = matches!(rule.specifier.as_deref(), None | Some("" | "*" | ":*" | "**"));
    let pattern = Pattern::new(&rule.tool);
    whole && all_names(tool).any(|name| pattern.matches(name))
}

/// True if a `deny` rule removes this tool or, if `tool` is `None`, the whole server.
pub(crate) fn removes_mcp(rule: &RuleText, server: &str, tool: Option<&str>) -> bool {
    // Fails closed: a specifier has no meaning for an MCP tool, so it cannot narrow the rule.
    matches_mcp(rule, server, tool)
}

/// True if a rule matches this tool, with patterns in any part of the rule.
pub(crate) fn matches_mcp(rule: &RuleText, server: &str, tool: Option<&str>) -> bool {
    let pattern = Pattern::new(&rule.tool);
    let whole = |name: &str| {
        pattern.matches(&format!("{MCP_PREFIX}{name}"))
            || rule.tool == format!("{MCP_PREFIX}{name}__*")
    };
    name_variants(server).any(|server| {
        let by_tool = tool.is_some_and(|tool| {
            name_variants(tool)
                .any(|tool| pattern.matches(&format!("{MCP_PREFIX}{server}__{tool}")))
        });
        by_tool || whole(&server)
    })
}

/// A name as written, and as `claude` writes it in tool names.
/// `claude` replaces characters outside `[A-Za-z0-9_-]` by `_`.
fn name_variants(name: &str) -> impl Iterator<Item = String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let normal: String = name.chars().map(plain).collect();
    let differs = normal != name;
    std::iter::once(name.to_owned()).chain(differs.then_some(normal))
}
