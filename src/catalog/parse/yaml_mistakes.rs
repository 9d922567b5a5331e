//! Explanations of common YAML mistakes.

use super::super::problem::{ProblemTarget, Problems};
use super::positions::{SourcePosition, SourcePositions};

/// Reports a YAML syntax error, with specific help for common mistakes.
pub(crate) fn report(
    yaml: &str,
    first_line: usize,
    error: &serde_yaml::Error,
    positions: &SourcePositions,
    problems: &Problems,
) {
    let position = error_position(error, first_line, positions);
    let line = yaml.lines().nth(position.line.saturating_sub(first_line)).unwrap_or_default();
    let mistake = tab_indentation(yaml, first_line, position)
        .or_else(|| unquoted_star(line, position))
        .or_else(|| unquoted_colon(yaml, first_line, position))
        .or_else(|| reserved_character(line, position))
        .unwrap_or_else(|| generic_mistake(error, position));
    problems
        .error(mistake.code, ProblemTarget::Place(mistake.position), mistake.message)
        .help(mistake.help);
}

struct YamlMistake {
    code: &'static str,
    position: SourcePosition,
    message: String,
    help: String,
}

fn error_position(
    error: &serde_yaml::Error,
    first_line: usize,
    positions: &SourcePositions,
) -> SourcePosition {
    match (error.location(), &positions.syntax_error) {
        (Some(location), _) => {
            SourcePosition::at(location.line() + first_line - 1, location.column().max(1))
        }
        (None, Some((position, _))) => *position,
        (None, None) => SourcePosition::at(first_line, 1),
    }
}

/// Tab in the indentation; the parser often fails one line later.
fn tab_indentation(yaml: &str, first_line: usize, position: SourcePosition) -> Option<YamlMistake> {
    let index = position.line.saturating_sub(first_line);
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
    Some(YamlMistake {
        code: "tab-indentation",
        position: SourcePosition::at(found + first_line, column),
        message: "a tab is used for indentation, and YAML takes only spaces".to_owned(),
        help: "replace the tab by two spaces".to_owned(),
    })
}

/// `allowed_callers: [*]`: an unquoted star is an alias in YAML.
fn unquoted_star(line: &str, position: SourcePosition) -> Option<YamlMistake> {
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
    Some(YamlMistake {
        code: "yaml-anchor",
        position,
        message: "a bare `*` is an alias in YAML, which is not read here".to_owned(),
        help: "put it in quotes: `\"*\"`".to_owned(),
    })
}

/// `description: Searches: the web`: the second colon starts a mapping.
fn unquoted_colon(yaml: &str, first_line: usize, position: SourcePosition) -> Option<YamlMistake> {
    let index = position.line.saturating_sub(first_line);
    // The parser may fail one line later.
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
        Some(YamlMistake {
            code: "unquoted-colon",
            position: SourcePosition {
                line: index + first_line,
                column: key.chars().count() + 3,
                length: text.chars().count(),
            },
            message: format!(
                "the value of `{name}` has a colon in it, which YAML reads as a new key"
            ),
            help: format!("put it in quotes: `{name}: {}`", quoted(text)),
        })
    })
}

/// A value that begins with a reserved character.
fn reserved_character(line: &str, position: SourcePosition) -> Option<YamlMistake> {
    let (key, value) = line.split_once(':')?;
    let text = value.trim();
    let first = text.chars().next().filter(|c| matches!(c, '@' | '`' | '%'))?;
    Some(YamlMistake {
        code: "yaml-syntax",
        position,
        message: format!("a value cannot begin with `{first}` in YAML"),
        help: format!("put it in quotes: `{}: {}`", key.trim(), quoted(text)),
    })
}

fn generic_mistake(error: &serde_yaml::Error, position: SourcePosition) -> YamlMistake {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    YamlMistake {
        code: "yaml-syntax",
        position,
        message: format!("this is not YAML: {reason}"),
        help: "check quotes, brackets and indentation on this line and the one above".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
