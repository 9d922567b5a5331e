//! Subagent list in `agents/main/system-prompt.md`, between two marker lines.

use super::snapshot::Snapshot;
use crate::catalog::model::Agent;
use crate::util::RESERVED_MAIN;

pub(crate) const SECTION_BEGIN: &str = "<!-- adjutant:subagents:begin -->";
pub(crate) const SECTION_END: &str = "<!-- adjutant:subagents:end -->";

/// Renders the section including its markers, without a trailing line break.
pub(crate) fn render_section(snapshot: &Snapshot) -> String {
    let mut lines = vec![SECTION_BEGIN.to_owned()];
    let callable: Vec<String> = snapshot
        .entries()
        .iter()
        .filter_map(|entry| entry.agent())
        .filter(|agent| agent.allowed_callers.allows(RESERVED_MAIN))
        .map(|agent| describe(agent))
        .collect();
    if callable.is_empty() {
        lines.push("There are no subagents yet.".to_owned());
    } else {
        lines.push("Subagents you can call with `run_subagent`:".to_owned());
        lines.push(String::new());
        lines.extend(callable);
    }
    lines.push(SECTION_END.to_owned());
    lines.join("\n")
}

fn describe(agent: &Agent) -> String {
    let memory = if agent.session { " (keeps a conversation)" } else { "" };
    // A description must not be able to end the section.
    let description = agent.description.replace("<!--", "<! --");
    format!("- `{}`: {description}{memory}", agent.name)
}

/// Returns the section in `text` including its markers; `None` if there is none.
pub(crate) fn find_section(text: &str) -> Option<&str> {
    let start = text.find(SECTION_BEGIN)?;
    let length = text.get(start..)?.find(SECTION_END)? + SECTION_END.len();
    text.get(start..start + length)
}
