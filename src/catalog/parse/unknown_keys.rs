//! Unknown keys of the front matter.
//!
//! A warning, but an error if the key resembles a restricting key: a typo must never widen permissions.

use strsim::damerau_levenshtein;

use super::super::diagnostic::Severity;
use super::agent_keys::agent_keys;
use super::key::{Effect, Key};
use super::node::{MappingFields, Node};
use crate::catalog::model::Agent;

/// Restricting keys of other programs, with the equivalent here.
const FOREIGN_RESTRICTING_KEYS: &[(&str, &str)] = &[
    ("disallowedTools", "`policy: { tools: { exclude: […] } }`"),
    ("disallowed_tools", "`policy: { tools: { exclude: […] } }`"),
    ("excludeTools", "`policy: { tools: { exclude: […] } }`"),
    ("allowedTools", "`permissions: { allow: […] }`"),
    ("allowed_tools", "`permissions: { allow: […] }`"),
    ("allowed-tools", "`permissions: { allow: […] }`"),
    ("allow", "`permissions: { allow: […] }`"),
    ("ask", "`permissions: { ask: […] }`"),
    ("deny", "`permissions: { deny: […] }`"),
    ("exclude", "`policy: { tools: { exclude: […] } }`"),
];

/// Keys of other programs that do not affect permissions.
const FOREIGN_KEYS: &[&str] = &[
    "author",
    "background",
    "color",
    "icon",
    "id",
    "isolation",
    "kind",
    "license",
    "memory",
    "metadata",
    "permissionMode",
    "skills",
    "tags",
    "temperature",
    "version",
];

/// Reports unknown keys. `x-…` keys are reserved for authors.
pub(crate) fn check_keys(fields: &MappingFields<'_>) {
    let is_known = |key: &str| key.starts_with("x-") || agent_keys().any(|known| known.name == key);
    for (key, node) in fields.iter().filter(|(key, _)| !is_known(key)) {
        report_key(key, &node);
    }
}

fn report_key(key: &str, node: &Node<'_>) {
    if key == "<<" {
        node.key_error("yaml-anchor", "YAML merge keys (`<<`) are not read here")
            .help("write the settings out");
    } else if let Some((_, instead)) =
        FOREIGN_RESTRICTING_KEYS.iter().find(|(name, _)| *name == key)
    {
        node.key_error("unknown-key", format!("`{key}` is not read here"))
            .help(format!("write it as {instead}"));
    } else if FOREIGN_KEYS.contains(&key) {
        node.key_warning("unknown-key", format!("`{key}` is not used by Adjutant"))
            .help("it does no harm; name keys of your own `x-…` to keep them without a warning");
    } else {
        report_unknown_key(key, node);
    }
}

fn report_unknown_key(key: &str, node: &Node<'_>) {
    let nearest = nearest_key(key);
    let restricts = key.starts_with("output_")
        || nearest.is_some_and(|known| known.effect == Effect::Restricts);
    let severity = if restricts { Severity::Error } else { Severity::Warning };
    let message = format!("unknown key `{key}`");
    let problem = node.problems.add(severity, "unknown-key", node.at_key(), message);
    match nearest {
        Some(nearest) => problem.help(format!("did you mean `{}`?", nearest.name)),
        None => problem.help("it is ignored; `docs/agent-file.md` lists the keys that are read"),
    }
}

/// Returns the key of which `written` is probably a typo; a restricting key if there is one.
fn nearest_key(written: &str) -> Option<&'static Key<Agent>> {
    let snake = snake_case(written);
    agent_keys()
        .filter(|key| is_probable_typo(&snake, key))
        .min_by_key(|key| (key.effect, damerau_levenshtein(&snake, key.name)))
}

fn is_probable_typo(snake: &str, key: &Key<Agent>) -> bool {
    let known = key.name;
    let is_part = snake.len() >= 4 && known.contains(snake) && key.effect != Effect::Widens;
    let contained = is_part || (known.len() >= 5 && snake.contains(known));
    contained || damerau_levenshtein(snake, known) <= if known.len() > 4 { 2 } else { 1 }
}

/// `timeoutMs`, `timeout-ms` and `Timeout MS` all become `timeout_ms`.
fn snake_case(text: &str) -> String {
    let mut snake = String::with_capacity(text.len() + 4);
    let mut was_lower = false;
    // At most 64 characters are compared: a key can be as long as the file.
    for c in text.chars().take(64) {
        if c.is_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = c.is_lowercase();
        snake.extend(if matches!(c, '-' | ' ') { '_' } else { c }.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("permission", Some("permissions"))]
    #[test_case("polices", Some("policy"))]
    #[test_case("allowedCallers", Some("allowed_callers"))]
    #[test_case("timeout", Some("timeout_ms"))]
    #[test_case("mcpServers", Some("mcp_servers"))]
    #[test_case("tool", Some("tools"))]
    #[test_case("budget", Some("max_budget_usd"))]
    #[test_case("mayChangeProjectConfig", Some("may_change_project_config"))]
    #[test_case("config", None)]
    #[test_case("project_config", None)]
    #[test_case("colour", None)]
    #[test_case("owner", None)]
    fn typos_are_recognized(written: &str, nearest: Option<&str>) {
        assert_eq!(nearest_key(written).map(|key| key.name), nearest);
    }
}
