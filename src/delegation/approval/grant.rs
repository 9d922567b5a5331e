//! The calls that an approval "for this run" covers: as few as possible, so that a person can tell what
//! they allow.

use serde_json::Value;

use crate::catalog::RuleText;
use crate::util::{one_line, shorten};

const SHELL_TOOL: &str = "Bash";
/// Arguments that name the file, directory or URL of a built-in tool.
const SUBJECT_ARGUMENTS: [&str; 4] = ["file_path", "notebook_path", "path", "url"];
/// Characters that can end a command or start a second one; a quote or a backslash could hide one.
const SHELL_METACHARACTERS: &[char] =
    &[';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\\', '"', '\'', '#', '\n', '\r'];

/// A set of calls that a person allowed for the rest of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApprovalGrant {
    /// Any call of this MCP tool.
    McpTool(String),
    /// Plain commands with this prefix.
    CommandPrefix(String),
    /// Calls of a built-in tool on the same file, directory or URL.
    SameSubject { tool: String, key: &'static str, value: String },
    /// The same call, with equal arguments.
    ExactCall { tool: String, input: Value },
}

impl ApprovalGrant {
    /// Derives the grant for a call.
    ///
    /// A command that matches one of the `rules`, such as `Bash(git push:*)`, is granted by its prefix instead of by
    /// its exact text.
    pub(crate) fn for_call<'r>(
        tool: &str,
        input: &Value,
        rules: impl Iterator<Item = &'r RuleText>,
    ) -> Self {
        if tool.starts_with("mcp__") {
            return Self::McpTool(tool.to_owned());
        }
        let mut prefixes = rules.filter_map(command_prefix);
        if let Some(prefix) = prefixes.find(|prefix| is_plain_command(tool, input, prefix)) {
            return Self::CommandPrefix(prefix.to_owned());
        }
        let subject =
            |key: &'static &'static str| Some((*key, input.get(*key)?.as_str()?.to_owned()));
        match SUBJECT_ARGUMENTS.iter().find_map(subject) {
            Some((key, value)) => Self::SameSubject { tool: tool.to_owned(), key, value },
            None => Self::ExactCall { tool: tool.to_owned(), input: input.clone() },
        }
    }

    /// Returns `true` if the grant allows this call.
    pub(crate) fn covers(&self, tool: &str, input: &Value) -> bool {
        match self {
            Self::McpTool(name) => name == tool,
            Self::CommandPrefix(prefix) => is_plain_command(tool, input, prefix),
            Self::SameSubject { tool: name, key, value } => {
                name == tool && input.get(*key).and_then(Value::as_str) == Some(value)
            }
            Self::ExactCall { tool: name, input: same } => name == tool && same == input,
        }
    }

    /// Describes the granted calls for the approval question.
    pub(crate) fn describe(&self) -> String {
        let short = |text: &str| shorten(&one_line(text), 120);
        match self {
            Self::McpTool(name) => {
                format!("every call of `{}`, whatever its arguments", short(name))
            }
            Self::CommandPrefix(prefix) => {
                format!("every plain command that begins with `{}`", short(prefix))
            }
            Self::SameSubject { tool, value, .. } => {
                format!("every call of `{}` on `{}`", short(tool), short(value))
            }
            Self::ExactCall { tool, .. } => {
                format!("calls of `{}` with exactly these arguments", short(tool))
            }
        }
    }
}

/// Returns the command prefix of a rule: `git push` for `Bash(git push:*)`.
fn command_prefix(rule: &RuleText) -> Option<&str> {
    let specifier = rule.specifier.as_deref().filter(|_| rule.tool == SHELL_TOOL)?;
    let prefix = specifier.strip_suffix(":*").or_else(|| specifier.strip_suffix(" *"))?.trim_end();
    (!prefix.is_empty() && !prefix.contains('*')).then_some(prefix)
}

/// Returns `true` if the call is one plain command with this prefix; any character special to a shell
/// disqualifies it.
fn is_plain_command(tool: &str, input: &Value, prefix: &str) -> bool {
    // Another argument could change how the command runs, such as `dangerouslyDisableSandbox`.
    let is_known = |key: &String| matches!(key.as_str(), "command" | "description" | "timeout");
    let command = input.get("command").and_then(Value::as_str);
    let rest = command.and_then(|command| command.strip_prefix(prefix));
    tool == SHELL_TOOL
        && input.as_object().is_some_and(|members| members.keys().all(is_known))
        && command.is_some_and(|command| !command.contains(SHELL_METACHARACTERS))
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn push_grant() -> ApprovalGrant {
        let rule = RuleText { tool: "Bash".into(), specifier: Some("git push:*".into()) };
        ApprovalGrant::for_call(
            "Bash",
            &json!({ "command": "git push origin" }),
            [&rule].into_iter(),
        )
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
    fn commands_with_the_prefix_are_covered_but_no_second_command(command: &str, covered: bool) {
        assert_eq!(push_grant().covers("Bash", &json!({ "command": command })), covered);
    }

    #[test]
    fn a_command_with_another_argument_is_not_covered() {
        let outside = json!({ "command": "git push", "dangerouslyDisableSandbox": true });
        assert!(!push_grant().covers("Bash", &outside));
    }

    #[test]
    fn without_a_rule_only_the_same_command_is_covered() {
        let scope =
            ApprovalGrant::for_call("Bash", &json!({ "command": "make" }), std::iter::empty());
        assert!(scope.covers("Bash", &json!({ "command": "make" })));
        assert!(!scope.covers("Bash", &json!({ "command": "make install" })));
    }

    #[test]
    fn other_tools_are_covered_by_their_subject() {
        let none = || std::iter::empty();
        let edit = ApprovalGrant::for_call(
            "Edit",
            &json!({ "file_path": "/a", "new_string": "x" }),
            none(),
        );
        assert!(edit.covers("Edit", &json!({ "file_path": "/a", "new_string": "y" })));
        assert!(!edit.covers("Edit", &json!({ "file_path": "/b", "new_string": "y" })));
        assert!(!edit.covers("Write", &json!({ "file_path": "/a" })));
        let tool = ApprovalGrant::for_call("mcp__db__put", &json!({ "path": "/a" }), none());
        assert!(tool.covers("mcp__db__put", &json!({ "path": "/b" })));
        assert!(!tool.covers("mcp__db__drop", &json!({ "path": "/a" })));
    }
}
