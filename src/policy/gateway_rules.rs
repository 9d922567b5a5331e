//! The gateway's rules, checked and compiled: who may use which server and tool.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::evaluation::Rule;
use super::pattern::Pattern;
use super::rules_file;
use crate::base::nearest;

/// The checked content of `.mcp-gateway-rules.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRules {
    pub(super) file: Arc<Path>,
    pub(super) agents: BTreeMap<String, AgentRules>,
    /// Whether a call that names no agent is refused; true unless the file says otherwise.
    pub deny_on_missing_agent: bool,
}

/// One agent's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentRules {
    pub(super) rule: Rule,
    pub(super) allow: Section,
    pub(super) deny: Section,
}

/// `allow` or `deny`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) servers: Vec<Entry>,
    pub(super) tools: Vec<ToolList>,
}

/// `tools.<server>`: the key may be a pattern too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolList {
    pub(super) server: Entry,
    pub(super) tools: Vec<Entry>,
}

/// One name or pattern, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pattern: Pattern,
    pub(super) rule: Rule,
}

/// Something wrong, or merely odd, in a rules file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleProblem {
    /// The file.
    pub file: Arc<Path>,
    /// Where in it, as a path; empty for the whole file.
    pub path: String,
    /// Counted from one.
    pub line: u32,
    /// What is wrong, one line.
    pub message: String,
    /// What to do, if that is known.
    pub help: Option<String>,
}

/// Odd, but nothing that changes a right.
pub type Warning = RuleProblem;

impl RuleProblem {
    /// `FILE:LINE: message; help`.
    pub fn located(&self) -> impl fmt::Display {
        let help = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{}:{}: {}{help}", self.file.display(), self.line, self.message)
    }
}

impl GatewayRules {
    /// Reads the text of a rules file. A typo is a problem, never a right more.
    pub fn parse(text: &str, file: &Path) -> Result<(Self, Vec<Warning>), Vec<RuleProblem>> {
        rules_file::parse(text, &Arc::from(file))
    }

    /// Rules under which nobody may do anything: what a missing or deleted file means.
    pub fn deny_all(file: &Path) -> Self {
        Self { file: Arc::from(file), agents: BTreeMap::new(), deny_on_missing_agent: true }
    }

    /// The file they were read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether there is an entry for this agent.
    pub fn knows(&self, agent: &str) -> bool {
        self.agents.contains_key(agent)
    }

    /// Every agent with an entry, in alphabetical order.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Server names that are written out somewhere, sorted; patterns are left out.
    pub fn named_servers(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.server_entries().map(|entry| entry.pattern.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Tool names that are written out for a server by any agent's rules, sorted; patterns are left out.
    pub fn named_tools<'a>(&'a self, server: &'a str) -> Vec<&'a str> {
        let literal = |name: &&str| Pattern::new(name).is_literal();
        let mut names: Vec<&str> = self.tool_patterns(server).filter(literal).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Tool names and patterns that any agent's rules have for a server, as they are written.
    pub fn tool_patterns<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a str> {
        self.sections()
            .flat_map(|section| &section.tools)
            .filter(move |list| list.server.pattern.matches(server))
            .flat_map(|list| &list.tools)
            .map(|entry| entry.pattern.as_str())
    }

    fn sections(&self) -> impl Iterator<Item = &Section> {
        self.agents.values().flat_map(|agent| [&agent.allow, &agent.deny])
    }

    fn server_entries(&self) -> impl Iterator<Item = &Entry> {
        self.sections()
            .flat_map(|section| {
                section.servers.iter().chain(section.tools.iter().map(|list| &list.server))
            })
            .filter(|entry| entry.pattern.is_literal())
    }
}

/// A warning for every server that the rules name and that does not exist.
pub fn unknown_servers<'a>(
    rules: &GatewayRules,
    servers: impl IntoIterator<Item = &'a str>,
) -> Vec<Warning> {
    let servers: Vec<&str> = servers.into_iter().collect();
    rules
        .server_entries()
        .filter(|entry| !servers.contains(&entry.pattern.as_str()))
        .map(|entry| unknown_server(rules, entry, &servers))
        .collect()
}

fn unknown_server(rules: &GatewayRules, entry: &Entry, servers: &[&str]) -> Warning {
    let name = entry.pattern.as_str();
    let near = nearest(name, servers.iter().copied());
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
