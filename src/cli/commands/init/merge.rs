//! Adds the server and the hooks of Adjutant to the JSON files of Claude Code.

use serde_json::{Map, Value, json};

use super::json_edit::{JsonEditError, JsonText};

/// Name of the server in Claude Code; its tools are `mcp__adjutant__…`.
pub(crate) const SERVER_NAME: &str = "adjutant";

/// Subcommand that hooks run.
const HOOK_SUBCOMMAND: &str = "hook";
/// Tool that hooks call, and the fields of the payload that they pass to it.
const ATTEST_TOOL: &str = "attest_call";
const ATTESTED_FIELDS: [&str; 5] =
    ["tool_use_id", "tool_name", "session_id", "agent_id", "agent_type"];

/// Recorded events, each with the tools it matches; events without tools have none.
const RECORDED_EVENTS: [(&str, Option<&str>); 13] = [
    ("PreToolUse", Some("*")),
    ("PostToolUse", Some("*")),
    ("PostToolUseFailure", Some("*")),
    ("PermissionRequest", Some("*")),
    ("PermissionDenied", Some("*")),
    ("Notification", None),
    ("UserPromptSubmit", None),
    ("SessionStart", None),
    ("SessionEnd", None),
    ("SubagentStart", None),
    ("SubagentStop", None),
    ("PreCompact", None),
    ("Stop", None),
];

/// A hook that `init` registers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HookEntry {
    /// Runs `adjutant hook` at an event.
    Command { event: &'static str, matcher: Option<&'static str> },
    /// Calls `attest_call` of an Adjutant server before each call of one of its tools.
    ///
    /// Claude Code makes this call over its existing connection, so that no other process can forge it.
    Attest { server: String },
}

impl HookEntry {
    fn event(&self) -> &'static str {
        match self {
            Self::Command { event, .. } => event,
            Self::Attest { .. } => "PreToolUse",
        }
    }
}

/// Returns all hooks for the Adjutant servers with these names.
fn all_hooks(servers: &[String]) -> Vec<HookEntry> {
    let attest = servers.iter().map(|server| HookEntry::Attest { server: server.clone() });
    attest
        .chain(RECORDED_EVENTS.map(|(event, matcher)| HookEntry::Command { event, matcher }))
        .collect()
}

/// Returns the names of the Adjutant servers in a `.mcp.json`.
///
/// They are the entry named `adjutant` and all entries that run `adjutant serve` or `adjutant gateway`.
pub(crate) fn own_servers(text: &str) -> Vec<String> {
    let servers = serde_json::from_str::<Value>(text).ok();
    let servers = servers.as_ref().and_then(|file| file.get("mcpServers")?.as_object());
    let is_ours = |name: &str, entry: &Value| {
        let command = entry.get("command").and_then(Value::as_str).unwrap_or_default();
        let serves = entry.get("args").and_then(Value::as_array).is_some_and(|arguments| {
            arguments.iter().any(|word| matches!(word.as_str(), Some("serve" | "gateway")))
        });
        name == SERVER_NAME || (command.rsplit('/').next() == Some(SERVER_NAME) && serves)
    };
    let ours = servers.into_iter().flatten().filter(|(name, entry)| is_ours(name, entry));
    ours.map(|(name, _)| name.clone()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergeResult {
    /// The text with the additions.
    pub(crate) text: String,
    /// Note for the user.
    pub(crate) note: Option<String>,
}

/// Adds the server to `.mcp.json`. A different entry of the same name is kept and noted.
pub(crate) fn add_server(text: Option<&str>, program: &str) -> Result<MergeResult, JsonEditError> {
    let mut json = JsonText::parse(text.unwrap_or(EMPTY_OBJECT))?;
    let path = ["mcpServers", SERVER_NAME];
    let entry = json!({ "command": program, "args": ["serve"] });
    let there = json.to_value().get(path[0]).and_then(|servers| servers.get(path[1])).cloned();
    json.add_member(&path, &entry)?;
    let note = there.filter(|there| *there != entry).map(|there| {
        let command = there.get("command").and_then(Value::as_str).unwrap_or("something else");
        format!("has a server `{SERVER_NAME}` that starts `{command}`; it was left as it is")
    });
    Ok(MergeResult { text: json.text().to_owned(), note })
}

/// Adds the hooks for these servers to `.claude/settings.json`, each once.
pub(crate) fn add_hooks(
    text: Option<&str>,
    program: &str,
    servers: &[String],
) -> Result<MergeResult, JsonEditError> {
    let mut json = JsonText::parse(text.unwrap_or(EMPTY_OBJECT))?;
    for hook in all_hooks(servers) {
        if !has_hook(&json.to_value(), &hook) {
            json.add_element(&["hooks", hook.event()], &hook_entry(program, &hook))?;
        }
    }
    Ok(MergeResult { text: json.text().to_owned(), note: None })
}

const EMPTY_OBJECT: &str = "{}\n";

fn hook_entry(program: &str, hook: &HookEntry) -> Value {
    match hook {
        HookEntry::Command { matcher, .. } => {
            let command = format!("{} {HOOK_SUBCOMMAND}", shell_quote(program));
            let act = json!({ "type": "command", "command": command });
            match matcher {
                Some(matcher) => json!({ "matcher": matcher, "hooks": [act] }),
                None => json!({ "hooks": [act] }),
            }
        }
        HookEntry::Attest { server } => {
            let placed = |field: &str| (field.to_owned(), Value::from(format!("${{{field}}}")));
            let input: Map<String, Value> = ATTESTED_FIELDS.map(placed).into_iter().collect();
            let act = json!({ "type": "mcp_tool", "server": server, "tool": ATTEST_TOOL, "input": input });
            json!({ "matcher": format!("mcp__{}__.*", normalized_server_name(server)), "hooks": [act] })
        }
    }
}

/// Returns the server's name as Claude Code writes it in tool names.
fn normalized_server_name(server: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    server.chars().map(|c| if kept(c) { c } else { '_' }).collect()
}

/// Returns true if the event already has the hook, with any path of the program.
fn has_hook(settings: &Value, hook: &HookEntry) -> bool {
    let entries = settings.pointer(&format!("/hooks/{}", hook.event())).and_then(Value::as_array);
    let mut acts = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("hooks").and_then(Value::as_array))
        .flatten();
    let says =
        |act: &Value, key: &str, text: &str| act.get(key).and_then(Value::as_str) == Some(text);
    acts.any(|act| match hook {
        HookEntry::Command { .. } => {
            act.get("command").and_then(Value::as_str).is_some_and(runs_adjutant_hook)
        }
        HookEntry::Attest { server } => {
            says(act, "server", server) && says(act, "tool", ATTEST_TOOL)
        }
    })
}

fn runs_adjutant_hook(command: &str) -> bool {
    let program = command
        .trim()
        .strip_suffix(HOOK_SUBCOMMAND)
        .map(|rest| rest.trim_matches([' ', '\'', '"']));
    program.is_some_and(|program| program.rsplit('/').next() == Some(SERVER_NAME))
}

/// Quotes a word for a shell, if needed.
fn shell_quote(text: &str) -> String {
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
    fn a_new_file_contains_only_the_server() {
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
    fn an_existing_server_entry_is_kept_and_noted() {
        let text = r#"{"mcpServers":{"adjutant":{"command":"/old/adjutant","args":["serve"]}}}"#;
        let merged = add_server(Some(text), "/new/adjutant").unwrap();
        assert_eq!(merged.text, text);
        let note = "has a server `adjutant` that starts `/old/adjutant`; it was left as it is";
        assert_eq!(merged.note.as_deref(), Some(note));
    }

    #[test]
    fn hooks_are_added_once_next_to_existing_ones() {
        let text = "{\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}\n    ]\n  }\n}\n";
        let servers = ["adjutant", "my gateway"].map(str::to_owned);
        let merged = add_hooks(Some(text), "/opt/my tools/adjutant", &servers).unwrap();
        let before = merged.text.split("    \"PostToolUse\"").next().unwrap();
        insta::assert_snapshot!(before, @r#"
        {
          "hooks": {
            "Stop": [
              {"hooks": [{"type": "command", "command": "mine"}]},
              {
                "hooks": [
                  {
                    "type": "command",
                    "command": "'/opt/my tools/adjutant' hook"
                  }
                ]
              }
            ],
            "PreToolUse": [
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
                "matcher": "mcp__my_gateway__.*",
                "hooks": [
                  {
                    "type": "mcp_tool",
                    "server": "my gateway",
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
            ],
        "#);
        // The hook is recognized although the path of the program differs.
        assert_eq!(add_hooks(Some(&merged.text), "adjutant", &servers).unwrap(), merged);
        // Existing hooks stay; a new server gets its own hook.
        let first = add_hooks(Some(text), "adjutant", &servers[..1]).unwrap();
        let second = add_hooks(Some(&first.text), "adjutant", &servers).unwrap();
        assert_eq!(second.text.matches(ATTEST_TOOL).count(), 2, "{}", second.text);
        assert_eq!(second.text.matches("adjutant hook").count(), RECORDED_EVENTS.len());
    }

    #[test]
    fn adjutant_servers_are_found_under_any_name() {
        let text = r#"{"mcpServers": {
            "gw": {"command": "/usr/bin/adjutant", "args": ["--root", "/x", "gateway"]},
            "other": {"command": "npx", "args": ["serve"]},
            "check": {"command": "adjutant", "args": ["check"]},
            "adjutant": {"command": "wrapper.sh"}
        }}"#;
        assert_eq!(own_servers(text), ["gw", "adjutant"]);
        assert_eq!(own_servers("{}"), Vec::<String>::new());
    }

    #[test_case("adjutant hook", true)]
    #[test_case("/usr/bin/adjutant hook", true)]
    #[test_case("'/a b/adjutant' hook", true)]
    #[test_case("other hook", false)]
    #[test_case("adjutant webhook", false)]
    #[test_case("my-adjutant hook", false)]
    fn the_hook_of_adjutant_is_recognized(command: &str, ours: bool) {
        assert_eq!(runs_adjutant_hook(command), ours);
    }

    #[test]
    fn hooks_of_the_wrong_type_are_rejected() {
        let refused = add_hooks(Some("{\"hooks\": []}"), "adjutant", &[]).unwrap_err();
        assert_eq!(refused.to_string(), "line 1, column 11: `hooks` must be an object");
    }
}
