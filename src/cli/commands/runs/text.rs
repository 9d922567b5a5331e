//! Text output of runs: tables, one run with its steps, and the time of its phases as a bar chart.

use std::fmt::Write;

use crate::api::short_id;
use crate::cli::format::{format_age, format_duration, format_time, format_usd, plural};
use crate::cli::table::{Column, Table};
use crate::events::{RunTimeline, TimelineStep, TimelineStepKind};
use crate::runs::RunEntry;
use crate::util::{Timestamp, one_line, shorten};

const MAX_BAR_WIDTH: f64 = 40.0;

pub(crate) fn format_run(story: &RunTimeline) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "run      {}", story.run_id);
    let _ = writeln!(text, "agent    {}", one_line(&story.agent));
    let _ = writeln!(text, "caller   {}", format_caller(story));
    let _ = writeln!(text, "outcome  {}", format_outcome(story));
    let _ = writeln!(text, "time     {}", format_times(story));
    let _ = writeln!(text, "spent    {}", format_usage(story));
    if let Some(path) = &story.transcript {
        let _ = writeln!(text, "record   {}", one_line(path));
    }
    if !story.steps.is_empty() {
        let _ = write!(text, "\n{}", steps_table(story));
    }
    text
}

pub(crate) fn table(stories: &[RunTimeline]) -> Table {
    let mut table = Table::new([
        Column::whole("RUN"),
        Column::text("AGENT"),
        Column::text("CALLER").drop(3),
        Column::whole("BEGAN").drop(2),
        Column::number("TOOK").drop(4),
        Column::number("COST").drop(1),
        Column::whole("OUTCOME"),
    ]);
    for story in stories {
        table.add_row([
            short_id(&story.run_id.to_string()).to_owned(),
            one_line(&story.agent),
            one_line(story.caller_name()),
            story.queued.strftime("%m-%d %H:%M:%S").to_string(),
            story.duration_ms.map_or_else(|| "-".to_owned(), format_duration),
            story.cost_usd.map_or_else(|| "-".to_owned(), format_usd),
            story.outcome.as_deref().map_or_else(|| "running".to_owned(), one_line),
        ]);
    }
    table
}

/// Formats the entries of the run registry: current runs or idle processes.
pub(crate) fn registry_table(entries: &[RunEntry]) -> Table {
    let mut table = Table::new([
        Column::whole("RUN"),
        Column::text("AGENT"),
        Column::text("CALLER").drop(3),
        Column::number("SINCE").drop(5),
        Column::number("PID").drop(1),
        Column::number("TURNS").drop(2),
        Column::number("COST").drop(4),
        Column::text("DOING"),
    ]);
    for entry in entries {
        table.add_row([
            short_id(&entry.run.to_string()).to_owned(),
            one_line(&entry.agent),
            one_line(&entry.caller),
            format_age(entry.since),
            entry.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            entry.progress.turns.to_string(),
            format_usd(entry.progress.cost_usd),
            one_line(&entry.progress.doing),
        ]);
    }
    table
}

fn format_caller(story: &RunTimeline) -> String {
    let mut text = one_line(story.caller_name());
    if let Some(known_by) = story.caller_field("known_by") {
        let _ = write!(text, " ({})", one_line(known_by));
    }
    for (word, key) in [("agent", "agent_id"), ("session", "session_id"), ("call", "tool_use_id")] {
        if let Some(id) = story.caller_field(key) {
            let _ = write!(text, ", {word} {}", one_line(id));
        }
    }
    text
}

fn format_outcome(story: &RunTimeline) -> String {
    let word = story.outcome.as_deref().unwrap_or("still running");
    match &story.error {
        Some(error) => format!("{word}: {}", shorten(&one_line(&error.sentences()), 300)),
        None => word.to_owned(),
    }
}

fn format_times(story: &RunTimeline) -> String {
    let mut text = format_time(story.queued);
    let waited = story.started.map(|started| elapsed_ms(story.queued, started));
    if let Some(waited) = waited {
        let _ = write!(text, ", process after {}", format_duration(waited));
    }
    if let Some(took) = story.duration_ms {
        let _ = write!(text, ", {} in all", format_duration(took));
    }
    text
}

pub(crate) fn format_usage(story: &RunTimeline) -> String {
    let mut parts = Vec::new();
    parts.extend(story.cost_usd.map(format_usd));
    parts.extend(story.turns.map(|turns| plural(turns, "turn")));
    let tokens = |key: &str| story.tokens.get(key).copied().unwrap_or_default();
    if !story.tokens.is_empty() {
        parts.push(format!("{} tokens read, {} written", tokens("input"), tokens("output")));
    }
    let tools = story.count(TimelineStepKind::Tool) + story.count(TimelineStepKind::Failed);
    parts.push(plural(tools, "tool call"));
    for (kind, word) in [(TimelineStepKind::Failed, "failed"), (TimelineStepKind::Denied, "denied")]
    {
        let count = story.count(kind);
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    parts.join(", ")
}

fn steps_table(story: &RunTimeline) -> Table {
    let mut table = Table::new([
        Column::number("AT"),
        Column::number("TOOK").drop(1),
        Column::text("WHAT"),
        Column::text("ABOUT"),
    ]);
    for step in &story.steps {
        let took = step.duration_ms.map_or_else(String::new, format_duration);
        let at = format!("+{}", format_duration(elapsed_ms(story.queued, step.time)));
        table.add_row([at, took, step_label(step), shorten(&one_line(&step.about), 160)]);
    }
    table
}

fn step_label(step: &TimelineStep) -> String {
    let name = one_line(&step.name);
    let name = match &step.within {
        Some(agent) => format!("{}: {name}", one_line(agent)),
        None => name,
    };
    match step.kind {
        TimelineStepKind::Tool | TimelineStepKind::Event => name,
        TimelineStepKind::Running => format!("{name} (running)"),
        TimelineStepKind::Failed => format!("{name} (failed)"),
        TimelineStepKind::Denied => format!("{name} (denied)"),
        TimelineStepKind::Subagent => format!("subagent {name}"),
    }
}

/// Returns the milliseconds between two timestamps; 0 if the clock was set back.
pub(crate) fn elapsed_ms(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}

/// Formats one line per phase; `rest` is the time that no phase accounts for.
pub(crate) fn format_timing(story: &RunTimeline) -> String {
    let spans: Vec<(&str, f64)> = story
        .timing
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)))
        .collect();
    if spans.is_empty() {
        return "no timing is recorded: the run goes on, or an earlier version made it".to_owned();
    }
    let known: f64 = spans.iter().map(|(_, time)| time).sum();
    let whole =
        story.duration_ms.and_then(|time| u32::try_from(time).ok()).map_or(known, f64::from);
    let rest = (whole - known).max(0.0);
    let mut lines = String::new();
    for (name, time) in spans.into_iter().chain([("rest", rest)]) {
        let share = (time / whole.max(0.1) * MAX_BAR_WIDTH).clamp(0.0, MAX_BAR_WIDTH);
        let bar: String =
            (0_u8..40).take_while(|column| f64::from(*column) < share).map(|_| '#').collect();
        lines.push_str(&format!(
            "{:<12} {time:>10.1} ms  {bar}\n",
            name.trim_end_matches("_ms").replace('_', " ")
        ));
    }
    lines.push_str(&format!("{:<12} {whole:>10.1} ms", "in all"));
    lines
}
