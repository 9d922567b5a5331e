//! Renders diagnostics for the author of a file: source line, message, help.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{CommandReport, output};
use crate::api::{FindingObject, ReportLevel};
use crate::catalog::{Diagnostic, Severity};
use crate::cli::format::plural;
use crate::store::read_bounded;
use crate::util::strip_control_chars;

const MAX_SOURCE_BYTES: u64 = 1024 * 1024;
const WIDTH: usize = 110;

/// Converts a diagnostic for `--json`.
pub(crate) fn to_finding(found: &Diagnostic) -> FindingObject {
    FindingObject {
        level: match found.severity {
            Severity::Error => ReportLevel::Error,
            Severity::Warning => ReportLevel::Warning,
        },
        code: found.code.to_owned(),
        message: found.message.clone(),
        help: found.help.clone(),
        file: Some(found.file.display().to_string()),
        line: Some(found.line),
        column: Some(found.column),
    }
}

/// Writes diagnostics to stderr, each with its source line, and an empty line behind them.
pub(crate) fn print(found: &[Diagnostic], root: &Path) {
    if !found.is_empty() {
        output::print_styled(format_args!("{}\n", render(found, root).trim_end()));
    }
}

/// Adds the text of diagnostics, each with its source line, and an empty line behind them.
pub(crate) fn add_to(output: CommandReport, found: &[Diagnostic], root: &Path) -> CommandReport {
    match found {
        [] => output,
        found => output.styled(format_args!("{}\n", render(found, root).trim_end())),
    }
}

/// Renders diagnostics as text, each with its source line.
pub(crate) fn render(found: &[Diagnostic], root: &Path) -> String {
    let renderer = if output::use_colours() { Renderer::styled() } else { Renderer::plain() }
        .term_width(WIDTH);
    let mut sources = SourceTexts { root, texts: HashMap::new() };
    let mut text = String::new();
    for diagnostic in found {
        let file = diagnostic.file.display().to_string();
        let report = report(diagnostic, &file, sources.get(&diagnostic.file));
        text.push_str(&renderer.render(&[report]));
        text.push_str("\n\n");
    }
    text
}

fn report<'a>(diagnostic: &'a Diagnostic, file: &'a str, source: Option<&'a str>) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&diagnostic.message).id(diagnostic.code);
    let mark = source.and_then(|source| Some((source, marked_range(source, diagnostic)?)));
    let group = match mark {
        Some((source, range)) => title.element(
            Snippet::source(source).path(file).annotation(AnnotationKind::Primary.span(range)),
        ),
        // Without a source line, the place names the file.
        None => title.element(Origin::path(file)),
    };
    group.elements(diagnostic.help.as_ref().map(|help| Level::HELP.message(help)))
}

/// Returns the bytes that a diagnostic marks; `None` if its line does not exist.
fn marked_range(source: &str, diagnostic: &Diagnostic) -> Option<Range<usize>> {
    let Diagnostic { line, column, length, .. } = *diagnostic;
    let before: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let text = source.get(before..)?.lines().next()?;
    let bytes = |count: usize| text.chars().take(count).map(char::len_utf8).sum::<usize>();
    let from = column.saturating_sub(1);
    Some(before + bytes(from)..before + bytes(from.saturating_add(length)))
}

/// Formats the number of errors and warnings: `3 errors, 1 warning`.
pub(crate) fn format_counts(found: &[Diagnostic]) -> String {
    let errors = found.iter().filter(|found| found.is_error()).count();
    format!("{}, {}", plural(errors, "error"), plural(found.len() - errors, "warning"))
}

/// Files that diagnostics refer to, each read once and only up to 1 MiB.
struct SourceTexts<'r> {
    root: &'r Path,
    texts: HashMap<PathBuf, Option<String>>,
}

impl SourceTexts<'_> {
    fn get(&mut self, file: &Path) -> Option<&str> {
        let text = self.texts.entry(file.to_path_buf()).or_insert_with(|| {
            let bytes = read_bounded(&self.root.join(file), MAX_SOURCE_BYTES).ok()?;
            Some(replace_controls(&String::from_utf8_lossy(&bytes)))
        });
        text.as_deref()
    }
}

/// Replaces control characters by U+FFFD; columns stay unchanged.
fn replace_controls(text: &str) -> String {
    let visible = |c: char| {
        let harmless =
            c == '\n' || strip_control_chars(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8();
        if harmless { c } else { '\u{fffd}' }
    };
    text.replace("\r\n", "\n").chars().map(visible).collect()
}
