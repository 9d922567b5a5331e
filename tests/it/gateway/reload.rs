//! The files are followed: each on its own, the last good version of each kept.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

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

/// Points a link elsewhere in one step, as a cluster does with the files it mounts.
fn point(link: &Path, target: &str) {
    let staged = link.parent().unwrap().join("staged");
    symlink(target, &staged).unwrap();
    fs::rename(&staged, link).unwrap();
}

#[test]
fn a_folder_on_the_way_that_is_swapped_is_seen() {
    let stage = Stage::with(&["good"]);
    let root = stage.context.root();
    for (version, rules) in [("v1", RULES), ("v2", NOBODY), ("v3", RULES)] {
        stage.context.write(format!("mount/{version}/rules.json"), rules);
    }
    let data = root.join("mount/..data");
    symlink("v1", &data).unwrap();
    symlink("..data/rules.json", root.join("mount/rules.json")).unwrap();
    fs::remove_file(root.join(".mcp-gateway-rules.json")).unwrap();
    symlink("mount/rules.json", root.join(".mcp-gateway-rules.json")).unwrap();
    let mut client = stage.connect();
    is_allowed(&mut client).expect("as the first version says");
    point(&data, "v2");
    until("the second version", || is_denied(&mut client));
    point(&data, "v3");
    until("the third version", || is_allowed(&mut client));
    stage.context.write("mount/v3/rules.json", NOBODY);
    until("an edit of the third version", || is_denied(&mut client));
}

#[test]
fn a_folder_that_a_variable_names_and_that_is_swapped_is_seen() {
    let stage = Stage::with(&["good"]);
    stage.context.write("other/old/rules.json", RULES).write("other/new/rules.json", NOBODY);
    let current = stage.context.root().join("other/current");
    symlink("old", &current).unwrap();
    let mut command = stage.command();
    command.env("GATEWAY_RULES", current.join("rules.json"));
    let mut client = McpClient::connect(command);
    is_allowed(&mut client).expect("as the old ones say");
    point(&current, "new");
    until("the new rules", || is_denied(&mut client));
}

#[test]
fn files_that_come_later_are_found_in_every_place() {
    let stage = Stage::with(&["good"]);
    let root = stage.context.root();
    fs::remove_file(root.join(".mcp-gateway-rules.json")).unwrap();
    let servers = fs::read(root.join(".mcp.json")).unwrap();
    fs::remove_file(root.join(".mcp.json")).unwrap();
    let mut command = stage.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    let own = stage.context.home().join(".config/adjutant");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join(".mcp.json"), servers).unwrap();
    fs::write(own.join(".mcp-gateway-rules.json"), RULES).unwrap();
    until("the files of the person", || is_allowed(&mut client));
    let status = client.call("get_gateway_status", json!({ "agent_id": "dev" }));
    assert_eq!(
        status["structuredContent"]["config_paths"]["gateway_rules"],
        json!(own.join(".mcp-gateway-rules.json"))
    );
    // Whoever puts rules into another place meanwhile changes nobody's rights, also when those in use go.
    stage.rules(RULES);
    fs::remove_file(own.join(".mcp-gateway-rules.json")).unwrap();
    until("the end of all rights", || {
        let result = execute(&mut client, "good", "echo", json!({}));
        let refused = result["isError"] == true && code(&result) == "INVALID_AGENT_ID";
        refused.then_some(())
    });
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
