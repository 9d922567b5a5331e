//! A subagent's question: which tools does its own file leave it?
//!
//! `agent.md` grants built-in tools and private servers, the gateway's rules grant shared ones; `tools`, `policy`
//! and `permissions.deny` only take away. The same functions make the lists and judge the calls.

use super::builtins::{KNOWN_BUILTINS, is_builtin_name, names_of, reaches_agents};
use super::evaluation::{Asked, Decision, Evaluation, Rule, What, quoted};
use super::gateway::evaluate;
use super::pattern::Pattern;
use super::permission::{self, denies_builtin};
use super::rules::GatewayRules;
use crate::catalog::{Agent, RuleText, ServerEntry, ServerLaunch, ToolRef};

/// The built-in tools that exist for an agent, as `--tools` takes them; sorted, none twice.
pub fn builtin_tools(agent: &Agent) -> Vec<String> {
    let listed = agent.tools.iter().flatten().flat_map(named_builtins);
    let permitted = permitting(agent).map(|(_, rule)| rule.tool.clone());
    let mut tools: Vec<String> =
        listed.chain(permitted).filter(|tool| judge_builtin(agent, tool).is_allowed()).collect();
    tools.sort_unstable();
    tools.dedup();
    tools
}

fn named_builtins(tool: &ToolRef) -> Vec<String> {
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

/// May the agent use this built-in tool at all? (What it may do with it is Claude Code's own rules.)
pub fn judge_builtin(agent: &Agent, tool: &str) -> Evaluation {
    let asked = Asked { agent: agent.name.as_str(), what: What::Builtin(tool) };
    let say = |decision, place: String, because: &str| {
        let rule = Rule::new(Some(&agent.file), place);
        Evaluation::new(&asked, decision, rule, because)
    };
    if !is_builtin_name(tool) {
        return say(Decision::Deny, "tools".to_owned(), "no built-in tool can have that name");
    }
    if let Some((place, because)) = builtin_taken_away(agent, tool) {
        return say(Decision::Deny, place, &because);
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

fn builtin_taken_away(agent: &Agent, tool: &str) -> Option<(String, String)> {
    if let Some((index, written)) = find_builtin(&agent.policy.tools_exclude, tool) {
        let because = format!("{} is excluded", quoted(&written.to_string()));
        return Some((format!("policy.tools.exclude[{index}]"), because));
    }
    if let Some((index, rule)) = find(&agent.permissions.deny, |rule| denies_builtin(rule, tool)) {
        let because = format!("{} is denied", quoted(&rule.to_string()));
        return Some((format!("permissions.deny[{index}]"), because));
    }
    let allowed = agent.policy.tools_allowed.as_ref()?;
    let because = "`policy.tools.allowed` does not have it".to_owned();
    find_builtin(allowed, tool).is_none().then(|| ("policy.tools.allowed".to_owned(), because))
}

/// The place that grants a built-in tool.
fn builtin_grant(agent: &Agent, tool: &str) -> Option<String> {
    let listed = find(agent.tools.as_deref().unwrap_or_default(), |listed| match listed {
        ToolRef::Builtin(name) => grants_builtin(&Pattern::new(name), tool),
        ToolRef::Mcp { .. } => false,
    });
    if let Some((index, _)) = listed {
        return Some(format!("tools[{index}]"));
    }
    if reaches_agents(tool) {
        return None;
    }
    permitting(agent)
        .find(|(_, rule)| names_of(tool).any(|name| name == rule.tool))
        .map(|(place, _)| place)
}

fn grants_builtin(pattern: &Pattern, tool: &str) -> bool {
    if pattern.is_literal() {
        names_of(tool).any(|name| pattern.matches(name))
    } else {
        KNOWN_BUILTINS.contains(&tool) && pattern.matches(tool)
    }
}

/// `permissions.allow` and `permissions.ask`: what is named there exists.
fn permitting(agent: &Agent) -> impl Iterator<Item = (String, &RuleText)> {
    let lists = [("allow", &agent.permissions.allow), ("ask", &agent.permissions.ask)];
    lists.into_iter().flat_map(|(name, rules)| {
        let place = move |index| format!("permissions.{name}[{index}]");
        rules.iter().enumerate().map(move |(index, rule)| (place(index), rule))
    })
}

fn find_builtin<'a>(tools: &'a [ToolRef], tool: &str) -> Option<(usize, &'a ToolRef)> {
    find(tools, |written| match written {
        ToolRef::Builtin(name) => {
            let pattern = Pattern::new(name);
            names_of(tool).any(|name| pattern.matches(name))
        }
        ToolRef::Mcp { .. } => false,
    })
}

/// May the agent use this MCP server? `rules` are the gateway's, for shared servers.
pub fn judge_server(agent: &Agent, server: &str, rules: Option<&GatewayRules>) -> Evaluation {
    judge_mcp(agent, server, None, rules)
}

/// May the agent call this tool of this MCP server? `rules` are the gateway's, for shared servers.
pub fn judge_mcp_tool(
    agent: &Agent,
    server: &str,
    tool: &str,
    rules: Option<&GatewayRules>,
) -> Evaluation {
    judge_mcp(agent, server, Some(tool), rules)
}

/// Whether a person has to be asked before this tool is called.
///
/// `permissions.ask` asks always; otherwise `trust: true` or a rule in `permissions.allow` is an approval.
pub fn needs_approval(agent: &Agent, server: &str, tool: &str) -> bool {
    let fits = |rule: &RuleText| permission::covers(rule, server, tool);
    if agent.permissions.ask.iter().any(|rule| permission::touches(rule, server, Some(tool))) {
        return true;
    }
    let trusted = agent.policy.trusted_servers.iter().any(|name| name == server);
    let others = || agent.servers.iter().map(|entry| entry.name.as_str());
    let approved = || {
        agent
            .permissions
            .allow
            .iter()
            .any(|rule| fits(rule) && !permission::is_ambiguous(rule, server, others()))
    };
    !trusted && !approved()
}

fn judge_mcp(
    agent: &Agent,
    server: &str,
    tool: Option<&str>,
    rules: Option<&GatewayRules>,
) -> Evaluation {
    let what = tool.map_or(What::Server(server), |tool| What::Tool { server, tool });
    let asked = Asked { agent: agent.name.as_str(), what };
    let say = |decision, (place, because): (String, String)| {
        let rule = Rule::new(Some(&agent.file), place);
        Evaluation::new(&asked, decision, rule, &because)
    };
    let Some(entry) = agent.servers.iter().find(|entry| entry.name == server) else {
        let because = "its file declares no server of that name".to_owned();
        return say(Decision::Deny, ("mcp_servers".to_owned(), because));
    };
    if let Some(taken) =
        server_taken_away(agent, server).or_else(|| mcp_taken_away(agent, server, tool))
    {
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

/// A literal name in `excluded` beats all, one in `allowed` beats a pattern in `excluded`.
fn server_taken_away(agent: &Agent, server: &str) -> Option<(String, String)> {
    let excluded = best(&agent.policy.mcp_excluded, server);
    let allowed = agent.policy.mcp_allowed.as_deref().map(|allowed| best(allowed, server));
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

/// The entry that fits, a literal one before a pattern, and whether it is literal.
fn best(names: &[String], server: &str) -> Option<(usize, bool)> {
    let literal = find(names, |name| name == server);
    let pattern = || find(names, |name| Pattern::new(name).matches(server));
    literal.map(|(index, _)| (index, true)).or_else(|| pattern().map(|(index, _)| (index, false)))
}

/// What `permissions.deny`, `tools` and `policy.tools` take away; without a tool, only what takes the whole server.
fn mcp_taken_away(agent: &Agent, server: &str, tool: Option<&str>) -> Option<(String, String)> {
    if let Some((index, written)) = find(&agent.policy.tools_exclude, |t| excludes(t, server, tool))
    {
        let because = format!("{} is excluded", quoted(&written.to_string()));
        return Some((format!("policy.tools.exclude[{index}]"), because));
    }
    let denied = find(&agent.permissions.deny, |rule| permission::denies(rule, server, tool));
    if let Some((index, rule)) = denied {
        let because = format!("{} is denied", quoted(&rule.to_string()));
        return Some((format!("permissions.deny[{index}]"), because));
    }
    let lists = [
        ("tools", agent.tools.as_deref()),
        ("policy.tools.allowed", agent.policy.tools_allowed.as_deref()),
    ];
    lists.into_iter().find_map(|(name, list)| {
        let missing = find(list?, |written| lists_tool(written, server, tool)).is_none();
        missing.then(|| (name.to_owned(), format!("`{name}` is given and does not list it")))
    })
}

fn excludes(written: &ToolRef, server: &str, tool: Option<&str>) -> bool {
    let ToolRef::Mcp { server: servers, tool: tools } = written else { return false };
    let takes_tool = match tool {
        Some(tool) => Pattern::new(tools).matches(tool),
        None => tools == "*",
    };
    takes_tool && Pattern::new(servers).matches(server)
}

fn lists_tool(written: &ToolRef, server: &str, tool: Option<&str>) -> bool {
    let ToolRef::Mcp { server: servers, tool: tools } = written else { return false };
    Pattern::new(servers).matches(server)
        && tool.is_none_or(|tool| Pattern::new(tools).matches(tool))
}

fn private_grant(agent: &Agent, entry: &ServerEntry, tool: Option<&str>) -> (String, String) {
    let listed = find(agent.tools.as_deref().unwrap_or_default(), |written| {
        lists_tool(written, &entry.name, tool)
    });
    match listed {
        Some((index, written)) => {
            (format!("tools[{index}]"), format!("{} is listed", quoted(&written.to_string())))
        }
        None => (format!("mcp_servers.{}", entry.name), "the server is its own".to_owned()),
    }
}

fn find<T>(items: &[T], mut fits: impl FnMut(&T) -> bool) -> Option<(usize, &T)> {
    items.iter().enumerate().find(|(_, item)| fits(item))
}

#[cfg(test)]
#[path = "agent_decision_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "agent_decision_properties.rs"]
mod properties;
