//! Splits `agent.md` into settings and prompt. A file that is not split cleanly is a mistake, never «no settings».

use gray_matter::engine::Engine;
use gray_matter::{Matter, Pod};

use super::positions::Place;
use super::problem::{At, Problems};

const FENCE: &str = "---";

/// An agent file in two parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'t> {
    /// The settings, between the fences.
    pub(super) yaml: &'t str,
    /// The line of the file the settings begin on.
    pub(super) first_line: usize,
    /// The system prompt.
    pub(super) body: String,
}

/// Splits, or says why it cannot be done.
pub(super) fn split<'t>(text: &'t str, problems: &mut Problems) -> Option<Parts<'t>> {
    let start = usize::from(text.starts_with('\u{feff}')) * '\u{feff}'.len_utf8();
    let text = text.get(start..).unwrap_or_default();
    if start > 0 {
        problems
            .error("byte-order-mark", At::File, "the file begins with a byte order mark")
            .help("save it as UTF-8 without BOM");
    }
    note_line_ends(text, problems);
    let yaml = fenced(text, problems)?;
    let entity = Matter::<SplitOnly>::new().parse::<serde::de::IgnoredAny>(text).ok()?;
    Some(Parts { yaml, first_line: 2, body: entity.content })
}

/// `gray_matter` splits; the settings are read elsewhere, with their positions.
struct SplitOnly;

impl Engine for SplitOnly {
    fn parse(_: &str) -> gray_matter::Result<Pod> {
        Ok(Pod::Null)
    }
}

fn note_line_ends(text: &str, problems: &mut Problems) {
    if let Some(line) = text.split('\n').position(|line| line.ends_with('\r')) {
        let column = text.split('\n').nth(line).map_or(1, |line| line.chars().count());
        problems
            .warning("crlf", At::Place(Place::at(line + 1, column)), "lines end with CR LF")
            .help("save it with LF line ends");
    }
}

/// The text between the first line and the next fence.
fn fenced<'t>(text: &'t str, problems: &mut Problems) -> Option<&'t str> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        say_missing(text, first, problems);
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
            At::Place(Place { line: 1, column: 1, length: 3 }),
            message,
        )
        .help("put a line with `---` between the settings and the prompt");
    None
}

fn say_missing(text: &str, first: &str, problems: &mut Problems) {
    let fence = text.lines().position(|line| line.trim_end() == FENCE);
    let (place, message) = if first.trim() == FENCE {
        (Place::at(1, 1), "the first `---` is indented, so this is no front matter")
    } else if first.trim().is_empty() && fence.is_some() {
        (Place::at(1, 1), "something stands before the first `---`, so this is no front matter")
    } else {
        (Place::at(1, 1), "there is no front matter: the first line is not `---`")
    };
    problems
        .error("missing-front-matter", At::Place(place), message)
        .help("begin with `---`, then `description: \"…\"`, then another `---`, then the prompt");
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn split_well(text: &str) -> (String, String) {
        let mut problems = Problems::default();
        let parts = split(text, &mut problems).unwrap();
        assert!(!problems.has_errors(), "{problems:?}");
        (parts.yaml.to_owned(), parts.body)
    }

    #[test]
    fn settings_and_prompt_are_told_apart() {
        let text = "---\na: 1\n---\nOne\n\n---\nTwo\n";
        assert_eq!(split_well(text), ("a: 1\n".to_owned(), "One\n\n---\nTwo".to_owned()));
        assert_eq!(split_well("---\n---\n"), (String::new(), String::new()));
    }

    #[test_case("---\na: 1\n" => "unterminated-front-matter")]
    #[test_case("" => "missing-front-matter")]
    #[test_case("# Title\n---\na: 1\n---\n" => "missing-front-matter")]
    #[test_case(" ---\na: 1\n---\n" => "missing-front-matter")]
    #[test_case("\u{feff}---\na: 1\n---\n" => "byte-order-mark")]
    fn a3_what_cannot_be_split_is_an_error(text: &str) -> &'static str {
        let mut problems = Problems::default();
        split(text, &mut problems);
        assert!(problems.has_errors());
        problems.found[0].code
    }
}
