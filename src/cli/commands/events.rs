//! `adjutant events`: prints and follows the event log of the main agent and all subagents.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::runs::matches_run_id;
use crate::api::short_id;
use crate::audit::escape_controls;
use crate::cli::format::{format_log_time, format_usd};
use crate::cli::log_view::{LogView, MatchedLine, age};
use crate::cli::table::wrap_line;
use crate::cli::{
    CliCommand, CommandResult, ExitStatus, main_session_watch, output, store_unavailable,
};
use crate::config::Settings;
use crate::events::{EndDetection, RecordedEvent, event_path, read_events};
use crate::util::{now, one_line, shorten};

/// Show what the main agent, its native subagents and ours have done, one event a line
///
/// Exit code 0; 4 if the events cannot be read.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  adjutant events --follow\n  adjutant events --agent web-search --type PermissionDenied\n  \
    adjutant events --json --since 1h | jq -r .tool_name"
)]
pub(crate) struct EventsArguments {
    /// Go on showing events as they are written
    #[arg(long, short)]
    follow: bool,
    /// Print the events as JSON, one a line
    #[arg(long)]
    json: bool,
    /// Only this agent's events; `main` is the main agent
    #[arg(long, value_name = "NAME", help_heading = "Which events")]
    agent: Option<String>,
    /// Only events of this run: its id, or the beginning or end of it
    #[arg(long, value_name = "RUN", help_heading = "Which events")]
    run: Option<String>,
    /// Only events of this name, such as `PreToolUse`; may be given more than once
    #[arg(long = "type", value_name = "NAME", help_heading = "Which events")]
    kinds: Vec<String>,
    /// Only what is not older, such as `30m`, `12h` or `7d`
    #[arg(long, value_name = "AGE", value_parser = age, help_heading = "Which events")]
    since: Option<Duration>,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "Which events")]
    limit: usize,
}

impl CliCommand for EventsArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        // If `claude` was killed together with its servers, the end of its session is not recorded yet.
        main_session_watch::record_killed_sessions(settings, EndDetection::Later);
        let path = event_path(&settings.data_dir());
        let since = self.since.and_then(|age| now().checked_sub(age).ok());
        let judged = |event: &RecordedEvent| MatchedLine {
            sequence: sequence_number(event),
            is_match: matches_filter(event, self),
        };
        let view = LogView { path: &path, limit: self.limit, follow: self.follow };
        let shown = view.print(
            |each| read_events(&path, since, |line, event| each(line, judged(&event))),
            |line| RecordedEvent::parse(line).as_ref().map(judged),
            |line| print_line(line, self.json),
        );
        shown.map_err(|error| {
            store_unavailable(format_args!(
                "the events `{}` cannot be read: {error}",
                path.display()
            ))
        })?;
        Ok(ExitStatus::Success)
    }
}

fn sequence_number(event: &RecordedEvent) -> u64 {
    event.fields.get("seq").and_then(Value::as_u64).unwrap_or_default()
}

fn matches_filter(event: &RecordedEvent, arguments: &EventsArguments) -> bool {
    let is_run = |wanted: &str| event.run().is_some_and(|run| matches_run_id(wanted, run));
    arguments.agent.as_deref().is_none_or(|agent| agent == event.agent())
        && arguments.run.as_deref().is_none_or(is_run)
        && (arguments.kinds.is_empty() || arguments.kinds.iter().any(|kind| kind == event.name()))
}

fn print_line(line: &str, json: bool) {
    let Some(event) = RecordedEvent::parse(line) else { return };
    if json {
        output::print_raw(escape_controls(Value::Object(event.fields).to_string()));
    } else {
        output::print(wrap_line(&one_line(&format_event(&event))));
    }
}

/// Formats an event.
///
/// Example: `2026-01-31T12:00:00.123Z web-search 5f809f2e PostToolUse Bash (243 ms) echo one`.
fn format_event(event: &RecordedEvent) -> String {
    let mut words = vec![format_log_time(event.time), shorten(event.agent(), 40)];
    words.extend(event.text("agent_id").map(|id| short_id(id).to_owned()));
    words.push(shorten(event.name(), 40));
    words.extend(event.text("tool_name").map(|tool| shorten(tool, 60)));
    words.extend(event.text("outcome").map(|outcome| shorten(outcome, 40)));
    words.extend(event.duration_ms().map(|millis| format!("({millis} ms)")));
    words.extend(event.number("cost_usd").map(format_usd));
    words.extend(event_detail(event).map(|text| shorten(&one_line(text), 120)));
    words.join(" ")
}

fn event_detail(event: &RecordedEvent) -> Option<&str> {
    if let Some(error) = event.fields.get("error").and_then(|error| error.get("message")) {
        return error.as_str();
    }
    let input = event.fields.get("tool_input").and_then(Value::as_object);
    let told = input.and_then(|input| {
        let named = ["command", "file_path", "url", "query", "pattern"];
        named
            .iter()
            .find_map(|key| input.get(*key)?.as_str())
            .or_else(|| input.values().find_map(Value::as_str))
    });
    let keys = ["error", "reason", "prompt", "message", "last_assistant_message"];
    keys.iter().find_map(|key| event.text(key)).or(told)
}
