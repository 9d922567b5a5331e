//! Tables and lines that fit where they are shown.

use comfy_table::{ColumnConstraint, ContentArrangement, Table};

/// A table without a terminal to fit is this wide.
const PLAIN_WIDTH: u16 = 100;

/// Makes a table as wide as the terminal.
pub(super) fn fit(table: &mut Table) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(PLAIN_WIDTH);
    }
}

/// The same, for a table with ids: that column is never broken, since people copy what is in it. Without a terminal
/// nothing is.
pub(super) fn fit_around(table: &mut Table, whole: usize) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(column) = table.column_mut(whole) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// A text behind a heading, in lines that fit the terminal and begin below each other. Words stay whole: what is longer
/// than a line is a path, and people copy those.
pub(super) fn behind(heading: &str, text: &str) -> String {
    let width = Table::new().width().map_or(usize::MAX, usize::from);
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
