//! User hooks in Claude Code's format: shell commands run on events.

use std::time::Duration;

use regex::Regex;
use serde::Serialize;

/// A shell command that runs on an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UserHook {
    /// Event name, such as `PreToolUse`.
    pub event: String,
    /// Filter by tool, agent or reason; `None` matches all.
    pub matcher: Option<Matcher>,
    /// Command line for the shell; the payload is on stdin.
    pub command: String,
    pub timeout: Duration,
    pub on_failure: OnFailure,
}

/// Effect of a failed hook on the call that it checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The call is blocked.
    #[default]
    Block,
    /// The call proceeds.
    Allow,
}

/// Events that user hooks can be configured for.
pub(crate) const HOOK_EVENTS: &[&str] = &[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "Stop",
    "SessionEnd",
    "RunQueued",
    "RunStarted",
    "RunEnded",
];

/// Claude Code's matcher: a name, names separated by `|`, `*`, or an anchored regular expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Matcher(String);

impl Matcher {
    /// Parses a matcher; the error is the message of the regex compiler.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !is_plain(text) {
            compile(text).map_err(|error| error.to_string())?;
        }
        Ok(Self(text.to_owned()))
    }

    pub fn matches(&self, name: &str) -> bool {
        if self.0.is_empty() || self.0 == "*" {
            return true;
        }
        if is_plain(&self.0) {
            return self.0.split('|').any(|one| one == name);
        }
        compile(&self.0).is_ok_and(|expression| expression.is_match(name))
    }
}

fn is_plain(text: &str) -> bool {
    text == "*"
        || text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '|' | ' '))
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{text})$"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("Bash", "Bash", true)]
    #[test_case("Bash", "BashOutput", false)]
    #[test_case("Edit|Write", "Write", true)]
    #[test_case("*", "anything", true)]
    #[test_case("", "anything", true)]
    #[test_case("mcp__.*__write.*", "mcp__memory__write_graph", true)]
    #[test_case("mcp__.*", "not_mcp__x", false)]
    #[test_case("Notebook.*", "NotebookEdit", true)]
    fn matcher_matches_names(matcher: &str, name: &str, expected: bool) {
        assert_eq!(Matcher::parse(matcher).unwrap().matches(name), expected);
    }

    #[test]
    fn invalid_regular_expression_is_an_error() {
        assert!(Matcher::parse("Bash(").is_err());
    }
}
