//! Selects the run and the output format.

use clap::Args;
use serde_json::Value;

use super::super::runs::{matches_run_id, table};
use super::{page, text, timing};
use crate::cli::exit_status::ExitStatus;
use crate::cli::output;
use crate::config::Settings;
use crate::events::{RunTimeline, event_path, read_timelines};
use crate::runs::RunEntry;
use crate::util::one_line;

/// `adjutant runs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowRun {
    /// The run's id, or as much of its beginning or end as makes it unique; `last` for the newest
    run: String,
    /// Print JSON for a program
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print a page with a picture of the tree and the time line; it needs nothing but itself
    #[arg(long)]
    html: bool,
    /// Print where the time of the call went
    #[arg(long, conflicts_with_all = ["html", "json"])]
    timing: bool,
}

pub(crate) fn show(settings: &Settings, arguments: &ShowRun) -> ExitStatus {
    let stories = match read_timelines(&event_path(&settings.data_dir()), None) {
        Ok(stories) => stories,
        Err(error) => return fail(format_args!("the events cannot be read: {error}")),
    };
    let found: Vec<&RunTimeline> = match arguments.run.as_str() {
        "last" => stories.last().into_iter().collect(),
        wanted => stories.iter().filter(|story| matches_run_id(wanted, story.run_id)).collect(),
    };
    match found.as_slice() {
        [] => fail(format_args!(
            "no run `{}` is recorded: `adjutant runs list --all` shows what is",
            one_line(&arguments.run)
        )),
        [story] => {
            if arguments.json {
                output::print_json(story);
            } else if arguments.timing {
                output::print(timing::format_timing(story));
            } else if arguments.html {
                output::print(page::to_html(story, &related_runs(story, &stories)));
            } else {
                output::print(text::format_run(story).trim_end());
            }
            ExitStatus::Success
        }
        several => fail(format_args!(
            "`{}` could be any of {} runs: give more of the id",
            one_line(&arguments.run),
            several.len()
        )),
    }
}

/// Prints the newest 50 recorded runs, newest first, and the idle processes.
pub(crate) fn print_recent(settings: &Settings, waiting: &[RunEntry], json: bool) -> ExitStatus {
    const MOST: usize = 50;
    let mut stories = match read_timelines(&event_path(&settings.data_dir()), None) {
        Ok(stories) => stories,
        Err(error) => return fail(format_args!("the events cannot be read: {error}")),
    };
    stories.reverse();
    stories.truncate(MOST);
    if json {
        output::print_json(&recent_json(&stories, waiting));
        return ExitStatus::Success;
    }
    if stories.is_empty() {
        output::print_message("no run is recorded");
    } else {
        output::print(text::table(&stories));
    }
    if !waiting.is_empty() {
        output::print_message("these processes wait for a call:");
        output::print(table(waiting));
    }
    ExitStatus::Success
}

fn recent_json(stories: &[RunTimeline], waiting: &[RunEntry]) -> Vec<Value> {
    let runs = stories.iter().filter_map(|story| serde_json::to_value(story).ok());
    runs.chain(waiting.iter().filter_map(|card| serde_json::to_value(card).ok())).collect()
}

/// Returns the runs of the same main session, including this one.
fn related_runs<'a>(story: &RunTimeline, stories: &'a [RunTimeline]) -> Vec<&'a RunTimeline> {
    let session = story.caller_field("session_id");
    let is_near = |other: &&RunTimeline| {
        other.run_id == story.run_id
            || (session.is_some() && other.caller_field("session_id") == session)
    };
    stories.iter().filter(is_near).collect()
}

fn fail(text: impl std::fmt::Display) -> ExitStatus {
    output::print_error(text);
    ExitStatus::Failure
}
