//! From YAML text to a value: without anchors, within budgets, and with errors an author understands.

use serde_yaml::{Mapping, Value};

use super::positions::{MAX_DEPTH, Place, Positions};
use super::problem::{At, Problems};
use super::yaml_mistakes;

/// The most bytes of YAML that are read.
pub(super) const MAX_YAML_BYTES: usize = 64 * 1024;

/// Reads a mapping, or says what is wrong. `first_line` is the line of the file the text begins on.
pub(super) fn read_mapping(
    yaml: &str,
    first_line: usize,
    problems: &mut Problems,
) -> Option<Mapping> {
    if yaml.len() > MAX_YAML_BYTES {
        let message = format!(
            "the settings have {} bytes, more than the {MAX_YAML_BYTES} that are read",
            yaml.len()
        );
        problems.error("too-large", At::Place(Place::at(first_line, 1)), message);
        return None;
    }
    if needs_second_reading(yaml) && refuse_oddities(yaml, first_line, problems) {
        return None;
    }
    match serde_yaml::from_str::<Value>(yaml) {
        Ok(Value::Mapping(mapping)) => Some(mapping),
        // A text of comments alone says nothing, which is no mistake.
        Ok(Value::Null) => Some(Mapping::new()),
        Ok(_) => {
            let place = At::Place(Place::at(first_line, 1));
            problems
                .error("wrong-type", place, "the settings are not a list of `key: value` lines")
                .help("write one setting per line, such as `description: \"Searches the web\"`");
            None
        }
        Err(error) => {
            explain_failure(yaml, first_line, &error, problems);
            None
        }
    }
}

/// Whether the text could hold what the value reader would expand or take long over.
fn needs_second_reading(yaml: &str) -> bool {
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

/// Refuses anchors, aliases, tags and deep nesting; true if there was any.
fn refuse_oddities(yaml: &str, first_line: usize, problems: &mut Problems) -> bool {
    let positions = Positions::of(yaml, first_line);
    let before = problems.found.len();
    // One is enough: an alias bomb has hundreds.
    if let Some(place) = positions.anchors.first() {
        refuse_anchor(*place, problems);
    }
    if let Some(place) = positions.tags.first() {
        problems
            .error("yaml-tag", At::Place(*place), "YAML tags (`!…`) are not read here")
            .help("put the text in quotes if it begins with `!`, or remove the tag");
    }
    if let Some(place) = positions.too_deep {
        let message = format!("it is nested more than {MAX_DEPTH} levels deep");
        problems.error("too-deep", At::Place(place), message);
    }
    problems.found.len() > before
}

fn refuse_anchor(place: Place, problems: &mut Problems) {
    problems
        .error("yaml-anchor", At::Place(place), "YAML anchors and aliases are not read here")
        .help("write the value out where it is needed; put text that begins with `&` or `*` in quotes");
}

fn explain_failure(
    yaml: &str,
    first_line: usize,
    error: &serde_yaml::Error,
    problems: &mut Problems,
) {
    let positions = Positions::of(yaml, first_line);
    for (path, place) in &positions.duplicates {
        problems
            .error("duplicate-key", At::Place(*place), format!("`{path}` is given twice"))
            .help("keep one of them: which one counts cannot be guessed");
    }
    if problems.has_errors() {
        return;
    }
    yaml_mistakes::explain(yaml, first_line, error, &positions, problems);
}
