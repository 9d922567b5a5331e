//! Reload of configuration files: each file on its own; an invalid file leaves the last valid version active.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use test_case::test_case;

use super::{GatewayContext, RULES, call_tool_text, error_code, execute, faulty};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const NO_PERMISSIONS: &str = r#"{"agents": {"dev": {}}}"#;

fn is_denied(client: &mut McpClient) -> Option<()> {
    let result = execute(client, "good", "echo", json!({}));
    (result["isError"] == true).then(|| assert_eq!(error_code(&result), "DENIED_BY_POLICY"))
}

fn is_allowed(client: &mut McpClient) -> Option<()> {
    (execute(client, "good", "echo", json!({}))["isError"] != true).then_some(())
}

#[test]
fn d3_changed_rules_apply_to_the_next_call_and_an_invalid_file_is_ignored() {
    let fixture = GatewayContext::with(&["good"]);
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    let pid = call_tool_text(&mut client, "good", "pid");
    fixture.rules(NO_PERMISSIONS);
    wait_until("the refusal", || is_denied(&mut client));
    // Invalid servers and valid rules: each file is applied on its own.
    fixture.write(".mcp.json", "{ not json");
    fixture.rules(RULES);
    wait_until("the right", || is_allowed(&mut client));
    let status =
        client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
            .clone();
    assert!(status["reload_status"]["mcp_config"]["last_error"].is_string(), "{status:#}");
    assert_eq!(status["reload_status"]["gateway_rules"]["last_error"], json!(null));
    fixture.rules(r#"{"agents": {"dev": {"denny": {}}}}"#);
    wait_until("the report", || {
        let status =
            client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
                .clone();
        status["reload_status"]["gateway_rules"]["last_error"]
            .as_str()
            .map(|error| assert!(error.contains("denny"), "{error}"))
    });
    assert_eq!(
        call_tool_text(&mut client, "good", "pid"),
        pid,
        "the last good rules and the same process"
    );
    fs::remove_file(fixture.root().join(".mcp-gateway-rules.json")).unwrap();
    wait_until("the end of all rights", || {
        let result = execute(&mut client, "good", "echo", json!({}));
        (result["isError"] == true).then(|| assert_eq!(error_code(&result), "INVALID_AGENT_ID"))
    });
}

#[test]
fn unchanged_servers_keep_their_process_and_running_calls_finish() {
    let entry = json!({ "command": faulty() });
    let fixture = GatewayContext::new(&json!({ "good": entry, "changes": entry }));
    let mut client = fixture.connect();
    let (kept, old) =
        (call_tool_text(&mut client, "good", "pid"), call_tool_text(&mut client, "changes", "pid"));
    let sleep =
        json!({ "agent_id": "dev", "server": "changes", "tool": "sleep", "args": { "ms": 3_000 } });
    let running =
        client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    let changed = json!({ "command": faulty(), "env": { "NEW": "1" } });
    fixture.servers(&json!({ "good": entry, "changes": changed, "new": entry }));
    wait_until("the new server", || {
        (execute(&mut client, "new", "echo", json!({}))["isError"] != true).then_some(())
    });
    assert_ne!(
        call_tool_text(&mut client, "changes", "pid"),
        old,
        "a new process for the new entry"
    );
    assert_eq!(call_tool_text(&mut client, "good", "pid"), kept);
    assert_eq!(result_text(&client.answer(running)), "slept", "on the old one");
    let old: i32 = old.parse().unwrap();
    wait_until("the end of the old process", || {
        kill(Pid::from_raw(old), None).is_err().then_some(())
    });
}

#[test_case(true; "changed")]
#[test_case(false; "removed")]
fn a_retired_eager_server_is_not_started_again(is_changed: bool) {
    let start = "echo $NAME >> starts; exec \"$0\"";
    let entry = |name: &str| json!({ "command": "/bin/sh", "args": ["-c", start, faulty()], "env": { "NAME": name }, "start": "eager" });
    let fixture = GatewayContext::new(&json!({ "eager": entry("old") }));
    let mut client = fixture.connect();
    let sleep =
        json!({ "agent_id": "dev", "server": "eager", "tool": "sleep", "args": { "ms": 3_000 } });
    let meta = json!({ "progressToken": "p" });
    let running = client.send_request(
        "tools/call",
        json!({ "name": "execute_tool", "arguments": sleep, "_meta": meta }),
    );
    client.wait_for_notification(|notification| notification["params"]["message"] == "asleep");
    let (servers, expected) = match is_changed {
        true => (json!({ "eager": entry("new") }), "old\nnew\n"),
        false => (json!({ "other": { "command": faulty() } }), "old\n"),
    };
    fixture.servers(&servers);
    assert_eq!(result_text(&client.answer(running)), "slept", "on the old one");
    let starts = fs::read_to_string(fixture.root().join("starts")).unwrap();
    assert_eq!(starts, expected);
}

#[test]
fn renames_symlinks_and_sighup_trigger_a_reload() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let root = fixture.root();
    let rules = root.join(".mcp-gateway-rules.json");
    fixture.write("other.json", NO_PERMISSIONS);
    fs::rename(root.join("other.json"), &rules).unwrap();
    wait_until("the rename", || is_denied(&mut client));
    fixture.write("elsewhere/rules.json", RULES);
    fs::remove_file(&rules).unwrap();
    symlink("elsewhere/rules.json", &rules).unwrap();
    wait_until("the symlink", || is_allowed(&mut client));
    fixture.write("elsewhere/rules.json", NO_PERMISSIONS);
    wait_until("the symlink's target", || is_denied(&mut client));
    fixture.write("elsewhere/rules.json", RULES);
    kill(Pid::from_raw(i32::try_from(client.pid()).unwrap()), Signal::SIGHUP).unwrap();
    wait_until("the signal", || is_allowed(&mut client));
}

/// Replaces a symlink atomically, as Kubernetes does with mounted files.
fn replace_symlink(link: &Path, target: &str) {
    let staged = link.parent().unwrap().join("staged");
    symlink(target, &staged).unwrap();
    fs::rename(&staged, link).unwrap();
}

#[test]
fn replacing_a_parent_directory_triggers_a_reload() {
    let fixture = GatewayContext::with(&["good"]);
    let root = fixture.root();
    for (version, rules) in [("v1", RULES), ("v2", NO_PERMISSIONS), ("v3", RULES)] {
        fixture.write(format!("mount/{version}/rules.json"), rules);
    }
    let data = root.join("mount/..data");
    symlink("v1", &data).unwrap();
    symlink("..data/rules.json", root.join("mount/rules.json")).unwrap();
    fs::remove_file(root.join(".mcp-gateway-rules.json")).unwrap();
    symlink("mount/rules.json", root.join(".mcp-gateway-rules.json")).unwrap();
    let mut client = fixture.connect();
    is_allowed(&mut client).expect("as the first version says");
    replace_symlink(&data, "v2");
    wait_until("the second version", || is_denied(&mut client));
    replace_symlink(&data, "v3");
    wait_until("the third version", || is_allowed(&mut client));
    fixture.write("mount/v3/rules.json", NO_PERMISSIONS);
    wait_until("an edit of the third version", || is_denied(&mut client));
}

#[test]
fn replacing_a_directory_named_by_a_variable_triggers_a_reload() {
    let fixture = GatewayContext::with(&["good"]);
    fixture.write("other/old/rules.json", RULES).write("other/new/rules.json", NO_PERMISSIONS);
    let current = fixture.root().join("other/current");
    symlink("old", &current).unwrap();
    let mut command = fixture.command();
    command.env("GATEWAY_RULES", current.join("rules.json"));
    let mut client = McpClient::connect(command);
    is_allowed(&mut client).expect("as the old ones say");
    replace_symlink(&current, "new");
    wait_until("the new rules", || is_denied(&mut client));
}

#[test]
fn files_created_later_are_found_in_every_place() {
    let fixture = GatewayContext::with(&["good"]);
    let root = fixture.root();
    fs::remove_file(root.join(".mcp-gateway-rules.json")).unwrap();
    let servers = fs::read(root.join(".mcp.json")).unwrap();
    fs::remove_file(root.join(".mcp.json")).unwrap();
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    let own = fixture.home().join(".config/adjutant");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join(".mcp.json"), servers).unwrap();
    fs::write(own.join(".mcp-gateway-rules.json"), RULES).unwrap();
    wait_until("the files of the person", || is_allowed(&mut client));
    let status = client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }));
    assert_eq!(
        status["structuredContent"]["config_paths"]["gateway_rules"],
        json!(own.join(".mcp-gateway-rules.json"))
    );
    // Rules created in another place change no permission, even after the active file is removed.
    fixture.rules(RULES);
    fs::remove_file(own.join(".mcp-gateway-rules.json")).unwrap();
    wait_until("the end of all rights", || {
        let result = execute(&mut client, "good", "echo", json!({}));
        let refused = result["isError"] == true && error_code(&result) == "INVALID_AGENT_ID";
        refused.then_some(())
    });
}

#[test]
fn servers_of_extensions_are_added_changed_and_removed() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let kept = call_tool_text(&mut client, "good", "pid");
    let bring = |mode: &str| {
        let servers = json!({ "kit": { "command": faulty(), "args": ["named", mode] } });
        let manifest = json!({ "name": "tool-kit", "mcpServers": servers });
        fixture.write("extensions/tool-kit/extension.json", manifest.to_string());
    };
    let answers = |client: &mut McpClient, tool: &str| {
        (execute(client, "kit", tool, json!({}))["isError"] != true).then_some(())
    };
    // Neither `extensions/` nor its subdirectory existed when the watch began.
    bring("first");
    wait_until("the new extension", || answers(&mut client, "first"));
    bring("second");
    wait_until("the changed extension", || answers(&mut client, "second"));
    fs::remove_dir_all(fixture.root().join("extensions/tool-kit")).unwrap();
    wait_until("the end of the extension", || {
        let result = execute(&mut client, "kit", "second", json!({}));
        (result["isError"] == true).then(|| assert_eq!(error_code(&result), "SERVER_UNAVAILABLE"))
    });
    assert_eq!(call_tool_text(&mut client, "good", "pid"), kept);
}
