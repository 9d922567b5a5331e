//! What Claude Code must be told about us, put into the JSON files where it looks for it.

use serde_json::{Map, Value, json};

use super::json_text::{JsonRefused, JsonText};

/// The name under which Claude Code knows the server; its tools are `mcp__adjutant__…`.
pub(super) const SERVER_NAME: &str = "adjutant";

/// A hook that Claude Code runs for us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook {
    /// When it runs.
    pub(super) event: &'static str,
    /// For which tools; events without tools have none.
    pub(super) matcher: Option<&'static str>,
    /// What it does.
    pub(super) act: Act,
}

/// What a hook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Runs a command of ours.
    Command(&'static str),
    /// Calls a tool of our server with these fields of its payload. Claude Code does that over the connection that it
    /// already has, so no process of anybody's can take part in it.
    Tool(&'static str, &'static [&'static str]),
}

impl Hook {
    const fn command(event: &'static str, matcher: Option<&'static str>) -> Self {
        Self { event, matcher, act: Act::Command("hook") }
    }
}

/// All hooks that `init` registers, as far as the program has their commands.
pub(super) const HOOKS: &[Hook] = &[
    Hook {
        event: "PreToolUse",
        matcher: Some("mcp__adjutant__.*"),
        act: Act::Tool(
            "attest_call",
            &["tool_use_id", "tool_name", "session_id", "agent_id", "agent_type"],
        ),
    },
    Hook::command("PreToolUse", Some("*")),
    Hook::command("PostToolUse", Some("*")),
    Hook::command("PostToolUseFailure", Some("*")),
    Hook::command("PermissionRequest", Some("*")),
    Hook::command("PermissionDenied", Some("*")),
    Hook::command("Notification", None),
    Hook::command("UserPromptSubmit", None),
    Hook::command("SessionStart", None),
    Hook::command("SessionEnd", None),
    Hook::command("SubagentStart", None),
    Hook::command("SubagentStop", None),
    Hook::command("PreCompact", None),
    Hook::command("Stop", None),
];

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    /// The text, with what was missing.
    pub(super) text: String,
    /// What a person should know about it.
    pub(super) note: Option<String>,
}

/// `.mcp.json` with our server. An entry of that name that is there already is its owner's business.
pub(super) fn add_server(text: Option<&str>, program: &str) -> Result<Merged, JsonRefused> {
    let mut json = JsonText::parse(text.unwrap_or(EMPTY))?;
    let path = ["mcpServers", SERVER_NAME];
    let entry = json!({ "command": program, "args": ["serve"] });
    let there = json.value().get(path[0]).and_then(|servers| servers.get(path[1])).cloned();
    json.add_member(&path, &entry)?;
    let note = there.filter(|there| *there != entry).map(|there| {
        let command = there.get("command").and_then(Value::as_str).unwrap_or("something else");
        format!("has a server `{SERVER_NAME}` that starts `{command}`; it was left as it is")
    });
    Ok(Merged { text: json.text().to_owned(), note })
}

/// `.claude/settings.json` with these hooks, each once.
pub(super) fn add_hooks(
    text: Option<&str>,
    program: &str,
    hooks: &[Hook],
) -> Result<Merged, JsonRefused> {
    let mut json = JsonText::parse(text.unwrap_or(EMPTY))?;
    for hook in hooks {
        if has_hook(&json.value(), hook) {
            continue;
        }
        json.add_element(&["hooks", hook.event], &entry(program, hook))?;
    }
    Ok(Merged { text: json.text().to_owned(), note: None })
}

const EMPTY: &str = "{}\n";

fn entry(program: &str, hook: &Hook) -> Value {
    let act = match hook.act {
        Act::Command(command) => {
            json!({ "type": "command", "command": format!("{} {command}", shell_word(program)) })
        }
        Act::Tool(tool, fields) => {
            let placed = |field: &&str| ((*field).to_owned(), Value::from(format!("${{{field}}}")));
            let input: Map<String, Value> = fields.iter().map(placed).collect();
            json!({ "type": "mcp_tool", "server": SERVER_NAME, "tool": tool, "input": input })
        }
    };
    match hook.matcher {
        Some(matcher) => json!({ "matcher": matcher, "hooks": [act] }),
        None => json!({ "hooks": [act] }),
    }
}

/// Whether some entry for the event already runs our command, from wherever the program was then.
fn has_hook(settings: &Value, hook: &Hook) -> bool {
    let entries = settings.pointer(&format!("/hooks/{}", hook.event)).and_then(Value::as_array);
    let mut acts = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("hooks").and_then(Value::as_array))
        .flatten();
    let says =
        |act: &Value, key: &str, text: &str| act.get(key).and_then(Value::as_str) == Some(text);
    acts.any(|act| match hook.act {
        Act::Command(ours) => act
            .get("command")
            .and_then(Value::as_str)
            .is_some_and(|command| runs_ours(command, ours)),
        Act::Tool(tool, _) => says(act, "server", SERVER_NAME) && says(act, "tool", tool),
    })
}

fn runs_ours(command: &str, ours: &str) -> bool {
    let program = command.trim().strip_suffix(ours).map(|rest| rest.trim_matches([' ', '\'', '"']));
    program.is_some_and(|program| program.rsplit('/').next() == Some(SERVER_NAME))
}

/// A word that a shell takes as it is.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn a_new_file_has_the_server_alone() {
        let merged = add_server(None, "adjutant").unwrap();
        insta::assert_snapshot!(merged.text, @r#"
        {
          "mcpServers": {
            "adjutant": {
              "command": "adjutant",
              "args": ["serve"]
            }
          }
        }
        "#);
        assert_eq!(add_server(Some(&merged.text), "adjutant").unwrap(), merged);
    }

    #[test]
    fn an_entry_of_its_owner_is_kept_and_said() {
        let text = r#"{"mcpServers":{"adjutant":{"command":"/old/adjutant","args":["serve"]}}}"#;
        let merged = add_server(Some(text), "/new/adjutant").unwrap();
        assert_eq!(merged.text, text);
        let note = "has a server `adjutant` that starts `/old/adjutant`; it was left as it is";
        assert_eq!(merged.note.as_deref(), Some(note));
    }

    #[test]
    fn hooks_go_beside_those_of_others_and_only_once() {
        let text = "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}\n    ]\n  }\n}\n";
        let merged = add_hooks(Some(text), "/opt/my tools/adjutant", &HOOKS[..2]).unwrap();
        insta::assert_snapshot!(merged.text, @r#"
        {
          "hooks": {
            "PreToolUse": [
              {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]},
              {
                "matcher": "mcp__adjutant__.*",
                "hooks": [
                  {
                    "type": "mcp_tool",
                    "server": "adjutant",
                    "tool": "attest_call",
                    "input": {
                      "tool_use_id": "${tool_use_id}",
                      "tool_name": "${tool_name}",
                      "session_id": "${session_id}",
                      "agent_id": "${agent_id}",
                      "agent_type": "${agent_type}"
                    }
                  }
                ]
              },
              {
                "matcher": "*",
                "hooks": [
                  {
                    "type": "command",
                    "command": "'/opt/my tools/adjutant' hook"
                  }
                ]
              }
            ]
          }
        }
        "#);
        // The program may have moved since: one hook is enough.
        assert_eq!(add_hooks(Some(&merged.text), "adjutant", &HOOKS[..2]).unwrap(), merged);
    }

    #[test_case("adjutant hook", true)]
    #[test_case("/usr/bin/adjutant hook", true)]
    #[test_case("'/a b/adjutant' hook", true)]
    #[test_case("other hook", false)]
    #[test_case("adjutant webhook", false)]
    #[test_case("my-adjutant hook", false)]
    fn our_own_hook_is_known(command: &str, ours: bool) {
        assert_eq!(runs_ours(command, "hook"), ours);
    }

    #[test]
    fn hooks_of_another_kind_are_refused() {
        let refused = add_hooks(Some("{\"hooks\": []}"), "adjutant", HOOKS).unwrap_err();
        assert_eq!(refused.to_string(), "line 1, column 11: `hooks` must be an object");
    }
}
