//! What «for this run» covers: narrow enough that a person knows what they allow.

use serde_json::Value;

use crate::base::{one_line, shorten};
use crate::catalog::RuleText;

const SHELL: &str = "Bash";
/// Arguments that say what a built-in tool works on.
const SUBJECTS: [&str; 4] = ["file_path", "notebook_path", "path", "url"];
/// What makes more than one command of a line; a quote or a backslash could hide one.
const MORE_THAN_A_COMMAND: &[char] =
    &[';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\\', '"', '\'', '#', '\n', '\r'];

/// Calls that a person allowed for the rest of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scope {
    /// Any call of this MCP tool.
    Tool(String),
    /// Plain commands that begin so.
    Commands { beginning: String },
    /// Calls of a built-in tool on the same file, folder or address.
    Subject { tool: String, key: &'static str, value: String },
    /// The very same call.
    Call { tool: String, input: Value },
}

impl Scope {
    /// The scope of a call; `beginnings` are texts such as `Bash(git push:*)` that may widen a command to its like.
    pub(super) fn of<'r>(
        tool: &str,
        input: &Value,
        mut beginnings: impl Iterator<Item = &'r RuleText>,
    ) -> Self {
        if tool.starts_with("mcp__") {
            return Self::Tool(tool.to_owned());
        }
        let found = beginnings.find_map(|rule| {
            let beginning = beginning_of(rule)?;
            begins(tool, input, beginning).then(|| beginning.to_owned())
        });
        if let Some(beginning) = found {
            return Self::Commands { beginning };
        }
        let subject =
            |key: &'static &'static str| Some((*key, input.get(*key)?.as_str()?.to_owned()));
        match SUBJECTS.iter().find_map(subject) {
            Some((key, value)) => Self::Subject { tool: tool.to_owned(), key, value },
            None => Self::Call { tool: tool.to_owned(), input: input.clone() },
        }
    }

    /// Whether a call is one of those that were allowed.
    pub(super) fn covers(&self, tool: &str, input: &Value) -> bool {
        match self {
            Self::Tool(name) => name == tool,
            Self::Commands { beginning } => begins(tool, input, beginning),
            Self::Subject { tool: name, key, value } => {
                name == tool && input.get(*key).and_then(Value::as_str) == Some(value)
            }
            Self::Call { tool: name, input: same } => name == tool && same == input,
        }
    }

    /// The calls, in words.
    pub(super) fn words(&self) -> String {
        let short = |text: &str| shorten(&one_line(text), 120);
        match self {
            Self::Tool(name) => format!("every call of `{}`, whatever its arguments", short(name)),
            Self::Commands { beginning } => {
                format!("every plain command that begins with `{}`", short(beginning))
            }
            Self::Subject { tool, value, .. } => {
                format!("every call of `{}` on `{}`", short(tool), short(value))
            }
            Self::Call { tool, .. } => {
                format!("calls of `{}` with exactly these arguments", short(tool))
            }
        }
    }
}

/// `git push` of `Bash(git push:*)`.
fn beginning_of(rule: &RuleText) -> Option<&str> {
    let specifier = rule.specifier.as_deref().filter(|_| rule.tool == SHELL)?;
    let beginning = specifier.strip_suffix(":*").or_else(|| specifier.strip_suffix(" *"))?;
    let beginning = beginning.trim_end();
    (!beginning.is_empty() && !beginning.contains('*')).then_some(beginning)
}

/// Whether it is one plain command that begins so; anything a shell would read as more is not.
fn begins(tool: &str, input: &Value, beginning: &str) -> bool {
    // Another argument could change how it runs, such as one that leaves the sandbox.
    let only = |members: &serde_json::Map<String, Value>| {
        members.keys().all(|key| matches!(key.as_str(), "command" | "description" | "timeout"))
    };
    let command = input.get("command").and_then(Value::as_str);
    let plain = |command: &&str| !command.contains(MORE_THAN_A_COMMAND);
    tool == SHELL
        && input.as_object().is_some_and(only)
        && command
            .filter(plain)
            .and_then(|command| command.strip_prefix(beginning))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn push() -> Scope {
        let rule = RuleText { tool: "Bash".into(), specifier: Some("git push:*".into()) };
        Scope::of("Bash", &json!({ "command": "git push origin" }), [&rule].into_iter())
    }

    #[test_case("git push", true)]
    #[test_case("git push --tags", true)]
    #[test_case("git pushy", false)]
    #[test_case("git pull", false)]
    #[test_case("git push; rm x", false)]
    #[test_case("git push && rm x", false)]
    #[test_case("git push | sh", false)]
    #[test_case("git push $(rm x)", false)]
    #[test_case("git push `rm x`", false)]
    #[test_case("git push\nrm x", false)]
    #[test_case("git push > /etc/x", false)]
    #[test_case(" git push", false)]
    fn commands_of_one_kind_are_covered_and_nothing_behind_them(command: &str, covered: bool) {
        assert_eq!(push().covers("Bash", &json!({ "command": command })), covered);
    }

    #[test]
    fn another_argument_of_a_command_is_another_call() {
        let outside = json!({ "command": "git push", "dangerouslyDisableSandbox": true });
        assert!(!push().covers("Bash", &outside));
    }

    #[test]
    fn without_a_rule_the_same_command_is_covered_and_no_other() {
        let scope = Scope::of("Bash", &json!({ "command": "make" }), std::iter::empty());
        assert!(scope.covers("Bash", &json!({ "command": "make" })));
        assert!(!scope.covers("Bash", &json!({ "command": "make install" })));
    }

    #[test]
    fn other_tools_are_covered_by_what_they_work_on() {
        let none = || std::iter::empty();
        let edit = Scope::of("Edit", &json!({ "file_path": "/a", "new_string": "x" }), none());
        assert!(edit.covers("Edit", &json!({ "file_path": "/a", "new_string": "y" })));
        assert!(!edit.covers("Edit", &json!({ "file_path": "/b", "new_string": "y" })));
        assert!(!edit.covers("Write", &json!({ "file_path": "/a" })));
        let tool = Scope::of("mcp__db__put", &json!({ "path": "/a" }), none());
        assert!(tool.covers("mcp__db__put", &json!({ "path": "/b" })));
        assert!(!tool.covers("mcp__db__drop", &json!({ "path": "/a" })));
    }
}
