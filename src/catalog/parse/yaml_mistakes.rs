//! The usual slips in YAML, in words that say how to mend them.

use super::positions::{Place, Positions};
use super::problem::{At, Problems};

/// Explains why YAML could not be read.
pub(super) fn explain(
    yaml: &str,
    first_line: usize,
    error: &serde_yaml::Error,
    positions: &Positions,
    problems: &mut Problems,
) {
    let place = place_of(error, first_line, positions);
    let line = yaml.lines().nth(place.line.saturating_sub(first_line)).unwrap_or_default();
    let slip = tab(yaml, first_line, place)
        .or_else(|| star(line, place))
        .or_else(|| colon(yaml, first_line, place))
        .or_else(|| reserved(line, place))
        .unwrap_or_else(|| other(error, place));
    let problem = problems.error(slip.code, At::Place(slip.place), slip.message);
    if let Some(help) = slip.help {
        problem.help(help);
    }
}

struct Slip {
    code: &'static str,
    place: Place,
    message: String,
    help: Option<String>,
}

fn place_of(error: &serde_yaml::Error, first_line: usize, positions: &Positions) -> Place {
    match (error.location(), &positions.failure) {
        (Some(location), _) => {
            Place::at(location.line() + first_line - 1, location.column().max(1))
        }
        (None, Some((place, _))) => *place,
        (None, None) => Place::at(first_line, 1),
    }
}

/// Tabs where YAML wants spaces; the reader often stumbles a line later.
fn tab(yaml: &str, first_line: usize, place: Place) -> Option<Slip> {
    let index = place.line.saturating_sub(first_line);
    let indented = |line: &&str| {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        line.get(..indent).is_some_and(|indent| indent.contains('\t'))
    };
    let (found, line) = yaml
        .lines()
        .enumerate()
        .take(index + 1)
        .filter(|(_, line)| indented(line))
        .last()
        .filter(|(found, _)| index - found <= 1)?;
    let column = line.find('\t').unwrap_or_default() + 1;
    Some(Slip {
        code: "tab-indentation",
        place: Place::at(found + first_line, column),
        message: "a tab is used for indentation, and YAML takes only spaces".to_owned(),
        help: Some("replace the tab by two spaces".to_owned()),
    })
}

/// `allowed_callers: [*]`: a bare star is an alias in YAML.
fn star(line: &str, place: Place) -> Option<Slip> {
    let bare = |before: char| {
        let mut rest = line;
        while let Some(at) = rest.find('*') {
            let head = rest.get(..at).unwrap_or_default().trim_end();
            if head.ends_with(before) {
                return true;
            }
            rest = rest.get(at + 1..).unwrap_or_default();
        }
        false
    };
    if ![':', '[', ',', '-', '{'].into_iter().any(bare) {
        return None;
    }
    Some(Slip {
        code: "yaml-anchor",
        place,
        message: "a bare `*` is an alias in YAML, which is not read here".to_owned(),
        help: Some("put it in quotes: `\"*\"`".to_owned()),
    })
}

/// `description: Searches: the web`: the second colon starts a mapping.
fn colon(yaml: &str, first_line: usize, place: Place) -> Option<Slip> {
    let index = place.line.saturating_sub(first_line);
    // The reader may notice only on the line behind.
    let mut candidates = [Some(index), index.checked_sub(1)].into_iter().flatten();
    candidates.find_map(|index| {
        let line = yaml.lines().nth(index)?;
        let (key, value) = line.split_once(": ")?;
        let text = value.trim();
        let plain = !text.starts_with(['"', '\'', '[', '{', '|', '>', '#']);
        if !plain || !(text.contains(": ") || text.ends_with(':')) {
            return None;
        }
        let name = key.trim().trim_start_matches("- ");
        Some(Slip {
            code: "unquoted-colon",
            place: Place {
                line: index + first_line,
                column: key.chars().count() + 3,
                length: text.chars().count(),
            },
            message: format!(
                "the value of `{name}` has a colon in it, which YAML reads as a new key"
            ),
            help: Some(format!("put it in quotes: `{name}: {}`", quoted(text))),
        })
    })
}

/// A value that begins with a character YAML keeps for itself.
fn reserved(line: &str, place: Place) -> Option<Slip> {
    let (key, value) = line.split_once(':')?;
    let text = value.trim();
    let first = text.chars().next().filter(|c| matches!(c, '@' | '`' | '%'))?;
    Some(Slip {
        code: "yaml-syntax",
        place,
        message: format!("a value cannot begin with `{first}` in YAML"),
        help: Some(format!("put it in quotes: `{}: {}`", key.trim(), quoted(text))),
    })
}

fn other(error: &serde_yaml::Error, place: Place) -> Slip {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    Slip {
        code: "yaml-syntax",
        place,
        message: format!("this is not YAML: {reason}"),
        help: Some(
            "check quotes, brackets and indentation on this line and the one above".to_owned(),
        ),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
