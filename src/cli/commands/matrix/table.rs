//! The matrix on a terminal.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table, TableComponent};

use super::build::{Cell, Column, Kind, Matrix, Row};
use crate::base::{one_line, shorten};
use crate::policy::Decision;

const PLAIN_WIDTH: u16 = 140;

pub(super) fn text(matrix: &Matrix) -> String {
    if matrix.agents.is_empty() || matrix.rows.is_empty() {
        return "nobody is granted anything: there are no agents, or nothing that they could use"
            .to_owned();
    }
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(std::iter::once(String::new()).chain(matrix.agents.iter().map(heading)));
    if table.width().is_none() {
        table.set_width(PLAIN_WIDTH);
    }
    for row in &matrix.rows {
        let cells =
            row.cells.iter().zip(&matrix.agents).map(|(cell, agent)| shown(cell.as_ref(), agent));
        table.add_row(std::iter::once(name(row)).chain(cells));
    }
    table.to_string()
}

fn heading(column: &Column) -> String {
    clean(&column.name)
}

fn name(row: &Row) -> String {
    let tool = clean(row.tool.as_deref().unwrap_or_default());
    match (row.kind, &row.server) {
        (Kind::Server, Some(server)) => match &row.private_to {
            Some(owner) => format!("{} (own server of {})", clean(server), clean(owner)),
            None => clean(server),
        },
        (Kind::Builtin, _) => format!("builtin:{tool}"),
        (Kind::Server | Kind::Tool | Kind::Pattern | Kind::OtherTools, _) => format!("  {tool}"),
    }
}

fn shown(cell: Option<&Cell>, agent: &Column) -> String {
    let Some(cell) = cell else { return "·".to_owned() };
    let word = match cell.decision {
        Decision::Allow => "yes",
        Decision::Deny => "no",
    };
    format!("{word}  {}", short_rule(cell, agent))
}

/// The rule without the part that says whose it is: the column says that already.
pub(super) fn short_rule(cell: &Cell, agent: &Column) -> String {
    let own = [format!("agents.{}.", agent.name), format!("agents[\"{}\"].", agent.name)];
    let short = own.iter().find_map(|own| cell.rule.strip_prefix(own.as_str()));
    clean(short.unwrap_or(&cell.rule))
}

fn clean(text: &str) -> String {
    one_line(&shorten(text, 80))
}
