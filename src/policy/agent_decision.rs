//! Evaluation of an agent's own file: the tools and servers that it leaves to the agent.
//!
//! `agent.md` grants built-in tools and private servers, the gateway rules grant shared servers; `tools`, `policy` and
//! `permissions.deny` only remove. Tool lists and calls are evaluated by the same functions.

use super::builtin_tools::{KNOWN_BUILTINS, all_names, is_builtin_name, reaches_agents};
use super::gateway_decision::evaluate;
use super::gateway_rules::GatewayRules;
use super::permission_rules;
use super::permission_rules::removes_builtin;
use super::verdict::{AccessRequest, Decision, Resource, Rule, Verdict, quote};
use crate::catalog::{Agent, RuleText, ServerEntry, ServerLaunch, ToolRef};
use crate::util::Pattern;

/// Returns the built-in tools of an agent in the form `--tools` takes, sorted, without duplicates.
pub(crate) fn builtin_tools(agent: &Agent) -> Vec<String> {
    let listed = agent.tools.iter().flatten().flat_map(expand_builtins);
    let permitted = permission_grants(agent).map(|(_, rule)| rule.tool.clone());
    let mut tools: Vec<String> =
        listed.chain(permitted).filter(|tool| evaluate_builtin(agent, tool).is_allowed()).collect();
    tools.sort_unstable();
    tools.dedup();
    tools
}

fn expand_builtins(tool: &ToolRef) -> Vec<String> {
    let ToolRef::Builtin(name) = tool else { return Vec::new() };
    let pattern = Pattern::new(name);
    if pattern.is_literal() {
        return vec![name.clone()];
    }
    KNOWN_BUILTINS
        .iter()
        .filter(|known| pattern.matches(known))
        .map(|known| (*known).to_owned())
        .collect()
}

/// Evaluates access to a built-in tool as a whole. Claude Code's own rules decide on its arguments.
pub(crate) fn evaluate_builtin(agent: &Agent, tool: &str) -> Verdict {
    let asked = AccessRequest { agent: agent.name.as_str(), resource: Resource::Builtin(tool) };
    let say = |decision, place: String, because: &str| {
        let rule = Rule::new(Some(&agent.file), place);
        Verdict::new(&asked, decision, rule, because)
    };
    if !is_builtin_name(tool) {
        return say(Decision::Deny, "tools".to_owned(), "no built-in tool can have that name");
    }
    if let Some((path, because)) = builtin_denial(agent, tool) {
        return say(Decision::Deny, path, &because);
    }
    match builtin_grant(agent, tool) {
        Some(place) => say(Decision::Allow, place, "it is granted by name or pattern"),
        None if reaches_agents(tool) => {
            let because = "a tool that reaches other agents exists only where `tools` names it";
            say(Decision::Deny, "tools".to_owned(), because)
        }
        None => {
            let because = "neither `tools` nor `permissions.allow` grants it";
            say(Decision::Deny, "tools".to_owned(), because)
        }
    }
}

fn builtin_denial(agent: &Agent, tool: &str) -> Option<(String, String)> {
    if let Some((index, written)) = find_builtin(&agent.policy.tools_exclude, tool) {
        let because = format!("{} is excluded", quote(&written.to_string()));
        return Some((format!("policy.tools.exclude[{index}]"), because));
    }
    if let Some((index, rule)) =
        find_indexed(&agent.permissions.deny, |rule| removes_builtin(rule, tool))
    {
        let because = format!("{} is denied", quote(&rule.to_string()));
        return Some((format!("permissions.deny[{index}]"), because));
    }
    let allowed = agent.policy.tools_allowed.as_ref()?;
    let because = "`policy.tools.allowed` does not have it".to_owned();
    find_builtin(allowed, tool).is_none().then(|| ("policy.tools.allowed".to_owned(), because))
}

/// Returns the path of the setting that grants a built-in tool.
fn builtin_grant(agent: &Agent, tool: &str) -> Option<String> {
    let listed = find_indexed(agent.tools.as_deref().unwrap_or_default(), |listed| match listed {
        ToolRef::Builtin(name) => grants_builtin(&Pattern::new(name), tool),
        ToolRef::Mcp { .. } => false,
    });
    if let Some((index, _)) = listed {
        return Some(format!("tools[{index}]"));
    }
    if reaches_agents(tool) {
        return None;
    }
    permission_grants(agent)
        .find(|(_, rule)| all_names(tool).any(|name| name == rule.tool))
        .map(|(place, _)| place)
}

fn grants_builtin(pattern: &Pattern, tool: &str) -> bool {
    if pattern.is_literal() {
        all_names(tool).any(|name| pattern.matches(name))
    } else {
        KNOWN_BUILTINS.contains(&tool) && pattern.matches(tool)
    }
}

/// Rules of `permissions.allow` and `permissions.ask` with their paths; a tool named there is granted.
fn permission_grants(agent: &Agent) -> impl Iterator<Item = (String, &RuleText)> {
    let lists = [("allow", &agent.permissions.allow), ("ask", &agent.permissions.ask)];
    lists.into_iter().flat_map(|(name, rules)| {
        let place = move |index| format!("permissions.{name}[{index}]");
        rules.iter().enumerate().map(move |(index, rule)| (place(index), rule))
    })
}

fn find_builtin<'a>(tools: &'a [ToolRef], tool: &str) -> Option<(usize, &'a ToolRef)> {
    find_indexed(tools, |written| match written {
        ToolRef::Builtin(name) => {
            let pattern = Pattern::new(name);
            all_names(tool).any(|name| pattern.matches(name))
        }
        ToolRef::Mcp { .. } => false,
    })
}

/// Evaluates access to an MCP server. `rules` are the gateway rules and apply to shared servers.
pub(crate) fn evaluate_server(
    agent: &Agent,
    server: &str,
    rules: Option<&GatewayRules>,
) -> Verdict {
    evaluate_mcp(agent, server, None, rules)
}

/// Evaluates a call of an MCP tool. `rules` are the gateway rules and apply to shared servers.
pub(crate) fn evaluate_mcp_tool(
    agent: &Agent,
    server: &str,
    tool: &str,
    rules: Option<&GatewayRules>,
) -> Verdict {
    evaluate_mcp(agent, server, Some(tool), rules)
}

fn evaluate_mcp(
    agent: &Agent,
    server: &str,
    tool: Option<&str>,
    rules: Option<&GatewayRules>,
) -> Verdict {
    let what = tool.map_or(Resource::Server(server), |tool| Resource::Tool { server, tool });
    let asked = AccessRequest { agent: agent.name.as_str(), resource: what };
    let say = |decision, (place, because): (String, String)| {
        let rule = Rule::new(Some(&agent.file), place);
        Verdict::new(&asked, decision, rule, &because)
    };
    let Some(entry) = agent.servers.iter().find(|entry| entry.name == server) else {
        let because = "its file declares no server of that name".to_owned();
        return say(Decision::Deny, ("mcp_servers".to_owned(), because));
    };
    if let Some(taken) = server_denial(agent, server).or_else(|| mcp_denial(agent, server, tool)) {
        return say(Decision::Deny, taken);
    }
    match (&entry.launch, rules) {
        (ServerLaunch::Stdio { .. } | ServerLaunch::Http { .. }, _) => {
            say(Decision::Allow, private_grant(agent, entry, tool))
        }
        (ServerLaunch::Shared, Some(rules)) => evaluate(rules, agent.name.as_str(), server, tool),
        (ServerLaunch::Shared, None) => {
            let because =
                "it is a shared server and there are no gateway rules that grant it".to_owned();
            say(Decision::Deny, (format!("mcp_servers.{server}"), because))
        }
    }
}

/// Precedence: literal name in `excluded`, literal name in `allowed`, pattern in `excluded`.
fn server_denial(agent: &Agent, server: &str) -> Option<(String, String)> {
    let excluded = best_match(&agent.policy.mcp_excluded, server);
    let allowed = agent.policy.mcp_allowed.as_deref().map(|allowed| best_match(allowed, server));
    let literally_allowed = matches!(allowed, Some(Some((_, true))));
    match excluded {
        Some((index, literal)) if literal || !literally_allowed => {
            let because = "its server is excluded".to_owned();
            return Some((format!("policy.mcp.excluded[{index}]"), because));
        }
        Some(_) | None => {}
    }
    let because = || "`policy.mcp.allowed` does not have its server".to_owned();
    matches!(allowed, Some(None)).then(|| ("policy.mcp.allowed".to_owned(), because()))
}

/// Returns the index of the matching entry and if it is literal; literals take precedence.
fn best_match(names: &[String], server: &str) -> Option<(usize, bool)> {
    let literal = find_indexed(names, |name| name == server);
    let pattern = || find_indexed(names, |name| Pattern::new(name).matches(server));
    literal.map(|(index, _)| (index, true)).or_else(|| pattern().map(|(index, _)| (index, false)))
}

/// Denial by `permissions.deny`, `tools` or `policy.tools`.
/// If `tool` is `None`, only entries for the whole server count.
fn mcp_denial(agent: &Agent, server: &str, tool: Option<&str>) -> Option<(String, String)> {
    if let Some((index, written)) =
        find_indexed(&agent.policy.tools_exclude, |t| excludes_mcp(t, server, tool))
    {
        let because = format!("{} is excluded", quote(&written.to_string()));
        return Some((format!("policy.tools.exclude[{index}]"), because));
    }
    let denied = find_indexed(&agent.permissions.deny, |rule| {
        permission_rules::removes_mcp(rule, server, tool)
    });
    if let Some((index, rule)) = denied {
        let because = format!("{} is denied", quote(&rule.to_string()));
        return Some((format!("permissions.deny[{index}]"), because));
    }
    let lists = [
        ("tools", agent.tools.as_deref()),
        ("policy.tools.allowed", agent.policy.tools_allowed.as_deref()),
    ];
    lists.into_iter().find_map(|(name, list)| {
        let missing = find_indexed(list?, |written| lists_mcp(written, server, tool)).is_none();
        missing.then(|| (name.to_owned(), format!("`{name}` is given and does not list it")))
    })
}

fn excludes_mcp(written: &ToolRef, server: &str, tool: Option<&str>) -> bool {
    let ToolRef::Mcp { server: servers, tool: tools } = written else { return false };
    let takes_tool = match tool {
        Some(tool) => Pattern::new(tools).matches(tool),
        None => tools == "*",
    };
    takes_tool && Pattern::new(servers).matches(server)
}

fn lists_mcp(written: &ToolRef, server: &str, tool: Option<&str>) -> bool {
    let ToolRef::Mcp { server: servers, tool: tools } = written else { return false };
    Pattern::new(servers).matches(server)
        && tool.is_none_or(|tool| Pattern::new(tools).matches(tool))
}

fn private_grant(agent: &Agent, entry: &ServerEntry, tool: Option<&str>) -> (String, String) {
    let listed = find_indexed(agent.tools.as_deref().unwrap_or_default(), |written| {
        lists_mcp(written, &entry.name, tool)
    });
    match listed {
        Some((index, written)) => {
            (format!("tools[{index}]"), format!("{} is listed", quote(&written.to_string())))
        }
        None => (format!("mcp_servers.{}", entry.name), "the server is its own".to_owned()),
    }
}

fn find_indexed<T>(items: &[T], mut fits: impl FnMut(&T) -> bool) -> Option<(usize, &T)> {
    items.iter().enumerate().find(|(_, item)| fits(item))
}

#[cfg(test)]
#[path = "agent_decision_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "agent_decision_properties.rs"]
mod properties;
