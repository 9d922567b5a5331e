//! `adjutant list`: lists the agents of the project.

use clap::Args;

use crate::api::{AgentObject, DefinitionState};
use crate::catalog::{AgentOrigin, AllowedCallers, CatalogEntry, Snapshot};
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandReport, CommandResult, JsonArgument, output};
use crate::config::Settings;
use crate::util::one_line;

/// List the agents of the project, sound and broken
///
/// Exit code 0, also when agents are broken: `check` is the command that judges.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant list\n  \
    adjutant list --json | jq -r '.[] | select(.state == \"broken\") | .reason'")]
pub(crate) struct ListArguments {
    #[command(flatten)]
    format: JsonArgument,
}

impl CliCommand for ListArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let snapshot = Snapshot::load(settings);
        for found in snapshot.folder_diagnostics().iter().chain(snapshot.defaults_diagnostics()) {
            output::print_message(found);
        }
        let agents: Vec<AgentObject> =
            snapshot.entries().iter().map(|entry| agent_object(entry, settings)).collect();
        let none = "there are no agents yet: `adjutant new AGENT` makes the first";
        CommandReport::list(&agents, none, || table(&agents)).print(self.format)
    }
}

/// Returns the members of the list; `show` adds others.
pub(crate) fn agent_object(entry: &CatalogEntry, settings: &Settings) -> AgentObject {
    let agent = entry.agent();
    let (state, reason) = match (entry.reason(), entry.warnings().next()) {
        (Some(reason), _) => (DefinitionState::Broken, Some(reason)),
        (None, Some(warning)) => (DefinitionState::Warned, Some(warning.to_string())),
        (None, None) => (DefinitionState::Ok, None),
    };
    AgentObject {
        agent: entry.name.clone(),
        state,
        reason,
        display_name: agent.and_then(|agent| agent.display_name.clone()),
        description: agent.map(|agent| agent.description.clone()),
        allowed_callers: agent.map(|agent| callers(&agent.allowed_callers)).unwrap_or_default(),
        session: agent.map(|agent| agent.session),
        extension: match &entry.origin {
            AgentOrigin::Project => None,
            AgentOrigin::Extension(extension) => Some(extension.clone()),
        },
        file: settings.relative(&entry.file),
        settings: None,
        builtin_tools: None,
        servers: None,
        prompt: None,
        memory: None,
        findings: None,
    }
}

fn callers(callers: &AllowedCallers) -> Vec<String> {
    match callers {
        AllowedCallers::Anyone => vec!["*".to_owned()],
        AllowedCallers::Named(names) => names.clone(),
    }
}

fn table(rows: &[AgentObject]) -> Table {
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

fn cells(row: &AgentObject) -> [String; 5] {
    let name = match &row.extension {
        None => row.agent.clone(),
        Some(extension) => format!("{}\nfrom {extension}", row.agent),
    };
    let session = match row.session {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    };
    let state = match &row.reason {
        Some(reason) => format!("{}: {}", row.state.as_str(), one_line(reason)),
        None => row.state.as_str().to_owned(),
    };
    let description = row.description.as_deref().unwrap_or("–");
    [name, description.to_owned(), row.allowed_callers.join(", "), session.to_owned(), state]
}
