//! YAML parser with limits: no anchors or tags, at most 32 levels of nesting and 64 KiB.

use serde_yaml::{Mapping, Value};

use super::super::problem::{ProblemTarget, Problems};
use super::positions::{MAX_DEPTH, SourcePosition, SourcePositions};
use super::yaml_mistakes;

/// Maximum size of a YAML text.
pub(crate) const MAX_YAML_BYTES: usize = 64 * 1024;

/// Parses a mapping, or reports problems. `first_line` is the line of the file where the text begins.
pub(crate) fn parse_mapping(yaml: &str, first_line: usize, problems: &Problems) -> Option<Mapping> {
    if yaml.len() > MAX_YAML_BYTES {
        let message = format!(
            "the settings have {} bytes, more than the {MAX_YAML_BYTES} that are read",
            yaml.len()
        );
        problems.error(
            "too-large",
            ProblemTarget::Place(SourcePosition::at(first_line, 1)),
            message,
        );
        return None;
    }
    if needs_position_scan(yaml) && reject_unsupported(yaml, first_line, problems) {
        return None;
    }
    match serde_yaml::from_str::<Value>(yaml) {
        Ok(Value::Mapping(mapping)) => Some(mapping),
        // A text of comments only is an empty mapping.
        Ok(Value::Null) => Some(Mapping::new()),
        Ok(_) => {
            let position = ProblemTarget::Place(SourcePosition::at(first_line, 1));
            problems
                .error("wrong-type", position, "the settings are not a list of `key: value` lines")
                .help("write one setting per line, such as `description: \"Searches the web\"`");
            None
        }
        Err(error) => {
            report_syntax_error(yaml, first_line, &error, problems);
            None
        }
    }
}

/// True if the text may contain constructs that `serde_yaml` would expand or take long to parse.
fn needs_position_scan(yaml: &str) -> bool {
    yaml.contains(['&', '!']) || bracket_depth(yaml) > MAX_DEPTH
}

fn bracket_depth(yaml: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    for byte in yaml.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Reports anchors, aliases, tags and deep nesting; true if there are any.
fn reject_unsupported(yaml: &str, first_line: usize, problems: &Problems) -> bool {
    let positions = SourcePositions::parse(yaml, first_line);
    let before = problems.len();
    // Only the first is reported: an alias bomb has hundreds.
    if let Some(position) = positions.anchors.first() {
        report_anchor(*position, problems);
    }
    if let Some(position) = positions.tags.first() {
        problems
            .error(
                "yaml-tag",
                ProblemTarget::Place(*position),
                "YAML tags (`!…`) are not read here",
            )
            .help("put the text in quotes if it begins with `!`, or remove the tag");
    }
    if let Some(position) = positions.too_deep {
        let message = format!("it is nested more than {MAX_DEPTH} levels deep");
        problems.error("too-deep", ProblemTarget::Place(position), message);
    }
    problems.len() > before
}

fn report_anchor(position: SourcePosition, problems: &Problems) {
    problems
        .error("yaml-anchor", ProblemTarget::Place(position), "YAML anchors and aliases are not read here")
        .help("write the value out where it is needed; put text that begins with `&` or `*` in quotes");
}

fn report_syntax_error(
    yaml: &str,
    first_line: usize,
    error: &serde_yaml::Error,
    problems: &Problems,
) {
    let positions = SourcePositions::parse(yaml, first_line);
    for (path, position) in &positions.duplicates {
        problems
            .error(
                "duplicate-key",
                ProblemTarget::Place(*position),
                format!("`{path}` is given twice"),
            )
            .help("keep one of them: which one counts cannot be guessed");
    }
    if problems.has_errors() {
        return;
    }
    yaml_mistakes::report(yaml, first_line, error, &positions, problems);
}
