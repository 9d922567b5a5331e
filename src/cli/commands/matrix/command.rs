//! `adjutant matrix`: prints the matrix as a table for the terminal, JSON or HTML.

use std::iter;

use clap::Args;

use super::build::{Matrix, MatrixCell, MatrixColumn, MatrixFilter, MatrixRow, RowKind};
use super::page;
use crate::cli::permissions_view::PermissionsView;
use crate::cli::table::{Column, Table, wrap_line};
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument, output,
};
use crate::config::Settings;
use crate::util::{one_line, shorten};

/// Show what every agent may use: servers, tools and built-in tools, each with its rule
///
/// Exit code 0; 2 if the rules are broken; 3 if an agent or a server is not known.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  adjutant matrix --agent dev\n  adjutant matrix --html > matrix.html"
)]
pub(crate) struct MatrixArguments {
    /// Only this agent; may be given several times
    #[arg(long, value_name = "NAME")]
    agent: Vec<String>,

    /// Only this server; may be given several times
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,

    #[command(flatten)]
    format: JsonArgument,

    /// Print it as a page that needs nothing else
    #[arg(long, conflicts_with = "json")]
    html: bool,
}

impl CliCommand for MatrixArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let rights = PermissionsView::load(settings);
        rights.rules().map_err(|reason| CommandError::new(ErrorCode::Undetermined, reason))?;
        let filter = MatrixFilter { agents: &self.agent, servers: &self.server };
        let matrix = Matrix::build_checked(settings, &rights, &filter)?;
        for note in &matrix.notes {
            output::print_message(wrap_line(&format!("note: {note}")));
        }
        let text = if self.html { page::to_html(&matrix) } else { to_text(&matrix) };
        CommandReport::new(&matrix.decisions()).data(text).print(self.format)
    }
}

fn to_text(matrix: &Matrix) -> String {
    if matrix.agents.is_empty() || matrix.rows.is_empty() {
        return "nobody is granted anything: there are no agents, or nothing that they could use"
            .to_owned();
    }
    let header = iter::once(String::new())
        .chain(matrix.agents.iter().map(|column| clean_cell(&column.name)));
    let mut table = Table::new(header.map(Column::text));
    for row in &matrix.rows {
        let cells = row.cells.iter().zip(&matrix.agents);
        let cells = cells.map(|(cell, agent)| format_cell(cell.as_ref(), agent));
        table.add_row(iter::once(row_label(row)).chain(cells));
    }
    table.to_string()
}

fn row_label(row: &MatrixRow) -> String {
    let tool = clean_cell(row.tool.as_deref().unwrap_or_default());
    match (row.kind, &row.server) {
        (RowKind::Server, Some(server)) => match &row.private_to {
            Some(owner) => format!("{} (own server of {})", clean_cell(server), clean_cell(owner)),
            None => clean_cell(server),
        },
        (RowKind::Builtin, _) => format!("builtin:{tool}"),
        (RowKind::Server | RowKind::Tool | RowKind::Pattern | RowKind::OtherTools, _) => {
            format!("  {tool}")
        }
    }
}

fn format_cell(cell: Option<&MatrixCell>, agent: &MatrixColumn) -> String {
    let Some(cell) = cell else { return "·".to_owned() };
    format!("{}  {}", cell.word(), short_rule(cell, agent))
}

/// Returns the path of the rule without the agent's prefix, which the column header shows.
pub(crate) fn short_rule(cell: &MatrixCell, agent: &MatrixColumn) -> String {
    let own = [format!("agents.{}.", agent.name), format!("agents[\"{}\"].", agent.name)];
    let short = own.iter().find_map(|own| cell.rule.strip_prefix(own.as_str()));
    clean_cell(short.unwrap_or(&cell.rule))
}

fn clean_cell(text: &str) -> String {
    one_line(&shorten(text, 80))
}
