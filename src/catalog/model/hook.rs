//! Hooks of the user's own, in Claude Code's form: which command is told of which event.

use std::time::Duration;

use regex::Regex;
use serde::Serialize;

/// One command that is told of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// The event's name, such as `PreToolUse`.
    pub event: String,
    /// Which tools, agents or reasons; every one where nothing was written.
    pub matcher: Option<Matcher>,
    /// A line for the shell; the payload is on its stdin.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
    /// What becomes of a call when the hook fails.
    pub on_failure: OnFailure,
}

/// What a failing hook means for the call it was asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is refused.
    #[default]
    Block,
    /// It goes on.
    Allow,
}

/// The events a hook may be told of.
pub const HOOK_EVENTS: &[&str] = &[
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

/// Claude Code's matcher: a name, several with `|` between them, `*`, or a regular expression for the whole name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Matcher(String);

impl Matcher {
    /// A matcher, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !is_plain(text) {
            compile(text).map_err(|error| error.to_string())?;
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether it is meant.
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
    fn matchers(matcher: &str, name: &str, expected: bool) {
        assert_eq!(Matcher::parse(matcher).unwrap().matches(name), expected);
    }

    #[test]
    fn a_broken_expression_says_so() {
        assert!(Matcher::parse("Bash(").is_err());
    }
}
