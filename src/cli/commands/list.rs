//! `adjutant list`: lists the agents of the project.

use clap::Args;
use serde::Serialize;

use crate::catalog::{AgentOrigin, AllowedCallers, CatalogEntry, Snapshot};
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandResult, ExitStatus, output};
use crate::config::Settings;
use crate::util::one_line;

/// List the agents of the project, sound and broken
///
/// Exit code 0, also when agents are broken: `check` is the command that judges.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant list\n  \
    adjutant list --json | jq -r '.[] | select(.state == \"broken\") | .reason'")]
pub(crate) struct ListArguments {
    /// Print the agents as JSON
    #[arg(long)]
    json: bool,
}

/// An agent in the table and in the JSON output.
#[derive(Serialize)]
struct AgentRow<'e> {
    name: &'e str,
    display_name: Option<&'e str>,
    description: Option<&'e str>,
    callers: Vec<&'e str>,
    session: Option<bool>,
    state: &'static str,
    reason: Option<String>,
    origin: &'e AgentOrigin,
    file: String,
}

impl CliCommand for ListArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let snapshot = Snapshot::load(settings);
        for found in snapshot.folder_diagnostics().iter().chain(snapshot.defaults_diagnostics()) {
            output::print_message(found);
        }
        let rows: Vec<AgentRow<'_>> = snapshot.entries().iter().map(|e| row(e, settings)).collect();
        let none = "there are no agents yet: `adjutant new AGENT` makes the first";
        output::print_list(self.json, &rows, none, || table(&rows));
        Ok(ExitStatus::Success)
    }
}

fn row<'e>(entry: &'e CatalogEntry, settings: &Settings) -> AgentRow<'e> {
    let agent = entry.agent();
    let (state, reason) = state(entry);
    AgentRow {
        name: &entry.name,
        display_name: agent.and_then(|agent| agent.display_name.as_deref()),
        description: agent.map(|agent| agent.description.as_str()),
        callers: agent.map(|agent| callers(&agent.allowed_callers)).unwrap_or_default(),
        session: agent.map(|agent| agent.session),
        state,
        reason,
        origin: &entry.origin,
        file: settings.relative(&entry.file),
    }
}

/// Returns `ok`, `warned` or `broken`, with the first reason.
fn state(entry: &CatalogEntry) -> (&'static str, Option<String>) {
    if let Some(reason) = entry.reason() {
        return ("broken", Some(reason));
    }
    match entry.warnings().next() {
        Some(warning) => ("warned", Some(warning.to_string())),
        None => ("ok", None),
    }
}

fn callers(callers: &AllowedCallers) -> Vec<&str> {
    match callers {
        AllowedCallers::Anyone => vec!["*"],
        AllowedCallers::Named(names) => names.iter().map(String::as_str).collect(),
    }
}

fn table(rows: &[AgentRow<'_>]) -> Table {
    let mut table = Table::new([
        Column::text("AGENT"),
        Column::text("DESCRIPTION").drop(3),
        Column::text("CALLERS").drop(2),
        Column::whole("SESSION").drop(1),
        Column::text("STATE"),
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    table
}

fn cells(row: &AgentRow<'_>) -> [String; 5] {
    let name = match row.origin {
        AgentOrigin::Project => row.name.to_owned(),
        AgentOrigin::Extension(extension) => format!("{}\nfrom {extension}", row.name),
    };
    let session = match row.session {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    };
    let state = match &row.reason {
        Some(reason) => format!("{}: {}", row.state, one_line(reason)),
        None => row.state.to_owned(),
    };
    let description = row.description.unwrap_or("–");
    [name, description.to_owned(), row.callers.join(", "), session.to_owned(), state]
}
