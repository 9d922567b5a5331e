//! The files are followed: each on its own, the last good version of each kept.

use std::fs;
use std::os::unix::fs::symlink;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{RULES, Stage, code, execute, faulty, said, until};
use crate::support::mcp::{McpClient, text};

const NOBODY: &str = r#"{"agents": {"dev": {}}}"#;

fn is_denied(client: &mut McpClient) -> Option<()> {
    let result = execute(client, "good", "echo", json!({}));
    (result["isError"] == true).then(|| assert_eq!(code(&result), "DENIED_BY_POLICY"))
}

fn is_allowed(client: &mut McpClient) -> Option<()> {
    (execute(client, "good", "echo", json!({}))["isError"] != true).then_some(())
}

#[test]
fn d3_rules_hold_from_the_next_call_on_and_a_broken_file_changes_nothing() {
    let stage = Stage::with(&["good"]);
    let mut command = stage.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    let pid = said(&mut client, "good", "pid");
    stage.rules(NOBODY);
    until("the refusal", || is_denied(&mut client));
    // Broken servers beside sound rules: each file counts for itself.
    stage.context.write(".mcp.json", "{ not json");
    stage.rules(RULES);
    until("the right", || is_allowed(&mut client));
    let status =
        client.call("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
            .clone();
    assert!(status["reload_status"]["mcp_config"]["last_error"].is_string(), "{status:#}");
    assert_eq!(status["reload_status"]["gateway_rules"]["last_error"], json!(null));
    stage.rules(r#"{"agents": {"dev": {"denny": {}}}}"#);
    until("the report", || {
        let status =
            client.call("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
                .clone();
        status["reload_status"]["gateway_rules"]["last_error"]
            .as_str()
            .map(|error| assert!(error.contains("denny"), "{error}"))
    });
    assert_eq!(said(&mut client, "good", "pid"), pid, "the last good rules and the same process");
    fs::remove_file(stage.context.root().join(".mcp-gateway-rules.json")).unwrap();
    until("the end of all rights", || {
        let result = execute(&mut client, "good", "echo", json!({}));
        (result["isError"] == true).then(|| assert_eq!(code(&result), "INVALID_AGENT_ID"))
    });
}

#[test]
fn unchanged_servers_keep_their_process_and_running_calls_finish() {
    let entry = json!({ "command": faulty() });
    let stage = Stage::new(&json!({ "good": entry, "changes": entry }));
    let mut client = stage.connect();
    let (kept, old) = (said(&mut client, "good", "pid"), said(&mut client, "changes", "pid"));
    let sleep =
        json!({ "agent_id": "dev", "server": "changes", "tool": "sleep", "args": { "ms": 3_000 } });
    let running = client.begin("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    let changed = json!({ "command": faulty(), "env": { "NEW": "1" } });
    stage.servers(&json!({ "good": entry, "changes": changed, "new": entry }));
    until("the new server", || {
        (execute(&mut client, "new", "echo", json!({}))["isError"] != true).then_some(())
    });
    assert_ne!(said(&mut client, "changes", "pid"), old, "a new process for the new entry");
    assert_eq!(said(&mut client, "good", "pid"), kept);
    assert_eq!(text(&client.answer(running)), "slept", "on the old one");
    let old: i32 = old.parse().unwrap();
    until("the end of the old process", || kill(Pid::from_raw(old), None).is_err().then_some(()));
}

#[test]
fn a_rename_a_symlink_and_sighup_are_seen() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let root = stage.context.root();
    let rules = root.join(".mcp-gateway-rules.json");
    stage.context.write("other.json", NOBODY);
    fs::rename(root.join("other.json"), &rules).unwrap();
    until("the rename", || is_denied(&mut client));
    stage.context.write("elsewhere/rules.json", RULES);
    fs::remove_file(&rules).unwrap();
    symlink("elsewhere/rules.json", &rules).unwrap();
    until("the symlink", || is_allowed(&mut client));
    stage.context.write("elsewhere/rules.json", NOBODY);
    until("the symlink's target", || is_denied(&mut client));
    stage.context.write("elsewhere/rules.json", RULES);
    kill(Pid::from_raw(i32::try_from(client.pid()).unwrap()), Signal::SIGHUP).unwrap();
    until("the signal", || is_allowed(&mut client));
}

#[test]
fn the_servers_of_extensions_come_change_and_go() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let kept = said(&mut client, "good", "pid");
    let bring = |mode: &str| {
        let servers = json!({ "kit": { "command": faulty(), "args": ["named", mode] } });
        let manifest = json!({ "name": "tool-kit", "mcpServers": servers });
        stage.context.write("extensions/tool-kit/extension.json", manifest.to_string());
    };
    let answers = |client: &mut McpClient, tool: &str| {
        (execute(client, "kit", tool, json!({}))["isError"] != true).then_some(())
    };
    // Neither `extensions/` nor the folder in it was there to be watched.
    bring("first");
    until("the new extension", || answers(&mut client, "first"));
    bring("second");
    until("the changed extension", || answers(&mut client, "second"));
    fs::remove_dir_all(stage.context.root().join("extensions/tool-kit")).unwrap();
    until("the end of the extension", || {
        let result = execute(&mut client, "kit", "second", json!({}));
        (result["isError"] == true).then(|| assert_eq!(code(&result), "SERVER_UNAVAILABLE"))
    });
    assert_eq!(said(&mut client, "good", "pid"), kept);
}
