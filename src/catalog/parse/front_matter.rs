//! Splits `agent.md` into front matter and prompt.
//!
//! Malformed front matter is an error, never empty settings.

use gray_matter::engine::Engine;
use gray_matter::{Matter, Pod};

use super::super::diagnostic::Severity;
use super::super::problem::{ProblemTarget, Problems};
use super::positions::SourcePosition;

const FENCE: &str = "---";

/// Parts of an agent file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FrontMatter<'t> {
    /// YAML between the fences.
    pub(crate) yaml: &'t str,
    /// Line of the file where the YAML begins.
    pub(crate) first_line: usize,
    /// System prompt.
    pub(crate) body: String,
}

/// Splits the file, or reports an error and returns `None`.
pub(crate) fn split<'t>(text: &'t str, problems: &Problems) -> Option<FrontMatter<'t>> {
    let start = usize::from(text.starts_with('\u{feff}')) * '\u{feff}'.len_utf8();
    let text = text.get(start..).unwrap_or_default();
    if start > 0 {
        problems
            .error("byte-order-mark", ProblemTarget::File, "the file begins with a byte order mark")
            .help("save it as UTF-8 without BOM");
    }
    warn_about_crlf(text, problems);
    let yaml = fenced_text(text, problems)?;
    let entity = Matter::<SplitOnlyEngine>::new().parse::<serde::de::IgnoredAny>(text).ok()?;
    Some(FrontMatter { yaml, first_line: 2, body: entity.content })
}

/// `gray_matter` only splits; the YAML is parsed elsewhere, with positions.
struct SplitOnlyEngine;

impl Engine for SplitOnlyEngine {
    fn parse(_: &str) -> gray_matter::Result<Pod> {
        Ok(Pod::Null)
    }
}

fn warn_about_crlf(text: &str, problems: &Problems) {
    if let Some(line) = text.split('\n').position(|line| line.ends_with('\r')) {
        let column = text.split('\n').nth(line).map_or(1, |line| line.chars().count());
        problems
            .add(
                Severity::Warning,
                "crlf",
                ProblemTarget::Place(SourcePosition::at(line + 1, column)),
                "lines end with CR LF",
            )
            .help("save it with LF line ends");
    }
}

/// Returns the text between the first line and the next fence.
fn fenced_text<'t>(text: &'t str, problems: &Problems) -> Option<&'t str> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        report_missing(text, first, problems);
        return None;
    }
    let begin = first.len();
    let mut end = begin;
    for line in lines {
        if line.trim_end() == FENCE {
            return text.get(begin..end);
        }
        end += line.len();
    }
    let message = "the front matter is opened by `---` and never closed";
    problems
        .error(
            "unterminated-front-matter",
            ProblemTarget::Place(SourcePosition { line: 1, column: 1, length: 3 }),
            message,
        )
        .help("put a line with `---` between the settings and the prompt");
    None
}

fn report_missing(text: &str, first: &str, problems: &Problems) {
    let fence = text.lines().position(|line| line.trim_end() == FENCE);
    let message = if first.trim() == FENCE {
        "the first `---` is indented, so this is no front matter"
    } else if first.trim().is_empty() && fence.is_some() {
        "something stands before the first `---`, so this is no front matter"
    } else {
        "there is no front matter: the first line is not `---`"
    };
    problems
        .error("missing-front-matter", ProblemTarget::Place(SourcePosition::START), message)
        .help("begin with `---`, then `description: \"…\"`, then another `---`, then the prompt");
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn split_valid(text: &str) -> (String, String) {
        let problems = Problems::default();
        let parts = split(text, &problems).unwrap();
        assert!(!problems.has_errors(), "{problems:?}");
        (parts.yaml.to_owned(), parts.body)
    }

    #[test]
    fn front_matter_and_prompt_are_separated() {
        let text = "---\na: 1\n---\nOne\n\n---\nTwo\n";
        assert_eq!(split_valid(text), ("a: 1\n".to_owned(), "One\n\n---\nTwo".to_owned()));
        assert_eq!(split_valid("---\n---\n"), (String::new(), String::new()));
    }

    #[test_case("---\na: 1\n" => "unterminated-front-matter")]
    #[test_case("" => "missing-front-matter")]
    #[test_case("# Title\n---\na: 1\n---\n" => "missing-front-matter")]
    #[test_case(" ---\na: 1\n---\n" => "missing-front-matter")]
    #[test_case("\u{feff}---\na: 1\n---\n" => "byte-order-mark")]
    fn a3_malformed_front_matter_is_an_error(text: &str) -> &'static str {
        let problems = Problems::default();
        split(text, &problems);
        assert!(problems.has_errors());
        problems.take()[0].code
    }
}
