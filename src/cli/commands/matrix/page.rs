//! The matrix as a page: everything in one file, nothing fetched, readable in light and dark.

use std::fmt::Write;

use super::build::{Cell, Column, Kind, Matrix, Row};
use super::table::short_rule;
use crate::base::{one_line, shorten};
use crate::policy::Decision;

const STYLE: &str = include_str!("../../matrix/page.css");
const SCRIPT: &str = include_str!("../../matrix/page.js");

pub(super) fn html(matrix: &Matrix) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>Who may do what</title>\n<style>\n{STYLE}</style>\n<h1>Who may do what</h1>\n\
         <p>Every agent against every server and tool that the files name. Point at a cell for the whole sentence; \
         the small line is the rule that decided.</p>\n{}\
         <div class=\"legend\"><span class=\"allow\"><span class=\"word\">yes</span> allowed</span>\
         <span class=\"deny\"><span class=\"word\">no</span> denied</span><span>· does not exist for this agent</span></div>\n\
         <input id=\"wanted\" hidden type=\"search\" placeholder=\"Filter servers and tools\" aria-label=\"Filter servers and tools\">\n\
         <div class=\"frame\"><table>\n<thead><tr><th></th>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n\
         <script>\n{SCRIPT}</script>\n</html>",
        matrix.notes.iter().map(|text| note(text)).collect::<String>(),
        matrix.agents.iter().map(heading).collect::<String>(),
        rows(matrix),
    );
    page
}

fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escape(text))
}

fn heading(column: &Column) -> String {
    let tag = if column.subagent { "subagent" } else { "gateway rules" };
    format!("<th scope=\"col\">{}<span class=\"tag\">{tag}</span></th>", escape(&column.name))
}

fn rows(matrix: &Matrix) -> String {
    let mut rows = String::new();
    let mut in_builtins = false;
    for row in &matrix.rows {
        if row.kind == Kind::Builtin && !in_builtins {
            in_builtins = true;
            let empty = "<td></td>".repeat(matrix.agents.len());
            let _ = writeln!(
                rows,
                "<tr class=\"group\" data-name=\"built-in tools\"><th scope=\"rowgroup\">built-in tools</th>{empty}</tr>"
            );
        }
        rows.push_str(&line(row, &matrix.agents));
    }
    rows
}

fn line(row: &Row, agents: &[Column]) -> String {
    let class = match row.kind {
        Kind::Server => "group",
        Kind::Tool | Kind::Pattern | Kind::Builtin => "tool",
        Kind::OtherTools => "other",
    };
    let tag = match (row.kind, &row.private_to) {
        (Kind::Server, Some(owner)) => {
            format!("<span class=\"tag\">only for {}</span>", escape(owner))
        }
        (Kind::Pattern, _) => "<span class=\"tag\">pattern</span>".to_owned(),
        _ => String::new(),
    };
    let name = row.tool.as_deref().or(row.server.as_deref()).unwrap_or_default();
    let search =
        [row.server.as_deref(), row.tool.as_deref()].map(Option::unwrap_or_default).join(" ");
    let cells: String =
        row.cells.iter().zip(agents).map(|(cell, agent)| shown(cell.as_ref(), agent)).collect();
    format!(
        "<tr class=\"{class}\" data-name=\"{}\"><th scope=\"row\">{}{tag}</th>{cells}</tr>\n",
        escape(&search),
        escape(name),
    )
}

fn shown(cell: Option<&Cell>, agent: &Column) -> String {
    let Some(cell) = cell else { return "<td class=\"none\">·</td>".to_owned() };
    let (class, word) = match cell.decision {
        Decision::Allow => ("allow", "yes"),
        Decision::Deny => ("deny", "no"),
    };
    let place = match (&cell.file, cell.line) {
        (Some(file), Some(line)) => {
            format!("&#10;{}:{line}", escape(&file.display().to_string()))
        }
        (Some(file), None) => format!("&#10;{}", escape(&file.display().to_string())),
        (None, _) => String::new(),
    };
    format!(
        "<td class=\"{class}\" title=\"{}{place}\"><span class=\"word\">{word}</span><span class=\"rule\">{}</span></td>",
        escape(&cell.reason),
        escape(&short_rule(cell, agent)),
    )
}

/// Names come from files and callers; here they are text and nothing else.
fn escape(text: &str) -> String {
    let text = one_line(&shorten(text, 600));
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
