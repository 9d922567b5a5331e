//! The matrix as a self-contained HTML page without external resources.

use maud::{Markup, html};

use super::build::{Matrix, MatrixCell, MatrixColumn, MatrixRow, RowKind};
use super::command::short_rule;
use crate::cli::html_page::{HtmlPage, page_text};

const TITLE: &str = "Who may do what";

pub(crate) fn to_html(matrix: &Matrix) -> String {
    let body = html! {
        h1 { (TITLE) }
        p {
            "Every agent against every server and tool that the files name. Point at a cell for the whole sentence; \
             the small line is the rule that decided."
        }
        @for note in &matrix.notes {
            p.note { (page_text(note)) }
        }
        .legend {
            span.allow { span.word { "yes" } " allowed" }
            span.deny { span.word { "no" } " denied" }
            span { "· does not exist for this agent" }
        }
        input #wanted hidden type="search" placeholder="Filter servers and tools"
            aria-label="Filter servers and tools";
        .frame {
            table {
                thead { tr { th {} @for column in &matrix.agents { (heading(column)) } } }
                tbody { (rows(matrix)) }
            }
        }
    };
    let (style, script) = (include_str!("page.css"), Some(include_str!("page.js")));
    HtmlPage { title: TITLE, style, script, body }.render()
}

fn heading(column: &MatrixColumn) -> Markup {
    html! {
        th scope="col" {
            (page_text(&column.name))
            span.tag { @if column.subagent { "subagent" } @else { "gateway rules" } }
        }
    }
}

fn rows(matrix: &Matrix) -> Markup {
    let first_builtin = matrix.rows.iter().position(|row| row.kind == RowKind::Builtin);
    html! {
        @for (index, row) in matrix.rows.iter().enumerate() {
            @if Some(index) == first_builtin {
                tr.group data-name="built-in tools" {
                    th scope="rowgroup" { "built-in tools" }
                    @for _ in &matrix.agents { td {} }
                }
            }
            (matrix_row(row, &matrix.agents))
        }
    }
}

fn matrix_row(row: &MatrixRow, agents: &[MatrixColumn]) -> Markup {
    let class = match row.kind {
        RowKind::Server => "group",
        RowKind::Tool | RowKind::Pattern | RowKind::Builtin => "tool",
        RowKind::OtherTools => "other",
    };
    let tag = match (row.kind, &row.private_to) {
        (RowKind::Server, Some(owner)) => Some(format!("only for {}", page_text(owner))),
        (RowKind::Pattern, _) => Some("pattern".to_owned()),
        _ => None,
    };
    let name = row.tool.as_deref().or(row.server.as_deref()).unwrap_or_default();
    let search =
        [row.server.as_deref(), row.tool.as_deref()].map(Option::unwrap_or_default).join(" ");
    html! {
        tr class=(class) data-name=(page_text(&search)) {
            th scope="row" { (page_text(name)) @if let Some(tag) = tag { span.tag { (tag) } } }
            @for (cell, agent) in row.cells.iter().zip(agents) { (matrix_cell(cell.as_ref(), agent)) }
        }
    }
}

fn matrix_cell(cell: Option<&MatrixCell>, agent: &MatrixColumn) -> Markup {
    let Some(cell) = cell else { return html! { td.none { "·" } } };
    let class = cell.decision.as_str();
    let file = cell.file.as_ref().map(|file| page_text(&file.display().to_string()));
    let place = match (file, cell.line) {
        (Some(file), Some(line)) => format!("\n{file}:{line}"),
        (Some(file), None) => format!("\n{file}"),
        (None, _) => String::new(),
    };
    html! {
        td class=(class) title={ (page_text(&cell.reason)) (place) } {
            span.word { (cell.word()) }
            span.rule { (page_text(&short_rule(cell, agent))) }
        }
    }
}
