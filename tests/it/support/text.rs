//! Texts of the program, without what differs between two runs.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Patterns of changing parts and their replacements, in the order in which they are applied.
static CHANGING_PARTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).expect("a pattern");
    vec![
        (pattern("/tmp/adjutant-test-[A-Za-z0-9]{6}/project"), "[ROOT]"),
        (pattern("/tmp/adjutant-test-[A-Za-z0-9]{6}/home"), "[HOME]"),
        (pattern(&regex::escape(env!("CARGO_MANIFEST_DIR"))), "[REPOSITORY]"),
        (pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "[ID]"),
        (pattern(r"\b[0-9a-f]{64}\b"), "[HASH]"),
        (pattern(r"\b[0-9a-f]{32}\b"), "[ID]"),
        (pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "[TIME]"),
        (pattern(r"127\.0\.0\.1:\d{4,5}\b"), "127.0.0.1:[PORT]"),
        (pattern(r"\bprocess \d+\b"), "process [PID]"),
        (pattern(r"\bmissing=\d+\b"), "missing=[COUNT]"),
        (pattern(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(run"), "since [TIME] (run"),
    ]
});

/// Replaces directories of the test, ids, hashes, points in time, ports and pids by placeholders.
pub fn mask(text: &str) -> String {
    CHANGING_PARTS.iter().fold(text.to_owned(), |text, (pattern, placeholder)| {
        pattern.replace_all(&text, *placeholder).into_owned()
    })
}

/// The error of a report in one text, as a model sees it: `CODE: reason. Remedy.`
pub fn error_text(report: &Value) -> String {
    let text =
        |key: &str| report["error"][key].as_str().unwrap_or_else(|| panic!("{key}: {report}"));
    let (message, help) = (text("message").trim_end_matches('.'), text("help"));
    let help = help.trim_end_matches('.');
    let end = if help.ends_with('?') { "" } else { "." };
    let (first, rest) = help.split_at(help.chars().next().map_or(0, char::len_utf8));
    format!("{}: {message}. {}{rest}{end}", text("code"), first.to_uppercase())
}
