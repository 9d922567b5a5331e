//! What Claude Code must be told about us, put into the JSON files where it looks for it.

use serde_json::{Map, Value, json};

use super::json_text::{JsonRefused, JsonText};

/// The name under which Claude Code knows the server; its tools are `mcp__adjutant__…`.
pub(super) const SERVER_NAME: &str = "adjutant";

/// The command of ours that hooks run.
const COMMAND: &str = "hook";
/// The tool of ours that hooks call, and what they tell it of their payload.
const ATTEST: &str = "attest_call";
const ATTESTED: [&str; 5] = ["tool_use_id", "tool_name", "session_id", "agent_id", "agent_type"];

/// The events that are recorded, each with the tools it is wanted for; events without tools have none.
const EVENTS: [(&str, Option<&str>); 13] = [
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

/// A hook that Claude Code runs for us.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hook {
    /// Runs our command at an event.
    Command { event: &'static str, matcher: Option<&'static str> },
    /// Calls a tool of this server of ours before each call of one of its tools. Claude Code does that over the connection
    /// that it already has, so no process of anybody's can take part in it.
    Attest { server: String },
}

impl Hook {
    fn event(&self) -> &'static str {
        match self {
            Self::Command { event, .. } => event,
            Self::Attest { .. } => "PreToolUse",
        }
    }
}

/// All hooks that `init` registers, for servers of ours with these names.
fn hooks(servers: &[String]) -> Vec<Hook> {
    let attest = servers.iter().map(|server| Hook::Attest { server: server.clone() });
    attest.chain(EVENTS.map(|(event, matcher)| Hook::Command { event, matcher })).collect()
}

/// The names of the servers in a `.mcp.json` that are ours: `adjutant serve` or `adjutant gateway`, under whatever name.
pub(super) fn own_servers(text: &str) -> Vec<String> {
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

/// `.claude/settings.json` with our hooks for these servers of ours, each once.
pub(super) fn add_hooks(
    text: Option<&str>,
    program: &str,
    servers: &[String],
) -> Result<Merged, JsonRefused> {
    let mut json = JsonText::parse(text.unwrap_or(EMPTY))?;
    for hook in hooks(servers) {
        if !has_hook(&json.value(), &hook) {
            json.add_element(&["hooks", hook.event()], &entry(program, &hook))?;
        }
    }
    Ok(Merged { text: json.text().to_owned(), note: None })
}

const EMPTY: &str = "{}\n";

fn entry(program: &str, hook: &Hook) -> Value {
    match hook {
        Hook::Command { matcher, .. } => {
            let command = format!("{} {COMMAND}", shell_word(program));
            let act = json!({ "type": "command", "command": command });
            match matcher {
                Some(matcher) => json!({ "matcher": matcher, "hooks": [act] }),
                None => json!({ "hooks": [act] }),
            }
        }
        Hook::Attest { server } => {
            let placed = |field: &str| (field.to_owned(), Value::from(format!("${{{field}}}")));
            let input: Map<String, Value> = ATTESTED.map(placed).into_iter().collect();
            let act =
                json!({ "type": "mcp_tool", "server": server, "tool": ATTEST, "input": input });
            json!({ "matcher": format!("mcp__{}__.*", in_tool_names(server)), "hooks": [act] })
        }
    }
}

/// How Claude Code writes a server's name in the names of its tools.
fn in_tool_names(server: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    server.chars().map(|c| if kept(c) { c } else { '_' }).collect()
}

/// Whether some entry for the event already runs our command, from wherever the program was then.
fn has_hook(settings: &Value, hook: &Hook) -> bool {
    let entries = settings.pointer(&format!("/hooks/{}", hook.event())).and_then(Value::as_array);
    let mut acts = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("hooks").and_then(Value::as_array))
        .flatten();
    let says =
        |act: &Value, key: &str, text: &str| act.get(key).and_then(Value::as_str) == Some(text);
    acts.any(|act| match hook {
        Hook::Command { .. } => act.get("command").and_then(Value::as_str).is_some_and(runs_ours),
        Hook::Attest { server } => says(act, "server", server) && says(act, "tool", ATTEST),
    })
}

fn runs_ours(command: &str) -> bool {
    let program =
        command.trim().strip_suffix(COMMAND).map(|rest| rest.trim_matches([' ', '\'', '"']));
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
        // The program may have moved since: one hook is enough.
        assert_eq!(add_hooks(Some(&merged.text), "adjutant", &servers).unwrap(), merged);
        // What `init` knew of before stays; a server that came since gets its own.
        let first = add_hooks(Some(text), "adjutant", &servers[..1]).unwrap();
        let second = add_hooks(Some(&first.text), "adjutant", &servers).unwrap();
        assert_eq!(second.text.matches(ATTEST).count(), 2, "{}", second.text);
        assert_eq!(second.text.matches("adjutant hook").count(), EVENTS.len());
    }

    #[test]
    fn our_servers_are_found_under_whatever_name() {
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
    fn our_own_hook_is_known(command: &str, ours: bool) {
        assert_eq!(runs_ours(command), ours);
    }

    #[test]
    fn hooks_of_another_kind_are_refused() {
        let refused = add_hooks(Some("{\"hooks\": []}"), "adjutant", &[]).unwrap_err();
        assert_eq!(refused.to_string(), "line 1, column 11: `hooks` must be an object");
    }
}
