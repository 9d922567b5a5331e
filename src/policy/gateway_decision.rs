//! Evaluation of the gateway rules for one agent and a server or tool.
//!
//! Precedence: explicit deny, wildcard deny, explicit allow, wildcard allow, implicit grant, deny. Every deny is
//! checked before any allow.

use super::gateway_rules::{AgentRules, GatewayRules, RuleEntry, RuleSection};
use super::verdict::{AccessRequest, Decision, Resource, Rule, Verdict, quote};

/// Evaluates one request; `tool` is `None` for access to the server itself.
pub fn evaluate(rules: &GatewayRules, agent: &str, server: &str, tool: Option<&str>) -> Verdict {
    let what = tool.map_or(Resource::Server(server), |tool| Resource::Tool { server, tool });
    let asked = AccessRequest { agent, resource: what };
    let Some(own) = rules.agents.get(agent) else {
        let rule = Rule { file: Some(rules.file.clone()), path: "agents".into(), line: None };
        let because = "the rules have no entry for this agent";
        return Verdict::new(&asked, Decision::Deny, rule, because);
    };
    let (decision, rule, because) = evaluate_agent_rules(own, server, tool);
    Verdict::new(&asked, decision, rule.clone(), &because)
}

type GatewayVerdict<'a> = (Decision, &'a Rule, String);

fn evaluate_agent_rules<'a>(
    own: &'a AgentRules,
    server: &str,
    tool: Option<&str>,
) -> GatewayVerdict<'a> {
    if let Some(entry) = find_denying_entry(&own.deny, server, tool) {
        return (Decision::Deny, &entry.rule, explain_match("denied", entry));
    }
    let Some(granted) = best_match(own.allow.servers.iter(), server) else {
        return (Decision::Deny, &own.rule, "no rule allows the server".to_owned());
    };
    match tool {
        None => (Decision::Allow, &granted.rule, explain_match("allowed", granted)),
        Some(tool) => evaluate_tool(own, granted, server, tool),
    }
}

fn evaluate_tool<'a>(
    own: &'a AgentRules,
    granted: &'a RuleEntry,
    server: &str,
    tool: &str,
) -> GatewayVerdict<'a> {
    if let Some(entry) = best_match(tool_entries(&own.allow, server), tool) {
        return (Decision::Allow, &entry.rule, explain_match("allowed", entry));
    }
    let mut lists = own.allow.tools.iter().filter(|list| list.server.pattern.matches(server));
    if let Some(list) = lists.next() {
        let because = "the list of allowed tools does not have it";
        return (Decision::Deny, &list.server.rule, because.to_owned());
    }
    let because = "its server is allowed and no list narrows its tools";
    (Decision::Allow, &granted.rule, because.to_owned())
}

/// Returns the entry that denies, an explicit one before any wildcard, across servers and tools.
fn find_denying_entry<'a>(
    deny: &'a RuleSection,
    server: &str,
    tool: Option<&str>,
) -> Option<&'a RuleEntry> {
    let by_server = best_match(deny.servers.iter(), server);
    let by_tool = tool.and_then(|tool| best_match(tool_entries(deny, server), tool));
    match (by_server, by_tool) {
        (Some(by_server), Some(by_tool)) => {
            let tool_is_explicit = by_tool.pattern.is_literal() && !by_server.pattern.is_literal();
            Some(if tool_is_explicit { by_tool } else { by_server })
        }
        (by_server, by_tool) => by_server.or(by_tool),
    }
}

fn tool_entries<'a>(
    section: &'a RuleSection,
    server: &str,
) -> impl Iterator<Item = &'a RuleEntry> + Clone {
    section
        .tools
        .iter()
        .filter(move |list| list.server.pattern.matches(server))
        .flat_map(|list| &list.tools)
}

/// Returns the literal entry that matches, or else the first pattern that does.
fn best_match<'a>(
    entries: impl Iterator<Item = &'a RuleEntry> + Clone,
    name: &str,
) -> Option<&'a RuleEntry> {
    let fitting = entries.filter(|entry| entry.pattern.matches(name));
    fitting.clone().find(|entry| entry.pattern.is_literal()).or_else(|| fitting.clone().next())
}

fn explain_match(verb: &str, entry: &RuleEntry) -> String {
    if entry.pattern.is_literal() {
        format!("it is {verb} by name")
    } else {
        format!("it is {verb} by the pattern {}", quote(entry.pattern.as_str()))
    }
}

#[cfg(test)]
#[path = "gateway_decision_tests.rs"]
mod tests;
