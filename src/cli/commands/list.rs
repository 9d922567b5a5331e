//! `adjutant list`: the agents of the project.

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde::Serialize;

use super::exit::Exit;
use super::fit::fit;
use super::render;
use crate::base::{shorten, without_controls};
use crate::catalog::{Callers, Entry, Origin, Snapshot};
use crate::config::Settings;

const REASON_CHARACTERS: usize = 160;

/// What `list` may be told.
#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Print the agents as JSON
    #[arg(long)]
    json: bool,
}

/// One agent for a program.
#[derive(Serialize)]
struct Row<'e> {
    name: &'e str,
    display_name: Option<&'e str>,
    description: Option<&'e str>,
    callers: Vec<&'e str>,
    session: Option<bool>,
    state: &'static str,
    reason: Option<String>,
    origin: &'e Origin,
    file: String,
}

pub(super) fn run(settings: &Settings, arguments: &ListArguments) -> Exit {
    let snapshot = Snapshot::load(settings);
    for found in snapshot.folder_diagnostics().iter().chain(snapshot.defaults_diagnostics()) {
        render::talk(found);
    }
    if arguments.json {
        let rows: Vec<Row<'_>> = snapshot.entries().iter().map(|e| row(e, settings)).collect();
        render::json(&rows);
    } else if snapshot.entries().is_empty() {
        render::talk("there are no agents yet: `adjutant new AGENT` makes the first");
    } else {
        render::data(table(&snapshot, settings));
    }
    Exit::Success
}

fn row<'e>(entry: &'e Entry, settings: &Settings) -> Row<'e> {
    let agent = entry.agent();
    let (state, reason) = state(entry);
    let file = entry.file.strip_prefix(&settings.root).unwrap_or(&entry.file);
    Row {
        name: &entry.name,
        display_name: agent.and_then(|agent| agent.display_name.as_deref()),
        description: agent.map(|agent| agent.description.as_str()),
        callers: agent.map(|agent| callers(&agent.allowed_callers)).unwrap_or_default(),
        session: agent.map(|agent| agent.session),
        state,
        reason,
        origin: &entry.origin,
        file: file.display().to_string(),
    }
}

/// `ok`, `warned` or `broken`, with the first reason.
fn state(entry: &Entry) -> (&'static str, Option<String>) {
    if let Some(reason) = entry.reason() {
        return ("broken", Some(reason));
    }
    match entry.warnings().next() {
        Some(warning) => ("warned", Some(warning.to_string())),
        None => ("ok", None),
    }
}

fn callers(callers: &Callers) -> Vec<&str> {
    match callers {
        Callers::Anyone => vec!["*"],
        Callers::Named(names) => names.iter().map(String::as_str).collect(),
    }
}

fn table(snapshot: &Snapshot, settings: &Settings) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header([
        "agent",
        "description",
        "callers",
        "session",
        "state",
    ]);
    fit(&mut table);
    for entry in snapshot.entries() {
        table.add_row(cells(&row(entry, settings)));
    }
    table
}

fn cells(row: &Row<'_>) -> [String; 5] {
    let name = match row.origin {
        Origin::Project => row.name.to_owned(),
        Origin::Extension(extension) => format!("{}\nfrom {extension}", row.name),
    };
    let session = match row.session {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    };
    let state = match &row.reason {
        Some(reason) => format!("{}: {}", row.state, shorten(reason, REASON_CHARACTERS)),
        None => row.state.to_owned(),
    };
    let description = row.description.unwrap_or("–");
    [name, description.to_owned(), row.callers.join(", "), session.to_owned(), state]
        .map(|cell| without_controls(&cell))
}
