//! `adjutant runs`: lists, shows and stops runs.

use std::io;

use clap::{Args, Subcommand};

use super::{page, text};
use crate::api::{IdMatch, RunObject, match_id};
use crate::cli::{
    CliCommand, CommandAccess, CommandError, CommandReport, CommandResult, ErrorCode, ExitStatus,
    JsonArgument, output, store_unavailable,
};
use crate::config::Settings;
use crate::events::{RunTimeline, event_path, read_timelines};
use crate::runs::{RunEntry, RunRegistry, StopOutcome, stop_run};
use crate::util::{RunId, one_line};

/// Show what is running or has run, and end it
#[derive(Debug, Subcommand)]
#[command(
    after_long_help = "Examples:\n  adjutant runs list\n  adjutant runs show last\n  adjutant runs stop 8f3a"
)]
pub(crate) enum RunsCommand {
    /// Show what is running: agent, since when, what it does, pid, cost so far
    ///
    /// From any terminal, whichever `adjutant` of this project started it. Exit code 0.
    #[command(
        after_long_help = "Examples:\n  adjutant runs list\n  adjutant runs list --json | jq -r '.[].run_id'\n  adjutant runs list --all"
    )]
    List {
        /// Show the newest 50 of the record, those that are over too, and processes that wait for a call
        #[arg(long)]
        all: bool,
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Show one run: a time line with durations, tools, refusals and cost
    ///
    /// From what data/events.jsonl has, for runs that are over and for those that go on. Exit code 0; 2 if there is more
    /// than one such run; 3 if there is none.
    #[command(
        after_long_help = "Examples:\n  adjutant runs show last\n  adjutant runs show 8f3a --html > run.html"
    )]
    Show(ShowRunArguments),
    /// End a run; its caller is told that it was cancelled
    ///
    /// Exit code 0; 1 if it does not end; 2 if there is more than one such run; 3 if there is none.
    #[command(after_long_help = "Example:\n  adjutant runs stop 8f3a")]
    Stop {
        /// The run's id, or as much of its beginning or end as makes it unique; `last` for the newest
        run: String,
        #[command(flatten)]
        format: JsonArgument,
    },
}

/// `adjutant runs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowRunArguments {
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

impl RunsCommand {
    pub(crate) fn access(&self) -> CommandAccess {
        match self {
            Self::List { .. } | Self::Show(_) => CommandAccess::ReadsOnly,
            Self::Stop { .. } => CommandAccess::ActsOrChanges,
        }
    }
}

impl CliCommand for RunsCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        match self {
            Self::List { all: true, json } => list_recorded(settings, *json),
            Self::List { all: false, json } => list(settings, *json),
            Self::Show(arguments) => show(settings, arguments),
            Self::Stop { run, format } => stop(settings, run)?.print(*format),
        }
    }
}

fn registry_entries(settings: &Settings) -> io::Result<Vec<RunEntry>> {
    RunRegistry::at(&settings.data_dir()).list()
}

fn list(settings: &Settings, json: bool) -> CommandResult {
    let mut entries = registry_entries(settings)?;
    entries.retain(|entry| !entry.idle);
    let objects: Vec<RunObject> = entries.iter().map(RunEntry::to_object).collect();
    output::print_list(json, &objects, "nothing is running", || text::registry_table(&entries));
    Ok(ExitStatus::Success)
}

/// Prints the newest 50 recorded runs, newest first, and the idle processes: warm ones, and live ones that keep a
/// session.
fn list_recorded(settings: &Settings, json: bool) -> CommandResult {
    const MAX_RUNS: usize = 50;
    let mut idle = registry_entries(settings)?;
    idle.retain(|entry| entry.idle);
    let mut runs = recorded_runs(settings)?;
    runs.reverse();
    runs.truncate(MAX_RUNS);
    if json {
        let runs = runs.iter().map(|run| run.to_object(false));
        output::print_json(&runs.chain(idle.iter().map(RunEntry::to_object)).collect::<Vec<_>>());
        return Ok(ExitStatus::Success);
    }
    if runs.is_empty() {
        output::print_message("no run is recorded");
    } else {
        output::print(text::table(&runs));
    }
    if !idle.is_empty() {
        output::print_message("these processes wait for a call:");
        output::print(text::registry_table(&idle));
    }
    Ok(ExitStatus::Success)
}

fn recorded_runs(settings: &Settings) -> Result<Vec<RunTimeline>, CommandError> {
    read_timelines(&event_path(&settings.data_dir()), None)
        .map_err(|error| store_unavailable(format_args!("the events cannot be read: {error}")))
}

fn show(settings: &Settings, arguments: &ShowRunArguments) -> CommandResult {
    let runs = recorded_runs(settings)?;
    let run = match arguments.run.as_str() {
        "last" => runs.last().ok_or_else(|| not_recorded("last"))?,
        wanted => the_only(wanted, &runs, |run| run.run_id)?.ok_or_else(|| not_recorded(wanted))?,
    };
    output::print_result(arguments.json, &run.to_object(true), || {
        match (arguments.timing, arguments.html) {
            (true, _) => text::format_timing(run),
            (false, true) => page::to_html(run, &related_runs(run, &runs)),
            (false, false) => text::format_run(run).trim_end().to_owned(),
        }
    });
    Ok(ExitStatus::Success)
}

fn not_recorded(wanted: &str) -> CommandError {
    let wanted = one_line(wanted);
    CommandError::new(ErrorCode::RunNotFound, format_args!("no run `{wanted}` is recorded"))
        .with_help("`adjutant runs list --all` shows what is")
}

/// Returns the runs of the same main session, including this one.
fn related_runs<'a>(run: &RunTimeline, runs: &'a [RunTimeline]) -> Vec<&'a RunTimeline> {
    let session = run.caller_field("session_id");
    let is_near = |other: &&RunTimeline| {
        other.run_id == run.run_id
            || (session.is_some() && other.caller_field("session_id") == session)
    };
    runs.iter().filter(is_near).collect()
}

fn stop(settings: &Settings, wanted: &str) -> Result<CommandReport, CommandError> {
    let registry = RunRegistry::at(&settings.data_dir());
    let entries = registry.list()?;
    let entry = match wanted {
        "last" => entries.iter().rfind(|entry| !entry.idle),
        wanted => the_only(wanted, &entries, |entry| entry.run)?,
    };
    let entry = entry.ok_or_else(|| {
        let wanted = one_line(wanted);
        CommandError::new(ErrorCode::RunNotFound, format_args!("no run `{wanted}` is going on"))
            .with_help("`adjutant runs list` shows what is")
    })?;
    let run = entry.run;
    match stop_run(&registry, entry) {
        Ok(StopOutcome::Ended) => {
            let agent = one_line(&entry.agent);
            Ok(CommandReport::new(&stopped_run(settings, entry))
                .message(format_args!("run {run} of `{agent}` is over")))
        }
        Ok(StopOutcome::Survived) => Err(CommandError::new(
            ErrorCode::StopFailed,
            format_args!(
                "run {run} did not end: look at process {} and try again",
                entry.pid.unwrap_or_default()
            ),
        )),
        Err(error) => Err(CommandError::new(
            ErrorCode::StopFailed,
            format_args!("run {run} could not be told to stop: {error}"),
        )),
    }
}

/// Returns the run with this id or part of it, or `None` if there is none. Several such runs are an error.
fn the_only<'a, T>(
    wanted: &str,
    runs: &'a [T],
    id: impl Fn(&T) -> RunId,
) -> Result<Option<&'a T>, CommandError> {
    match match_id(wanted, runs, |run| id(run).to_string()) {
        IdMatch::None => Ok(None),
        IdMatch::One(run) => Ok(Some(run)),
        IdMatch::Ambiguous(found) => {
            let message = format!("`{}` could be any of {} runs", one_line(wanted), found.len());
            let matches: Vec<String> = found.iter().map(|run| id(run).to_string()).collect();
            let help = format!("give more of the id: {}", matches.join(", "));
            let error = CommandError::new(ErrorCode::AmbiguousId, message).with_help(help);
            Err(error.with_matches(matches))
        }
    }
}

/// Returns a run that has been stopped: as recorded, or as it was while it was going on.
fn stopped_run(settings: &Settings, entry: &RunEntry) -> RunObject {
    let recorded = recorded_runs(settings).unwrap_or_default();
    let recorded = recorded.iter().find(|run| run.run_id == entry.run);
    recorded.map_or_else(|| entry.to_object(), |run| run.to_object(false))
}

/// Returns true if `wanted` is the id of the run, or a prefix or suffix of it, with or without hyphens.
///
/// Suffixes count because ids begin with the time: those of one minute differ only at the end.
pub(crate) fn matches_run_id(wanted: &str, run: RunId) -> bool {
    match_id(wanted, &[run], RunId::to_string) != IdMatch::None
}
