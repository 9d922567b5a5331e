//! Readers of the values of single keys of `agent.md`.

use super::super::diagnostic::Severity;
use super::agent_keys::EFFORTS;
use super::node::Node;
use crate::catalog::model::{Agent, AllowedCallers};
use crate::util::{RESERVED_MAIN, nearest_names, one_line, shorten};

/// Longer descriptions are an error.
const MAX_DESCRIPTION_CHARS: usize = 1_000;
/// Longer descriptions are a warning: they cost context of every caller.
const DESCRIPTION_WARNING_CHARS: usize = 300;

pub(super) fn read_display_name(node: &Node<'_>, agent: &mut Agent) {
    agent.display_name = node.text().map(one_line);
}

pub(super) fn read_description(node: &Node<'_>, agent: &mut Agent) {
    let Some(text) = node.text() else { return };
    agent.description = one_line(text);
    let length = agent.description.chars().count();
    if length > DESCRIPTION_WARNING_CHARS {
        let message = format!("the description has {length} characters, too long for a tool list");
        let severity =
            if length > MAX_DESCRIPTION_CHARS { Severity::Error } else { Severity::Warning };
        node.problems.add(severity, "description-too-long", node.at(), message).help(format!(
            "keep it under {DESCRIPTION_WARNING_CHARS}; details belong into the prompt"
        ));
    }
}

pub(super) fn read_session(node: &Node<'_>, agent: &mut Agent) {
    agent.session = node.boolean().unwrap_or(false);
}

pub(super) fn read_callers(node: &Node<'_>, agent: &mut Agent) {
    let Some(items) = node.items_or_text() else { return };
    if items.is_empty() {
        node.key_error("no-callers", "`allowed_callers` is empty: nobody can call it")
            .help("write `allowed_callers: [main]`, or `[\"*\"]` for anyone known");
    }
    let names: Vec<&str> = items.iter().filter_map(|item| read_caller(item)).collect();
    agent.allowed_callers = match names.contains(&"*") {
        true => AllowedCallers::Anyone,
        false => AllowedCallers::Named(names.into_iter().map(str::to_owned).collect()),
    };
}

fn read_caller<'v>(node: &Node<'v>) -> Option<&'v str> {
    let name = node.text()?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if name == "*" || (name.len() <= 128 && name.chars().all(allowed)) {
        if name != RESERVED_MAIN && name.eq_ignore_ascii_case(RESERVED_MAIN) {
            node.error("invalid-caller", format!("there is no caller `{name}`"))
                .help("did you mean `main`?");
        }
        return Some(name);
    }
    let message = format!("`{}` is no caller's name", shorten(&one_line(name), 80));
    let near = nearest_names(name, [RESERVED_MAIN, "*"]);
    node.error("invalid-caller", message).help(match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write `main`, the name of a native subagent, or `\"*\"` alone".to_owned(),
    });
    None
}

pub(super) fn read_model(node: &Node<'_>, agent: &mut Agent) {
    let Some(text) = node.text() else { return };
    let is_invalid = |c: char| c.is_whitespace() || c.is_control() || c == '\'' || c == '"';
    if text.starts_with('-') || text.contains(is_invalid) {
        node.error("wrong-value", format!("`{text}` is no model's name"))
            .help("write an alias such as `haiku`, `sonnet` or `opus`, or a model's full name");
    }
    agent.model = Some(text.to_owned());
}

pub(super) fn read_effort(node: &Node<'_>, agent: &mut Agent) {
    let words: Vec<_> = EFFORTS.iter().map(|word| (*word, *word)).collect();
    agent.effort = node.one_of(&words).map(str::to_owned);
}

pub(super) fn read_cwd(node: &Node<'_>, agent: &mut Agent) {
    agent.cwd = node.filled_template();
}

pub(super) fn read_add_dirs(node: &Node<'_>, agent: &mut Agent) {
    let items = node.items_or_text().unwrap_or_default();
    agent.add_dirs = items.iter().filter_map(Node::filled_template).collect();
}

pub(super) fn read_env(node: &Node<'_>, agent: &mut Agent) {
    agent.env.extend(node.variables().unwrap_or_default());
}

pub(super) fn read_may_change_project_config(node: &Node<'_>, agent: &mut Agent) {
    agent.may_change_project_config = node.boolean().unwrap_or(false);
    if agent.may_change_project_config {
        let message = "the agent may change what decides about agents (agent files, gateway rules, hooks, settings) and read the files of Adjutant in `data/`";
        node.key_warning("may-change-project-config", message)
            .help("remove the key unless this agent exists to set up the project");
    }
}
