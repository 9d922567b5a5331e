//! Shows findings to the author of a file: the line, what is wrong, what to write instead.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceOffset, SourceSpan, SpanContents,
};

use super::terminal;
use crate::base::{read_bounded, without_controls};
use crate::catalog::{Diagnostic, Severity};

const MAX_SHOWN_BYTES: u64 = 1024 * 1024;
const WIDTH: usize = 110;

/// The findings as text, each with its line of the file.
pub(super) fn render(found: &[Diagnostic], root: &Path) -> String {
    let theme = if terminal::colours() {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_links(false)
        .with_context_lines(1);
    let mut sources = Sources { root, texts: HashMap::new() };
    let mut text = String::new();
    for diagnostic in found {
        let finding = Finding { diagnostic, source: sources.get(&diagnostic.file) };
        if handler.render_report(&mut text, &finding).is_err() {
            text.push_str(&diagnostic.to_string());
        }
        text.push('\n');
    }
    text
}

/// `3 errors, 1 warning`.
pub(super) fn count(found: &[Diagnostic]) -> String {
    let errors = found.iter().filter(|found| found.is_error()).count();
    format!("{}, {}", plural(errors, "error"), plural(found.len() - errors, "warning"))
}

/// `1 agent`, `2 agents`.
pub(super) fn plural(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// The texts that findings point into, each read once.
struct Sources<'r> {
    root: &'r Path,
    texts: HashMap<PathBuf, Option<String>>,
}

impl Sources<'_> {
    fn get(&mut self, file: &Path) -> Option<Lines> {
        let text = self.texts.entry(file.to_path_buf()).or_insert_with(|| {
            let bytes = read_bounded(&self.root.join(file), MAX_SHOWN_BYTES).ok()?;
            Some(shown(&String::from_utf8_lossy(&bytes)))
        });
        text.clone().map(|text| Lines { name: file.display().to_string(), text })
    }
}

/// The text without anything that could move a cursor; columns stay where they are.
fn shown(text: &str) -> String {
    let visible = |c: char| {
        let harmless =
            c == '\n' || without_controls(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8();
        if harmless { c } else { '\u{fffd}' }
    };
    text.replace("\r\n", "\n").chars().map(visible).collect()
}

/// A file that shows the whole line of what is meant, and no others.
#[derive(Debug)]
struct Lines {
    name: String,
    text: String,
}

impl SourceCode for Lines {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let exact = self.text.read_span(span, 0, 0)?;
        let (offset, line, column) = (span.offset(), exact.line(), exact.column());
        // Without context the reader asks where exactly it is; with context, for something to show.
        let (start, end) = if before + after == 0 {
            (offset, offset + span.len())
        } else {
            let start =
                self.text.get(..offset).and_then(|head| head.rfind('\n')).map_or(0, |n| n + 1);
            let rest = self.text.get(offset..).unwrap_or_default();
            (start, offset + rest.find('\n').unwrap_or(rest.len()))
        };
        let data = self.text.get(start..end).ok_or(MietteError::OutOfBounds)?.as_bytes();
        let column = if before + after == 0 { column } else { 0 };
        let shown = SourceSpan::from((start, end - start));
        let name = self.name.clone();
        Ok(Box::new(MietteSpanContents::new_named(name, data, shown, line, column, 1)))
    }
}

#[derive(Debug)]
struct Finding<'d> {
    diagnostic: &'d Diagnostic,
    source: Option<Lines>,
}

impl fmt::Display for Finding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a line to show, the file has to be named here.
        if self.source.is_none() {
            write!(f, "{}: ", self.diagnostic.file.display())?;
        }
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Finding<'_> {}

impl miette::Diagnostic for Finding<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.diagnostic.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let text = &self.source.as_ref()?.text;
        let Diagnostic { line, column, length, .. } = *self.diagnostic;
        let start = SourceOffset::from_location(text, line, column).offset();
        let marked: usize =
            text.get(start..)?.lines().next()?.chars().take(length).map(char::len_utf8).sum();
        Some(Box::new(std::iter::once(LabeledSpan::underline((start, marked)))))
    }
}
