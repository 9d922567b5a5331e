//! Tables and wrapped text in the width of the terminal.

use comfy_table::presets::{NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table};

use super::output;

/// Width of ruled tables in columns if the output is not a terminal.
const DEFAULT_WIDTH: u16 = 100;

/// Returns a table with rules between its rows, at most as wide as the terminal (100 columns without one).
pub(crate) fn ruled_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(output::width().unwrap_or(DEFAULT_WIDTH))
        .set_header(header);
    table
}

/// Returns a table without rules, of columns that are as wide as their content.
pub(crate) fn plain_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header);
    table
}

/// Limits a table to the width of the terminal, but never wraps column `whole`.
///
/// For columns of ids, which users copy. Without a terminal nothing is wrapped.
pub(crate) fn fit_width_around(table: &mut Table, whole: usize) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    if let Some(column) = table.column_mut(whole) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// Aligns columns of numbers to the right. Columns exist only after the header or a row was set.
pub(crate) fn align_right(table: &mut Table, columns: &[usize]) {
    for index in columns {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Wraps `text` behind `heading` to the width of the terminal, with a hanging indent.
///
/// Words are never split: words longer than a line are paths, which users copy.
pub(crate) fn wrap_behind_heading(heading: &str, text: &str) -> String {
    let width = output::width().map_or(usize::MAX, usize::from);
    let indent = heading.chars().count();
    let (mut lines, mut line) = (String::new(), heading.to_owned());
    for word in text.split_whitespace() {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > width {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line += word;
    }
    lines + &line
}
