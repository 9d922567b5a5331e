//! `adjutant runs`: lists, shows and stops runs.

use std::io;

use clap::Subcommand;
use comfy_table::Table;

use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::commands::runs_show::{ShowRun, print_recent, show};
use crate::cli::dispatch::usage_error;
use crate::cli::exit_status::ExitStatus;
use crate::cli::format::{format_age, format_usd};
use crate::cli::output;
use crate::cli::table::{fit_width_around, plain_table};
use crate::config::Settings;
use crate::runs::{RunEntry, RunRegistry, StopOutcome, stop_run};
use crate::util::{RunId, one_line, shorten};

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
        after_long_help = "Examples:\n  adjutant runs list\n  adjutant runs list --json | jq -r '.[].run'\n  adjutant runs list --all"
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
    /// From what data/events.jsonl has, for runs that are over and for those that go on. Exit code 0; 1 if there is no such run,
    /// or more than one.
    #[command(
        after_long_help = "Examples:\n  adjutant runs show last\n  adjutant runs show 8f3a --html > run.html"
    )]
    Show(ShowRun),
    /// End a run; its caller is told that it was cancelled
    ///
    /// Exit code 0; 1 if there is no such run, or more than one.
    #[command(after_long_help = "Example:\n  adjutant runs stop 8f3a")]
    Stop {
        /// The run's id, or as much of its beginning or end as makes it unique
        run: String,
    },
}

impl CliCommand for RunsCommand {
    fn access(&self) -> CommandAccess {
        match self {
            Self::List { .. } | Self::Show(_) => CommandAccess::ReadsOnly,
            Self::Stop { .. } => CommandAccess::ActsOrChanges,
        }
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let registry = RunRegistry::at(&settings.data_dir());
        let done = match self {
            Self::List { all: true, json } => {
                idle_processes(&registry).map(|idle| print_recent(settings, &idle, *json))
            }
            Self::List { all: false, json } => list(&registry, *json),
            Self::Show(arguments) => Ok(show(settings, arguments)),
            Self::Stop { run } => stop(&registry, run),
        };
        done.unwrap_or_else(|error| usage_error(&error))
    }
}

/// Returns the idle processes: warm ones, and live ones that keep a session.
fn idle_processes(registry: &RunRegistry) -> io::Result<Vec<RunEntry>> {
    Ok(registry.list()?.into_iter().filter(|card| card.idle).collect())
}

fn list(registry: &RunRegistry, json: bool) -> io::Result<ExitStatus> {
    let mut cards = registry.list()?;
    cards.retain(|card| !card.idle);
    if json {
        output::print_json(&cards);
    } else if cards.is_empty() {
        output::print_message("nothing is running");
    } else {
        output::print(table(&cards));
    }
    Ok(ExitStatus::Success)
}

pub(crate) fn table(cards: &[RunEntry]) -> Table {
    let mut table =
        plain_table(["RUN", "AGENT", "CALLER", "SINCE", "PID", "TURNS", "COST", "DOING"]);
    for card in cards {
        table.add_row([
            card.run.to_string(),
            one_line(&card.agent),
            one_line(&card.caller),
            format_age(card.since),
            card.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            card.progress.turns.to_string(),
            format_usd(card.progress.cost_usd),
            shorten(&one_line(&card.progress.doing), 40),
        ]);
    }
    fit_width_around(&mut table, 0);
    table
}

fn stop(registry: &RunRegistry, wanted: &str) -> io::Result<ExitStatus> {
    let mut found = registry.list()?;
    found.retain(|card| matches_run_id(wanted, card.run));
    Ok(match found.as_slice() {
        [] => fail(format_args!(
            "no run `{}` is going on: `adjutant runs list` shows what is",
            one_line(wanted)
        )),
        [card] => stop_entry(registry, card),
        several => fail(format_args!(
            "`{}` could be any of {} runs: give more of the id",
            one_line(wanted),
            several.len()
        )),
    })
}

/// Returns true if `wanted` is the id of the run, or a prefix or suffix of it, with or without dashes.
///
/// Suffixes count because ids begin with the time: those of one minute differ only at the end.
pub(crate) fn matches_run_id(wanted: &str, run: RunId) -> bool {
    let id = run.to_string();
    let wanted = &wanted.replace('-', "");
    !wanted.is_empty() && (id.starts_with(wanted) || id.ends_with(wanted))
}

fn stop_entry(registry: &RunRegistry, card: &RunEntry) -> ExitStatus {
    match stop_run(registry, card) {
        Ok(StopOutcome::Ended) => {
            output::print_message(format_args!(
                "run {} of `{}` is over",
                card.run,
                one_line(&card.agent)
            ));
            ExitStatus::Success
        }
        Ok(StopOutcome::Survived) => fail(format_args!(
            "run {} did not end: look at process {} and try again",
            card.run,
            card.pid.unwrap_or_default()
        )),
        Err(error) => fail(format_args!("run {} could not be told to stop: {error}", card.run)),
    }
}

fn fail(text: impl std::fmt::Display) -> ExitStatus {
    output::print_error(text);
    ExitStatus::Failure
}
