//! A run for a terminal: when it waited and worked, what it used, what it was refused, what it cost.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::super::fit::fit_around;
use crate::base::{Timestamp, one_line, shorten};
use crate::record::{RunStory, Step, StepKind};

pub(super) fn story(story: &RunStory) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "run      {}", story.run_id);
    let _ = writeln!(text, "agent    {}", one_line(&story.agent));
    let _ = writeln!(text, "caller   {}", caller(story));
    let _ = writeln!(text, "outcome  {}", outcome(story));
    let _ = writeln!(text, "time     {}", times(story));
    let _ = writeln!(text, "spent    {}", spent(story));
    if let Some(path) = &story.transcript {
        let _ = writeln!(text, "record   {}", one_line(path));
    }
    if !story.steps.is_empty() {
        let _ = write!(text, "\n{}", steps(story));
    }
    text
}

pub(super) fn table(stories: &[RunStory]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_header(["RUN", "AGENT", "CALLER", "BEGAN", "TOOK", "COST", "OUTCOME"]);
    for story in stories {
        table.add_row([
            story.run_id.to_string(),
            shorten(&one_line(&story.agent), 24),
            shorten(&one_line(story.caller_name()), 24),
            story.queued.strftime("%m-%d %H:%M:%S").to_string(),
            story.duration_ms.map_or_else(|| "-".to_owned(), duration),
            story.cost_usd.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
            story.outcome.clone().unwrap_or_else(|| "running".to_owned()),
        ]);
    }
    fit_around(&mut table, 0);
    table
}

fn caller(story: &RunStory) -> String {
    let mut text = one_line(story.caller_name());
    if let Some(known_by) = story.caller_text("known_by") {
        let _ = write!(text, " ({})", one_line(known_by));
    }
    for (word, key) in [("agent", "agent_id"), ("session", "session_id"), ("call", "tool_use_id")] {
        if let Some(id) = story.caller_text(key) {
            let _ = write!(text, ", {word} {}", one_line(id));
        }
    }
    text
}

fn outcome(story: &RunStory) -> String {
    let word = story.outcome.as_deref().unwrap_or("still running");
    match &story.error {
        Some(error) => format!("{word}: {}", shorten(&one_line(error), 300)),
        None => word.to_owned(),
    }
}

fn times(story: &RunStory) -> String {
    let began = story.queued.strftime("%Y-%m-%d %H:%M:%S UTC");
    let waited = story.started.map(|started| since(story.queued, started));
    let mut text = began.to_string();
    if let Some(waited) = waited {
        let _ = write!(text, ", process after {}", duration(waited));
    }
    if let Some(took) = story.duration_ms {
        let _ = write!(text, ", {} in all", duration(took));
    }
    text
}

pub(super) fn spent(story: &RunStory) -> String {
    let mut parts = Vec::new();
    parts.extend(story.cost_usd.map(|cost| format!("${cost:.4}")));
    parts.extend(story.turns.map(|turns| plural(turns, "turn")));
    let tokens = |key: &str| story.tokens.get(key).copied().unwrap_or_default();
    if !story.tokens.is_empty() {
        parts.push(format!("{} tokens read, {} written", tokens("input"), tokens("output")));
    }
    let tools = story.count(StepKind::Tool) + story.count(StepKind::Failed);
    parts.push(plural(tools as u64, "tool call"));
    for (kind, word) in [(StepKind::Failed, "failed"), (StepKind::Denied, "denied")] {
        let count = story.count(kind);
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    parts.join(", ")
}

fn steps(story: &RunStory) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["AT", "TOOK", "WHAT", ""]);
    for column in table.column_iter_mut().take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for step in &story.steps {
        let took = step.duration_ms.map_or_else(String::new, duration);
        let at = format!("+{}", duration(since(story.queued, step.time)));
        table.add_row([at, took, what(step), shorten(&one_line(&step.about), 160)]);
    }
    table
}

fn what(step: &Step) -> String {
    let name = one_line(&step.name);
    let name = match &step.within {
        Some(agent) => format!("{}: {name}", one_line(agent)),
        None => name,
    };
    match step.kind {
        StepKind::Tool | StepKind::Event => name,
        StepKind::Running => format!("{name} (running)"),
        StepKind::Failed => format!("{name} (failed)"),
        StepKind::Denied => format!("{name} (denied)"),
        StepKind::Subagent => format!("subagent {name}"),
    }
}

/// The milliseconds between two moments; none where the clock went back.
pub(super) fn since(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}

/// `240 ms`, `12.3 s`, `4 min 5 s`.
pub(super) fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}
