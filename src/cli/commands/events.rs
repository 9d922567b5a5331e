//! `adjutant events`: what the main agent, its native subagents and ours have done, and do.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::exit::Exit;
use super::log_view::{Judged, LogView, age};
use super::runs::names_run;
use super::{main_sessions, render};
use crate::base::{Timestamp, now, one_line, shorten};
use crate::config::Settings;
use crate::record::{Noticed, RecordedEvent, event_path, read_events};

/// `adjutant events`.
#[derive(Debug, Args)]
pub(super) struct EventsArguments {
    /// Go on showing events as they are written
    #[arg(long, short)]
    follow: bool,
    /// The lines as they stand in the log
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

pub(super) fn run(settings: &Settings, arguments: &EventsArguments) -> Exit {
    // A `claude` that was killed together with its servers has left its session open.
    main_sessions::end_killed(settings, Noticed::Later);
    let path = event_path(&settings.data_dir());
    let since = arguments.since.and_then(|age| now().checked_sub(age).ok());
    let judged = |event: &RecordedEvent| Judged {
        number: number(event),
        is_wanted: is_wanted(event, arguments),
    };
    let view = LogView { path: &path, limit: arguments.limit, follow: arguments.follow };
    let shown = view.show(
        |each| read_events(&path, since, |line, event| each(line, judged(&event))),
        |line| RecordedEvent::parse(line).as_ref().map(judged),
        |line| print(line, arguments.json),
    );
    match shown {
        Ok(()) => Exit::Success,
        Err(error) => {
            let path = path.display();
            render::problem(format_args!("the events `{path}` cannot be read: {error}"));
            Exit::Usage
        }
    }
}

fn number(event: &RecordedEvent) -> u64 {
    event.fields.get("seq").and_then(Value::as_u64).unwrap_or_default()
}

fn is_wanted(event: &RecordedEvent, arguments: &EventsArguments) -> bool {
    let is_run = |wanted: &str| event.run().is_some_and(|run| names_run(wanted, run));
    arguments.agent.as_deref().is_none_or(|agent| agent == event.agent())
        && arguments.run.as_deref().is_none_or(is_run)
        && (arguments.kinds.is_empty() || arguments.kinds.iter().any(|kind| kind == event.name()))
}

fn print(line: &str, json: bool) {
    if json {
        return render::data(line);
    }
    if let Some(event) = RecordedEvent::parse(line) {
        render::data(one_line(&sentence(&event)));
    }
}

/// `12:00:00.123 web-search 5f809f2e PostToolUse Bash (243 ms) echo one`.
fn sentence(event: &RecordedEvent) -> String {
    let mut words = vec![clock(event.time), shorten(event.agent(), 40)];
    words.extend(event.text("agent_id").map(ending));
    words.push(shorten(event.name(), 40));
    words.extend(event.text("tool_name").map(|tool| shorten(tool, 60)));
    words.extend(event.text("outcome").map(|outcome| shorten(outcome, 40)));
    words.extend(event.duration_ms().map(|millis| format!("({millis} ms)")));
    words.extend(event.number("cost_usd").map(|cost| format!("${cost:.4}")));
    words.extend(about(event).map(|text| shorten(&one_line(text), 120)));
    words.join(" ")
}

fn clock(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Ids begin with the time; what tells them apart is their end.
fn ending(id: &str) -> String {
    let from = id.len().saturating_sub(8);
    id.get(id.ceil_char_boundary(from)..).unwrap_or(id).to_owned()
}

fn about(event: &RecordedEvent) -> Option<&str> {
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
