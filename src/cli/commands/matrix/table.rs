//! The matrix as a table for the terminal.

use comfy_table::TableComponent;

use super::build::{Matrix, MatrixCell, MatrixColumn, MatrixRow, RowKind};
use crate::cli::table::ruled_table;
use crate::policy::Decision;
use crate::util::{one_line, shorten};

pub(crate) fn to_text(matrix: &Matrix) -> String {
    if matrix.agents.is_empty() || matrix.rows.is_empty() {
        return "nobody is granted anything: there are no agents, or nothing that they could use"
            .to_owned();
    }
    let header = std::iter::once(String::new()).chain(matrix.agents.iter().map(column_label));
    let mut table = ruled_table(header);
    table
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections);
    for row in &matrix.rows {
        let cells = row
            .cells
            .iter()
            .zip(&matrix.agents)
            .map(|(cell, agent)| format_cell(cell.as_ref(), agent));
        table.add_row(std::iter::once(row_label(row)).chain(cells));
    }
    table.to_string()
}

fn column_label(column: &MatrixColumn) -> String {
    clean_cell(&column.name)
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
    let word = match cell.decision {
        Decision::Allow => "yes",
        Decision::Deny => "no",
    };
    format!("{word}  {}", short_rule(cell, agent))
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
