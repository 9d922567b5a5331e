//! The gateway's question: may this agent use this server, or this tool of it?
//!
//! Explicit deny → wildcard deny → explicit allow → wildcard allow → implicit grant → deny.
//! Every deny is looked at before any allow.

use super::evaluation::{Asked, Decision, Evaluation, Rule, What, quoted};
use super::rules::{AgentRules, Entry, GatewayRules, Section};

/// Judges one request; `tool` is `None` where only the server is asked for.
pub fn evaluate(rules: &GatewayRules, agent: &str, server: &str, tool: Option<&str>) -> Evaluation {
    let what = tool.map_or(What::Server(server), |tool| What::Tool { server, tool });
    let asked = Asked { agent, what };
    let Some(own) = rules.agents.get(agent) else {
        let rule = Rule { file: Some(rules.file.clone()), path: "agents".into(), line: None };
        let because = "the rules have no entry for this agent";
        return Evaluation::new(&asked, Decision::Deny, rule, because);
    };
    let (decision, rule, because) = judge(own, server, tool);
    Evaluation::new(&asked, decision, rule.clone(), &because)
}

type Verdict<'a> = (Decision, &'a Rule, String);

fn judge<'a>(own: &'a AgentRules, server: &str, tool: Option<&str>) -> Verdict<'a> {
    if let Some(entry) = denying(&own.deny, server, tool) {
        return (Decision::Deny, &entry.rule, said("denied", entry));
    }
    let Some(granted) = best(own.allow.servers.iter(), server) else {
        return (Decision::Deny, &own.rule, "no rule allows the server".to_owned());
    };
    match tool {
        None => (Decision::Allow, &granted.rule, said("allowed", granted)),
        Some(tool) => judge_tool(own, granted, server, tool),
    }
}

fn judge_tool<'a>(
    own: &'a AgentRules,
    granted: &'a Entry,
    server: &str,
    tool: &str,
) -> Verdict<'a> {
    if let Some(entry) = best(tool_entries(&own.allow, server), tool) {
        return (Decision::Allow, &entry.rule, said("allowed", entry));
    }
    let mut lists = own.allow.tools.iter().filter(|list| list.server.pattern.matches(server));
    if let Some(list) = lists.next() {
        let because = "the list of allowed tools does not have it";
        return (Decision::Deny, &list.server.rule, because.to_owned());
    }
    let because = "its server is allowed and no list narrows its tools";
    (Decision::Allow, &granted.rule, because.to_owned())
}

/// The entry that denies: an explicit one before any wildcard, wherever they stand.
fn denying<'a>(deny: &'a Section, server: &str, tool: Option<&str>) -> Option<&'a Entry> {
    let by_server = best(deny.servers.iter(), server);
    let by_tool = tool.and_then(|tool| best(tool_entries(deny, server), tool));
    match (by_server, by_tool) {
        (Some(by_server), Some(by_tool)) => {
            let tool_is_explicit = by_tool.pattern.is_literal() && !by_server.pattern.is_literal();
            Some(if tool_is_explicit { by_tool } else { by_server })
        }
        (by_server, by_tool) => by_server.or(by_tool),
    }
}

fn tool_entries<'a>(section: &'a Section, server: &str) -> impl Iterator<Item = &'a Entry> + Clone {
    section
        .tools
        .iter()
        .filter(move |list| list.server.pattern.matches(server))
        .flat_map(|list| &list.tools)
}

/// A literal name if one fits, else the first pattern that does.
fn best<'a>(entries: impl Iterator<Item = &'a Entry> + Clone, name: &str) -> Option<&'a Entry> {
    let fitting = entries.filter(|entry| entry.pattern.matches(name));
    fitting.clone().find(|entry| entry.pattern.is_literal()).or_else(|| fitting.clone().next())
}

fn said(verb: &str, entry: &Entry) -> String {
    if entry.pattern.is_literal() {
        format!("it is {verb} by name")
    } else {
        format!("it is {verb} by the pattern {}", quoted(entry.pattern.as_str()))
    }
}

#[cfg(test)]
#[path = "gateway_decision_tests.rs"]
mod tests;
