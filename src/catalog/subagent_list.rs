//! The section of `agents/main/system-prompt.md` that tells the main agent whom it can call.

use super::model::Agent;
use super::snapshot::Snapshot;
use crate::base::RESERVED_MAIN;

/// The line before the section.
pub const BEGIN: &str = "<!-- adjutant:subagents:begin -->";
/// The line behind the section.
pub const END: &str = "<!-- adjutant:subagents:end -->";

/// The section, with its markers and without a line break at its end.
pub fn render(snapshot: &Snapshot) -> String {
    let mut lines = vec![BEGIN.to_owned()];
    let callable: Vec<String> = snapshot
        .entries()
        .iter()
        .filter_map(|entry| entry.agent())
        .filter(|agent| agent.allowed_callers.allow(RESERVED_MAIN))
        .map(|agent| describe(agent))
        .collect();
    if callable.is_empty() {
        lines.push("There are no subagents yet.".to_owned());
    } else {
        lines.push("Subagents you can call with `run_subagent`:".to_owned());
        lines.push(String::new());
        lines.extend(callable);
    }
    lines.push(END.to_owned());
    lines.join("\n")
}

fn describe(agent: &Agent) -> String {
    let memory = if agent.session { " (keeps a conversation)" } else { "" };
    // A description must not be able to end the section.
    let description = agent.description.replace("<!--", "<! --");
    format!("- `{}`: {description}{memory}", agent.name)
}

/// The section as it stands in `text`, markers included; `None` if it has none.
pub fn find(text: &str) -> Option<&str> {
    let start = text.find(BEGIN)?;
    let length = text.get(start..)?.find(END)? + END.len();
    text.get(start..start + length)
}

/// `text` with its section replaced by `section`; `None` if it has none.
pub fn replace(text: &str, section: &str) -> Option<String> {
    let found = find(text)?;
    Some(text.replacen(found, section, 1))
}
