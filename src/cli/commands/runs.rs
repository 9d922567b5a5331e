//! `adjutant runs list`, `adjutant runs show RUN` and `adjutant runs stop RUN`.

use clap::Subcommand;
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::exit::Exit;
use super::fit::fit_around;
use super::render;
use super::story::{ShowRun, recent, show};
use crate::base::{RunId, now, one_line, shorten};
use crate::config::Settings;
use crate::worker::{RunBoard, RunCard, Stopped, stop_run};

/// What to do with the runs that are going on.
#[derive(Debug, Subcommand)]
pub(super) enum RunsCommand {
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

pub(super) fn run(settings: &Settings, command: &RunsCommand) -> Exit {
    let board = RunBoard::at(&settings.data_dir());
    match command {
        RunsCommand::List { all: true, json } => recent(settings, &waiting(&board), *json),
        RunsCommand::List { all: false, json } => list(&board, *json),
        RunsCommand::Show(arguments) => show(settings, arguments),
        RunsCommand::Stop { run } => stop(&board, run),
    }
}

/// Processes that wait for a call: warm ones, and those that keep a conversation.
fn waiting(board: &RunBoard) -> Vec<RunCard> {
    board.list().into_iter().filter(|card| card.idle).collect()
}

fn list(board: &RunBoard, json: bool) -> Exit {
    let mut cards = board.list();
    cards.retain(|card| !card.idle);
    if json {
        render::json(&cards);
    } else if cards.is_empty() {
        render::talk("nothing is running");
    } else {
        render::data(table(&cards));
    }
    Exit::Success
}

pub(super) fn table(cards: &[RunCard]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_header(["RUN", "AGENT", "CALLER", "SINCE", "PID", "TURNS", "COST", "DOING"]);
    for card in cards {
        table.add_row([
            card.run.to_string(),
            one_line(&card.agent),
            one_line(&card.caller),
            age(card),
            card.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            card.progress.turns.to_string(),
            format!("${:.2}", card.progress.cost_usd),
            shorten(&one_line(&card.progress.doing), 40),
        ]);
    }
    fit_around(&mut table, 0);
    table
}

/// How long ago it began, in its largest unit.
fn age(card: &RunCard) -> String {
    let seconds = now().duration_since(card.since).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn stop(board: &RunBoard, wanted: &str) -> Exit {
    let mut found = board.list();
    found.retain(|card| names_run(wanted, card.run));
    match found.as_slice() {
        [] => no(format_args!(
            "no run `{}` is going on: `adjutant runs list` shows what is",
            one_line(wanted)
        )),
        [card] => stop_card(board, card),
        several => no(format_args!(
            "`{}` could be any of {} runs: give more of the id",
            one_line(wanted),
            several.len()
        )),
    }
}

/// Whether a run is meant: by its id, with or without dashes (`--json` writes them), or by the beginning or end of it.
/// Ids begin with the time, so those of one minute differ only at their end.
pub(super) fn names_run(wanted: &str, run: RunId) -> bool {
    let id = run.to_string();
    let wanted = &wanted.replace('-', "");
    !wanted.is_empty() && (id.starts_with(wanted) || id.ends_with(wanted))
}

fn stop_card(board: &RunBoard, card: &RunCard) -> Exit {
    match stop_run(board, card) {
        Ok(Stopped::Over) => {
            render::talk(format_args!("run {} of `{}` is over", card.run, one_line(&card.agent)));
            Exit::Success
        }
        Ok(Stopped::StillThere) => no(format_args!(
            "run {} did not end: look at process {} and try again",
            card.run,
            card.pid.unwrap_or_default()
        )),
        Err(error) => no(format_args!("run {} could not be told to stop: {error}", card.run)),
    }
}

fn no(text: impl std::fmt::Display) -> Exit {
    render::problem(text);
    Exit::Failure
}
