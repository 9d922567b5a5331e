//! Gateway rules, validated and compiled: servers and tools that each agent may use.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::gateway_rules_parse;
use super::verdict::Rule;
use crate::util::{Pattern, nearest_names};

/// Validated content of `.mcp-gateway-rules.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRules {
    pub(crate) file: Arc<Path>,
    pub(crate) agents: BTreeMap<String, AgentRules>,
    /// Denies calls without an agent name. Default true.
    pub deny_on_missing_agent: bool,
}

/// Rules of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentRules {
    pub(crate) rule: Rule,
    pub(crate) allow: RuleSection,
    pub(crate) deny: RuleSection,
}

/// `allow` or `deny` of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSection {
    pub(crate) servers: Vec<RuleEntry>,
    pub(crate) tools: Vec<ToolRules>,
}

/// `tools.<server>`; the key may be a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolRules {
    pub(crate) server: RuleEntry,
    pub(crate) tools: Vec<RuleEntry>,
}

/// Name or pattern with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleEntry {
    pub(crate) pattern: Pattern,
    pub(crate) rule: Rule,
}

/// Error or warning about a rules file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleProblem {
    pub file: Arc<Path>,
    /// Path in the file; empty for the whole file.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// One line.
    pub message: String,
    pub help: Option<String>,
}

/// A finding that does not change any permission.
pub(crate) type RuleWarning = RuleProblem;

impl RuleProblem {
    /// Formats as `FILE:LINE: message; help`.
    pub fn located(&self) -> impl fmt::Display {
        let help = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{}:{}: {}{help}", self.file.display(), self.line, self.message)
    }
}

impl GatewayRules {
    /// Parses a rules file.
    /// Unknown keys and wrong types are errors, so that a typo never widens permissions.
    pub fn parse(text: &str, file: &Path) -> Result<(Self, Vec<RuleWarning>), Vec<RuleProblem>> {
        gateway_rules_parse::parse(text, &Arc::from(file))
    }

    /// Returns rules that deny everything; used for a missing or deleted file.
    pub fn deny_all(file: &Path) -> Self {
        Self { file: Arc::from(file), agents: BTreeMap::new(), deny_on_missing_agent: true }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.contains_key(agent)
    }

    /// Returns all agents with an entry, in alphabetical order.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns all literal server names, sorted; patterns are left out.
    pub fn named_servers(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.server_entries().map(|entry| entry.pattern.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns all literal tool names for a server in any agent's rules, sorted; patterns are left out.
    pub fn named_tools<'a>(&'a self, server: &'a str) -> Vec<&'a str> {
        let literal = |name: &&str| Pattern::new(name).is_literal();
        let mut names: Vec<&str> = self.tool_patterns(server).filter(literal).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns all tool names and patterns for a server in any agent's rules, as written.
    pub fn tool_patterns<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a str> {
        self.sections()
            .flat_map(|section| &section.tools)
            .filter(move |list| list.server.pattern.matches(server))
            .flat_map(|list| &list.tools)
            .map(|entry| entry.pattern.as_str())
    }

    fn sections(&self) -> impl Iterator<Item = &RuleSection> {
        self.agents.values().flat_map(|agent| [&agent.allow, &agent.deny])
    }

    fn server_entries(&self) -> impl Iterator<Item = &RuleEntry> {
        self.sections()
            .flat_map(|section| {
                section.servers.iter().chain(section.tools.iter().map(|list| &list.server))
            })
            .filter(|entry| entry.pattern.is_literal())
    }
}

/// Returns a warning for every literal server name in the rules that is not configured.
pub(crate) fn unknown_servers<'a>(
    rules: &GatewayRules,
    servers: impl IntoIterator<Item = &'a str>,
) -> Vec<RuleWarning> {
    let servers: Vec<&str> = servers.into_iter().collect();
    rules
        .server_entries()
        .filter(|entry| !servers.contains(&entry.pattern.as_str()))
        .map(|entry| unknown_server(rules, entry, &servers))
        .collect()
}

fn unknown_server(rules: &GatewayRules, entry: &RuleEntry, servers: &[&str]) -> RuleWarning {
    let name = entry.pattern.as_str();
    let near = nearest_names(name, servers.iter().copied());
    RuleProblem {
        file: Arc::clone(&rules.file),
        path: entry.rule.path.to_string(),
        line: entry.rule.line.unwrap_or(1),
        message: format!("the rules name server `{name}`, which is not configured"),
        help: near.first().map(|near| format!("did you mean `{near}`?")),
    }
}

#[cfg(test)]
#[path = "gateway_rules_tests.rs"]
mod tests;
