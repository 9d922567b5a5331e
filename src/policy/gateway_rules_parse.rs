//! From the text of a rules file to checked rules, with the line of everything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::evaluation::Rule;
use super::pattern::Pattern;
use super::rules::{AgentRules, Entry, GatewayRules, RuleProblem, Section, ToolList, Warning};
use crate::base::{Lined, LinedMember, LinedValue, nearest, parse_json_lines};

/// A path with the line it stands on.
#[derive(Clone, Debug)]
struct Place {
    path: String,
    line: u32,
}

impl Place {
    fn key(&self, member: &LinedMember) -> Self {
        Self { path: join_key(&self.path, &member.key), line: member.line }
    }

    fn index(&self, index: usize, line: u32) -> Self {
        Self { path: format!("{}[{index}]", self.path), line }
    }
}

/// Adds a key to a path; one that could be misread is quoted.
fn join_key(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match (!key.is_empty() && key.chars().all(plain), path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", serde_json::Value::from(key)),
    }
}

struct Reader<'a> {
    file: &'a Arc<Path>,
    problems: Vec<RuleProblem>,
    warnings: Vec<Warning>,
}

pub(super) fn parse(
    text: &str,
    file: &Arc<Path>,
) -> Result<(GatewayRules, Vec<Warning>), Vec<RuleProblem>> {
    let mut reader = Reader { file, problems: Vec::new(), warnings: Vec::new() };
    let rules = match parse_json_lines(text) {
        Ok(value) => reader.rules(&value),
        Err(error) => {
            let place = Place { path: String::new(), line: error.line };
            let message = format!("this is no JSON: {} (column {})", error.message, error.column);
            reader.problem(&place, message, None);
            GatewayRules::deny_all(file)
        }
    };
    if reader.problems.is_empty() { Ok((rules, reader.warnings)) } else { Err(reader.problems) }
}

impl Reader<'_> {
    fn rules(&mut self, value: &LinedValue) -> GatewayRules {
        let root = Place { path: String::new(), line: value.line };
        let mut rules = GatewayRules::deny_all(self.file);
        // `$schema` is for editors and says nothing about rights.
        for member in self.members(&root, value, Some(&["agents", "defaults", "$schema"])) {
            let place = root.key(member);
            match member.key.as_str() {
                "agents" => rules.agents = self.agents(&place, &member.value),
                "defaults" => rules.deny_on_missing_agent = self.defaults(&place, &member.value),
                _ => {}
            }
        }
        rules
    }

    fn defaults(&mut self, place: &Place, value: &LinedValue) -> bool {
        let mut deny = true;
        for member in self.members(place, value, Some(&["deny_on_missing_agent"])) {
            match (member.key.as_str(), &member.value.value) {
                ("deny_on_missing_agent", Lined::Bool(given)) => deny = *given,
                ("deny_on_missing_agent", other) => {
                    self.wrong_type(&place.key(member), "true or false", other);
                }
                _ => {}
            }
        }
        deny
    }

    fn agents(&mut self, place: &Place, value: &LinedValue) -> BTreeMap<String, AgentRules> {
        let mut agents = BTreeMap::new();
        for member in self.members(place, value, None) {
            let place = place.key(member);
            let agent = self.agent(&place, &member.value);
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

    fn agent(&mut self, place: &Place, value: &LinedValue) -> AgentRules {
        let rule = self.rule(place);
        let mut agent = AgentRules { rule, allow: Section::default(), deny: Section::default() };
        for member in self.members(place, value, Some(&["allow", "deny"])) {
            let place = place.key(member);
            match member.key.as_str() {
                "allow" => agent.allow = self.section(&place, &member.value),
                "deny" => agent.deny = self.section(&place, &member.value),
                _ => {}
            }
        }
        agent
    }

    fn section(&mut self, place: &Place, value: &LinedValue) -> Section {
        let mut section = Section::default();
        for member in self.members(place, value, Some(&["servers", "tools"])) {
            let place = place.key(member);
            match member.key.as_str() {
                "servers" => section.servers = self.entries(&place, &member.value),
                "tools" => section.tools = self.tool_lists(&place, &member.value),
                _ => {}
            }
        }
        section
    }

    fn tool_lists(&mut self, place: &Place, value: &LinedValue) -> Vec<ToolList> {
        let mut lists = Vec::new();
        for member in self.members(place, value, None) {
            let place = place.key(member);
            let tools = self.entries(&place, &member.value);
            if tools.is_empty() && matches!(member.value.value, Lined::Array(_)) {
                let message = format!("the empty list for `{}` counts as not written", member.key);
                let help = "to forbid every tool of a server, put the server under `deny.servers`";
                self.warning(&place, message, Some(help.to_owned()));
                continue;
            }
            lists.push(ToolList { server: self.entry(&place, &member.key), tools });
        }
        lists
    }

    fn entries(&mut self, place: &Place, value: &LinedValue) -> Vec<Entry> {
        let Lined::Array(items) = &value.value else {
            self.wrong_type(place, "a list of names", &value.value);
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let place = place.index(index, item.line);
            match &item.value {
                Lined::String(name) => entries.push(self.entry(&place, name)),
                other => self.wrong_type(&place, "text", other),
            }
        }
        entries
    }

    fn entry(&mut self, place: &Place, name: &str) -> Entry {
        if name.trim() != name || name.is_empty() {
            let message = format!("`{name}` is taken exactly as written, spaces included");
            self.warning(place, message, None);
        }
        Entry { pattern: Pattern::new(name), rule: self.rule(place) }
    }

    /// The members of an object; what is no object, not known or written twice is a problem.
    fn members<'v>(
        &mut self,
        place: &Place,
        value: &'v LinedValue,
        known: Option<&[&str]>,
    ) -> &'v [LinedMember] {
        let Lined::Object(members) = &value.value else {
            self.wrong_type(place, "an object", &value.value);
            return &[];
        };
        let mut first: BTreeMap<&str, u32> = BTreeMap::new();
        for member in members {
            if let Some(line) = first.insert(&member.key, member.line) {
                let message = format!("`{}` is written twice, first on line {line}", member.key);
                self.problem(&place.key(member), message, Some("keep one of them".to_owned()));
            }
            if let Some(known) = known.filter(|known| !known.contains(&member.key.as_str())) {
                self.unknown_key(&place.key(member), &member.key, known);
            }
        }
        members
    }

    fn unknown_key(&mut self, place: &Place, key: &str, known: &[&str]) {
        let help = match nearest(key, known.iter().copied()).first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("here stand only {}", list(known)),
        };
        self.problem(place, format!("unknown key `{key}`"), Some(help));
    }

    fn wrong_type(&mut self, place: &Place, wanted: &str, found: &Lined) {
        let what = if place.path.is_empty() { "the file" } else { &place.path };
        let message = format!("`{what}` must be {wanted}, not {}", found.kind());
        self.problem(place, message, None);
    }

    fn rule(&self, place: &Place) -> Rule {
        Rule {
            file: Some(Arc::clone(self.file)),
            path: place.path.as_str().into(),
            line: Some(place.line),
        }
    }

    fn problem(&mut self, place: &Place, message: String, help: Option<String>) {
        let problem = self.note(place, message, help);
        self.problems.push(problem);
    }

    fn warning(&mut self, place: &Place, message: String, help: Option<String>) {
        let warning = self.note(place, message, help);
        self.warnings.push(warning);
    }

    fn note(&self, place: &Place, message: String, help: Option<String>) -> RuleProblem {
        let Place { path, line } = place.clone();
        RuleProblem { file: Arc::clone(self.file), path, line, message, help }
    }
}

/// Whether a text can be an agent's id in the rules: `[A-Za-z0-9_.-]+`.
pub fn is_agent_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !text.is_empty() && text.chars().all(allowed)
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
