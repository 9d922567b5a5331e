//! Texts of the program, without what differs between two runs.

use std::sync::LazyLock;

use regex::Regex;

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
        (pattern(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(run"), "since [TIME] (run"),
    ]
});

/// Replaces directories of the test, ids, hashes, points in time, ports and pids by placeholders.
pub fn mask(text: &str) -> String {
    CHANGING_PARTS.iter().fold(text.to_owned(), |text, (pattern, placeholder)| {
        pattern.replace_all(&text, *placeholder).into_owned()
    })
}
