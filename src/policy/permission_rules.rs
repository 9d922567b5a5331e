//! What Claude Code's permission rules say about whole tools; what stands in parentheses is for `claude` to judge.

use super::builtins::names_of;
use super::pattern::Pattern;
use crate::catalog::RuleText;

/// How the names of MCP tools begin: `mcp__server__tool`.
pub(super) const MCP_PREFIX: &str = "mcp__";

/// Whether a rule in `deny` takes a whole built-in tool away: `Bash` and `Bash(*)` do, `Bash(rm:*)` does not.
pub(super) fn denies_builtin(rule: &RuleText, tool: &str) -> bool {
    let whole = matches!(rule.specifier.as_deref(), None | Some("" | "*" | ":*" | "**"));
    let pattern = Pattern::new(&rule.tool);
    whole && names_of(tool).any(|name| pattern.matches(name))
}

/// Whether a rule in `deny` takes this tool away, or without a tool the whole server.
pub(super) fn denies(rule: &RuleText, server: &str, tool: Option<&str>) -> bool {
    // In doubt it is denied: a specifier has no meaning for an MCP tool, so it cannot narrow the rule.
    touches(rule, server, tool)
}

/// Whether a rule speaks of this tool, patterns anywhere in it included.
pub(super) fn touches(rule: &RuleText, server: &str, tool: Option<&str>) -> bool {
    let pattern = Pattern::new(&rule.tool);
    let whole = |name: &str| {
        pattern.matches(&format!("{MCP_PREFIX}{name}"))
            || rule.tool == format!("{MCP_PREFIX}{name}__*")
    };
    spellings(server).any(|server| {
        let by_tool = tool.is_some_and(|tool| {
            spellings(tool).any(|tool| pattern.matches(&format!("{MCP_PREFIX}{server}__{tool}")))
        });
        by_tool || whole(&server)
    })
}

/// Whether a rule in `allow` approves this tool: its server stands there by name, and nothing in parentheses.
pub(super) fn covers(rule: &RuleText, server: &str, tool: &str) -> bool {
    rule.specifier.is_none()
        && spellings(server).any(|server| {
            let own = format!("{MCP_PREFIX}{server}");
            let by_name = rule.tool.strip_prefix(&format!("{own}__"));
            let fits =
                |written: &str| spellings(tool).any(|tool| Pattern::new(written).matches(&tool));
            rule.tool == own || by_name.is_some_and(fits)
        })
}

/// Whether a rule could as well be meant for a tool of another server: `mcp__a__b` is a tool of `a` or the server `a__b`.
pub(super) fn is_ambiguous<'a>(
    rule: &RuleText,
    server: &str,
    mut servers: impl Iterator<Item = &'a str>,
) -> bool {
    servers.any(|other| {
        other != server
            && (rule.tool == format!("{MCP_PREFIX}{other}")
                || rule.tool.starts_with(&format!("{MCP_PREFIX}{other}__")))
    })
}

/// A name as written, and as `claude` writes it in a tool's name: other characters become `_`.
fn spellings(name: &str) -> impl Iterator<Item = String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let normal: String = name.chars().map(plain).collect();
    let differs = normal != name;
    std::iter::once(name.to_owned()).chain(differs.then_some(normal))
}
