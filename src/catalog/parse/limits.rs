//! Parser of the keys shared by agent files and `defaults.yaml`.

use super::super::problem::Problems;
use super::hooks;
use super::node::{MappingFields, Node};
use crate::catalog::model::Defaults;

const DAY_MS: u64 = 86_400_000;
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// Overrides values of `into` with those in `fields`.
pub(crate) fn parse_shared_keys(
    fields: &MappingFields<'_>,
    into: &mut Defaults,
    problems: &mut Problems,
) {
    read_times(fields, into, problems);
    read_counts(fields, into, problems);
    if let Some(node) = fields.get("model") {
        into.model = parse_model(&node, problems);
    }
    if let Some(node) = fields.get("effort") {
        into.effort = parse_effort(&node, problems);
    }
    if let Some(env) = fields.get("env").and_then(|node| node.variables(problems)) {
        into.env.extend(env);
    }
    hooks::parse_hooks(fields, &mut into.hooks, problems);
}

fn read_times(fields: &MappingFields<'_>, into: &mut Defaults, problems: &mut Problems) {
    let mut time = |key, low| fields.get(key)?.milliseconds(low..=DAY_MS, problems);
    if let Some(value) = time("timeout_ms", 1) {
        into.timeout = value;
    }
    if let Some(value) = time("idle_timeout_ms", 1) {
        into.idle_timeout = Some(value);
    }
    if let Some(value) = time("keep_alive_ms", 0) {
        into.keep_alive = value;
    }
    if let Some(value) = time("approval_timeout_ms", 1) {
        into.approval_timeout = value;
    }
}

fn read_counts(fields: &MappingFields<'_>, into: &mut Defaults, problems: &mut Problems) {
    let mut count = |key, low, high| fields.get(key)?.integer_u32(low..=high, problems);
    if let Some(value) = count("max_turns", 1, 10_000) {
        into.max_turns = Some(value);
    }
    if let Some(value) = count("max_concurrent", 1, 10_000) {
        into.max_concurrent = Some(value);
    }
    if let Some(value) = count("output_retries", 0, 10) {
        into.output_retries = value;
    }
    if let Some(value) = count("warm", 0, 64) {
        into.warm = value;
    }
    // Claude Code limits tool results to 500,000 characters.
    if let Some(value) = count("max_output_chars", 1, 500_000) {
        into.max_output_chars = usize::try_from(value).unwrap_or(usize::MAX);
    }
    if let Some(value) = fields.get("max_budget_usd").and_then(|node| node.dollars(problems)) {
        into.max_budget_usd = Some(value);
    }
}

fn parse_model(node: &Node<'_>, problems: &mut Problems) -> Option<String> {
    let text = node.text(problems)?;
    let is_invalid = |c: char| c.is_whitespace() || c.is_control() || c == '\'' || c == '"';
    if text.starts_with('-') || text.contains(is_invalid) {
        problems
            .error("wrong-value", node.at(), format!("`{text}` is no model's name"))
            .help("write an alias such as `haiku`, `sonnet` or `opus`, or a model's full name");
        return None;
    }
    Some(text.to_owned())
}

fn parse_effort(node: &Node<'_>, problems: &mut Problems) -> Option<String> {
    let words = EFFORTS.map(|word| (word, word));
    node.one_of(&words, problems).map(str::to_owned)
}
