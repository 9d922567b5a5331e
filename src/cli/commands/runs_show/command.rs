//! Finding the run that is meant, and choosing the form.

use clap::Args;
use serde_json::Value;

use super::super::exit::Exit;
use super::super::render;
use super::super::runs::{names_run, table};
use super::{page, text, timing};
use crate::base::one_line;
use crate::config::Settings;
use crate::record::{RunStory, event_path, read_stories};
use crate::worker::RunCard;

/// `adjutant runs show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowRun {
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

pub(in crate::cli) fn show(settings: &Settings, arguments: &ShowRun) -> Exit {
    let stories = match read_stories(&event_path(&settings.data_dir()), None) {
        Ok(stories) => stories,
        Err(error) => return no(format_args!("the events cannot be read: {error}")),
    };
    let found: Vec<&RunStory> = match arguments.run.as_str() {
        "last" => stories.last().into_iter().collect(),
        wanted => stories.iter().filter(|story| names_run(wanted, story.run_id)).collect(),
    };
    match found.as_slice() {
        [] => no(format_args!(
            "no run `{}` is recorded: `adjutant runs list --all` shows what is",
            one_line(&arguments.run)
        )),
        [story] => {
            if arguments.json {
                render::json(story);
            } else if arguments.timing {
                render::data(timing::text(story));
            } else if arguments.html {
                render::data(page::html(story, &family(story, &stories)));
            } else {
                render::data(text::story(story).trim_end());
            }
            Exit::Success
        }
        several => no(format_args!(
            "`{}` could be any of {} runs: give more of the id",
            one_line(&arguments.run),
            several.len()
        )),
    }
}

/// The newest runs of the record, the newest first, as lines of a table.
/// What waits for a call comes with them.
pub(in crate::cli) fn recent(settings: &Settings, waiting: &[RunCard], json: bool) -> Exit {
    const MOST: usize = 50;
    let mut stories = match read_stories(&event_path(&settings.data_dir()), None) {
        Ok(stories) => stories,
        Err(error) => return no(format_args!("the events cannot be read: {error}")),
    };
    stories.reverse();
    stories.truncate(MOST);
    if json {
        render::json(&everything(&stories, waiting));
        return Exit::Success;
    }
    if stories.is_empty() {
        render::talk("no run is recorded");
    } else {
        render::data(text::table(&stories));
    }
    if !waiting.is_empty() {
        render::talk("these processes wait for a call:");
        render::data(table(waiting));
    }
    Exit::Success
}

fn everything(stories: &[RunStory], waiting: &[RunCard]) -> Vec<Value> {
    let runs = stories.iter().filter_map(|story| serde_json::to_value(story).ok());
    runs.chain(waiting.iter().filter_map(|card| serde_json::to_value(card).ok())).collect()
}

/// The runs that hang on the same session of the caller, this one among them.
fn family<'a>(story: &RunStory, stories: &'a [RunStory]) -> Vec<&'a RunStory> {
    let session = story.caller_text("session_id");
    let is_near = |other: &&RunStory| {
        other.run_id == story.run_id
            || (session.is_some() && other.caller_text("session_id") == session)
    };
    stories.iter().filter(is_near).collect()
}

fn no(text: impl std::fmt::Display) -> Exit {
    render::problem(text);
    Exit::Failure
}
