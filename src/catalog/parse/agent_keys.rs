//! The keys of the front matter. An unknown one is a warning, unless it looks like one that restricts:
//! a typo must never widen what an agent may do.

use super::diagnostic::Severity;
use super::node::{Fields, Node};
use super::problem::Problems;

/// Keys that restrict, limit or say who and what: a slip in one of these is an error.
const RESTRICTING: &[&str] = &[
    "name",
    "allowed_callers",
    "timeout_ms",
    "idle_timeout_ms",
    "max_turns",
    "max_budget_usd",
    "max_output_chars",
    "max_concurrent",
    "approval_timeout_ms",
    "permissions",
    "tools",
    "policy",
    "mcp_servers",
    "output_format",
    "output_schema",
    "output_retries",
    "cwd",
    "add_dirs",
    "env",
    "hooks",
];

/// All other keys that are read.
const OTHERS: &[&str] =
    &["description", "display_name", "session", "model", "effort", "warm", "keep_alive_ms"];

/// Keys of other programs that restrict there and have another name here.
const FOREIGN_RESTRICTING: &[(&str, &str)] = &[
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
    ("sandbox", "`permissions` and `tools`; a sandbox is not set here"),
];

/// Keys of other programs that change no right.
const FOREIGN: &[&str] = &[
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

/// Every key that is read.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    RESTRICTING.iter().chain(OTHERS).copied()
}

/// Says which keys are not read, and how bad that is.
pub(super) fn check(fields: &Fields<'_>, problems: &mut Problems) {
    for (key, node) in fields.iter().filter(|(key, _)| !known().any(|known| known == *key)) {
        // `x-…` is for the author's own use, as in other formats.
        if !key.starts_with("x-") {
            judge(key, &node, problems);
        }
    }
}

fn judge(key: &str, node: &Node<'_>, problems: &mut Problems) {
    if key == "<<" {
        problems
            .error("yaml-anchor", node.at_key(), "YAML merge keys (`<<`) are not read here")
            .help("write the settings out");
    } else if let Some((_, instead)) = FOREIGN_RESTRICTING.iter().find(|(name, _)| *name == key) {
        problems
            .error("unknown-key", node.at_key(), format!("`{key}` is not read here"))
            .help(format!("write it as {instead}"));
    } else if FOREIGN.contains(&key) {
        problems
            .warning("unknown-key", node.at_key(), format!("`{key}` is not used by Adjutant"))
            .help("it does no harm; name keys of your own `x-…` to keep them without a warning");
    } else {
        unknown(key, node, problems);
    }
}

fn unknown(key: &str, node: &Node<'_>, problems: &mut Problems) {
    let meant = known().find(|known| is_slip(key, known));
    let restricts =
        key.starts_with("output_") || meant.is_some_and(|known| RESTRICTING.contains(&known));
    let severity = if restricts { Severity::Error } else { Severity::Warning };
    let message = format!("unknown key `{key}`");
    let problem = problems.add(severity, "unknown-key", node.at_key(), message);
    match meant {
        Some(meant) => problem.help(format!("did you mean `{meant}`?")),
        None => problem.help("it is ignored; `docs/agent-file.md` lists the keys that are read"),
    };
}

/// Whether `written` was probably meant to be `known`.
fn is_slip(written: &str, known: &str) -> bool {
    let snake = snake_case(written);
    let contained =
        (snake.len() >= 4 && known.contains(&snake)) || (known.len() >= 5 && snake.contains(known));
    let near = strsim::damerau_levenshtein(&snake, known) <= if known.len() > 4 { 2 } else { 1 };
    contained || near
}

/// `timeoutMs`, `timeout-ms` and `Timeout MS` are all slips of `timeout_ms`.
fn snake_case(text: &str) -> String {
    let mut snake = String::with_capacity(text.len() + 4);
    let mut was_lower = false;
    // A key can be as long as the file; only its beginning can resemble another.
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
    #[test_case("colour", None)]
    #[test_case("owner", None)]
    fn slips(written: &str, meant: Option<&str>) {
        assert_eq!(known().find(|known| is_slip(written, known)), meant);
    }
}
