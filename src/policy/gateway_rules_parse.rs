//! Parser of a rules file; every rule and problem carries its line.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::gateway_rules::{
    AgentRules, GatewayRules, RuleEntry, RuleProblem, RuleSection, RuleWarning, ToolRules,
};
use super::verdict::Rule;
use crate::util::{
    Pattern, SpannedKind, SpannedMember, SpannedValue, nearest_names, parse_spanned_json,
};

/// Path in the rules file with its line.
#[derive(Clone, Debug)]
struct RulePath {
    path: String,
    line: u32,
}

impl RulePath {
    fn child_key(&self, member: &SpannedMember) -> Self {
        Self { path: join_key(&self.path, &member.key), line: member.line }
    }

    fn child_index(&self, index: usize, line: u32) -> Self {
        Self { path: format!("{}[{index}]", self.path), line }
    }
}

/// Appends a key to a path; keys outside `[A-Za-z0-9_-]` are quoted.
fn join_key(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match (!key.is_empty() && key.chars().all(plain), path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", serde_json::Value::from(key)),
    }
}

struct RulesReader<'a> {
    file: &'a Arc<Path>,
    problems: Vec<RuleProblem>,
    warnings: Vec<RuleWarning>,
}

pub(crate) fn parse(
    text: &str,
    file: &Arc<Path>,
) -> Result<(GatewayRules, Vec<RuleWarning>), Vec<RuleProblem>> {
    let mut reader = RulesReader { file, problems: Vec::new(), warnings: Vec::new() };
    let rules = match parse_spanned_json(text) {
        Ok(value) => reader.parse_rules(&value),
        Err(error) => {
            let place = RulePath { path: String::new(), line: error.line };
            let message = format!("this is no JSON: {} (column {})", error.message, error.column);
            reader.problem(&place, message, None);
            GatewayRules::deny_all(file)
        }
    };
    if reader.problems.is_empty() { Ok((rules, reader.warnings)) } else { Err(reader.problems) }
}

impl RulesReader<'_> {
    fn parse_rules(&mut self, value: &SpannedValue) -> GatewayRules {
        let root = RulePath { path: String::new(), line: value.line };
        let mut rules = GatewayRules::deny_all(self.file);
        // `$schema` is for editors and has no effect on permissions.
        for member in self.members(&root, value, Some(&["agents", "defaults", "$schema"])) {
            let place = root.child_key(member);
            match member.key.as_str() {
                "agents" => rules.agents = self.parse_agents(&place, &member.value),
                "defaults" => {
                    rules.deny_on_missing_agent = self.parse_defaults(&place, &member.value);
                }
                _ => {}
            }
        }
        rules
    }

    fn parse_defaults(&mut self, place: &RulePath, value: &SpannedValue) -> bool {
        let mut deny = true;
        for member in self.members(place, value, Some(&["deny_on_missing_agent"])) {
            match (member.key.as_str(), &member.value.kind) {
                ("deny_on_missing_agent", SpannedKind::Bool(given)) => deny = *given,
                ("deny_on_missing_agent", other) => {
                    self.wrong_type(&place.child_key(member), "true or false", other);
                }
                _ => {}
            }
        }
        deny
    }

    fn parse_agents(
        &mut self,
        place: &RulePath,
        value: &SpannedValue,
    ) -> BTreeMap<String, AgentRules> {
        let mut agents = BTreeMap::new();
        for member in self.members(place, value, None) {
            let place = place.child_key(member);
            let agent = self.parse_agent(&place, &member.value);
            if is_agent_id(&member.key) {
                agents.insert(member.key.clone(), agent);
            } else {
                let message =
                    format!("nobody can be called `{}`: this entry does nothing", member.key);
                let help = "an agent id has letters, digits, `_`, `.` and `-`, and is no pattern";
                self.warning(&place, message, Some(help.to_owned()));
            }
        }
        agents
    }

    fn parse_agent(&mut self, place: &RulePath, value: &SpannedValue) -> AgentRules {
        let rule = self.rule_at(place);
        let mut agent =
            AgentRules { rule, allow: RuleSection::default(), deny: RuleSection::default() };
        for member in self.members(place, value, Some(&["allow", "deny"])) {
            let place = place.child_key(member);
            match member.key.as_str() {
                "allow" => agent.allow = self.parse_section(&place, &member.value),
                "deny" => agent.deny = self.parse_section(&place, &member.value),
                _ => {}
            }
        }
        agent
    }

    fn parse_section(&mut self, place: &RulePath, value: &SpannedValue) -> RuleSection {
        let mut section = RuleSection::default();
        for member in self.members(place, value, Some(&["servers", "tools"])) {
            let place = place.child_key(member);
            match member.key.as_str() {
                "servers" => section.servers = self.parse_entries(&place, &member.value),
                "tools" => section.tools = self.parse_tool_rules(&place, &member.value),
                _ => {}
            }
        }
        section
    }

    fn parse_tool_rules(&mut self, place: &RulePath, value: &SpannedValue) -> Vec<ToolRules> {
        let mut lists = Vec::new();
        for member in self.members(place, value, None) {
            let place = place.child_key(member);
            let tools = self.parse_entries(&place, &member.value);
            if tools.is_empty() && matches!(member.value.kind, SpannedKind::Array(_)) {
                let message = format!("the empty list for `{}` counts as not written", member.key);
                let help = "to forbid every tool of a server, put the server under `deny.servers`";
                self.warning(&place, message, Some(help.to_owned()));
                continue;
            }
            lists.push(ToolRules { server: self.new_entry(&place, &member.key), tools });
        }
        lists
    }

    fn parse_entries(&mut self, place: &RulePath, value: &SpannedValue) -> Vec<RuleEntry> {
        let SpannedKind::Array(items) = &value.kind else {
            self.wrong_type(place, "a list of names", &value.kind);
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let place = place.child_index(index, item.line);
            match &item.kind {
                SpannedKind::String(name) => entries.push(self.new_entry(&place, name)),
                other => self.wrong_type(&place, "text", other),
            }
        }
        entries
    }

    fn new_entry(&mut self, place: &RulePath, name: &str) -> RuleEntry {
        if name.trim() != name || name.is_empty() {
            let message = format!("`{name}` is taken exactly as written, spaces included");
            self.warning(place, message, None);
        }
        RuleEntry { pattern: Pattern::new(name), rule: self.rule_at(place) }
    }

    /// Returns the members of an object. Reports a non-object, unknown keys and duplicate keys.
    fn members<'v>(
        &mut self,
        place: &RulePath,
        value: &'v SpannedValue,
        known: Option<&[&str]>,
    ) -> &'v [SpannedMember] {
        let SpannedKind::Object(members) = &value.kind else {
            self.wrong_type(place, "an object", &value.kind);
            return &[];
        };
        let mut first: BTreeMap<&str, u32> = BTreeMap::new();
        for member in members {
            if let Some(line) = first.insert(&member.key, member.line) {
                let message = format!("`{}` is written twice, first on line {line}", member.key);
                self.problem(
                    &place.child_key(member),
                    message,
                    Some("keep one of them".to_owned()),
                );
            }
            if let Some(known) = known.filter(|known| !known.contains(&member.key.as_str())) {
                self.unknown_key(&place.child_key(member), &member.key, known);
            }
        }
        members
    }

    fn unknown_key(&mut self, place: &RulePath, key: &str, known: &[&str]) {
        let help = match nearest_names(key, known.iter().copied()).first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("here stand only {}", format_names(known)),
        };
        self.problem(place, format!("unknown key `{key}`"), Some(help));
    }

    fn wrong_type(&mut self, place: &RulePath, wanted: &str, found: &SpannedKind) {
        let what = if place.path.is_empty() { "the file" } else { &place.path };
        let message = format!("`{what}` must be {wanted}, not {}", found.type_name());
        self.problem(place, message, None);
    }

    fn rule_at(&self, place: &RulePath) -> Rule {
        Rule {
            file: Some(Arc::clone(self.file)),
            path: place.path.as_str().into(),
            line: Some(place.line),
        }
    }

    fn problem(&mut self, place: &RulePath, message: String, help: Option<String>) {
        let problem = self.new_problem(place, message, help);
        self.problems.push(problem);
    }

    fn warning(&mut self, place: &RulePath, message: String, help: Option<String>) {
        let warning = self.new_problem(place, message, help);
        self.warnings.push(warning);
    }

    fn new_problem(&self, place: &RulePath, message: String, help: Option<String>) -> RuleProblem {
        let RulePath { path, line } = place.clone();
        RuleProblem { file: Arc::clone(self.file), path, line, message, help }
    }
}

/// True for text that matches `[A-Za-z0-9_.-]+`.
pub(crate) fn is_agent_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !text.is_empty() && text.chars().all(allowed)
}

fn format_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
