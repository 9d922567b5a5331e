//! `adjutant serve` over MCP: protocol revisions, tool list, rejected calls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::mcp::{McpClient, result_text};

fn agent_file(name: &str, more: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: The agent {name}, which does what its name says and nothing else\n{more}---\nYou are {name}.\n"
    )
}

fn project() -> TestContext {
    let context = TestContext::new();
    context.agent("web-search", &agent_file("web-search", ""));
    context.agent("private", &agent_file("private", "allowed_callers: [reviewer]\n"));
    context.agent("broken", &agent_file("broken", "permissions: { alow: [] }\n"));
    context
}

#[test]
fn only_callable_agents_are_listed_and_changes_are_notified() {
    let context = project();
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    let description = |client: &mut McpClient| {
        let tools = client.request("tools/list", json!({}));
        tools["tools"][0]["description"].as_str().unwrap().to_owned()
    };
    let before = description(&mut client);
    assert_eq!(
        before,
        "Hand a task to a specialist agent with rights and tools of its own.\n- web-search: The \
         agent web-search, which does what its name says and nothing else"
    );
    assert!(!before.contains("- private:") && !before.contains("- broken:"), "{before}");
    context.agent("late", &agent_file("late", ""));
    client.wait_for_notification(|message| message["method"] == "notifications/tools/list_changed");
    insta::assert_snapshot!(description(&mut client), @r"
    Hand a task to a specialist agent with rights and tools of its own.
    - late: The agent late, which does what its name says and nothing else
    - web-search: The agent web-search, which does what its name says and nothing else
    ");
}

#[test]
fn each_caller_is_listed_its_own_agents() {
    let context = project();
    let mut client = McpClient::connect(context.adjutant(["serve", "--caller", "reviewer"]));
    let tools = client.request("tools/list", json!({}));
    let description = tools["tools"][0]["description"].as_str().unwrap();
    assert_eq!(
        description,
        "Hand a task to a specialist agent with rights and tools of its own.\n- private: The \
         agent private, which does what its name says and nothing else"
    );
}

#[test]
fn tool_list_stays_small() {
    let context = TestContext::new();
    for name in ["one", "two", "three", "four", "five"] {
        context.agent(name, &agent_file(name, ""));
    }
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    let tools = client.request("tools/list", json!({}));
    assert_eq!(tools["tools"].as_array().unwrap().len(), 2);
    let tokens = tools.to_string().chars().count() / 4;
    assert!(tokens < 600, "{tokens} tokens: {tools}");
    assert_eq!(tools["tools"][0]["_meta"]["anthropic/maxResultSizeChars"], 500_000);
}

#[test]
fn gateway_tool_list_stays_small() {
    let context = TestContext::new();
    let mut client = McpClient::connect(context.adjutant(["gateway"]));
    let tools = client.request("tools/list", json!({}));
    assert_eq!(tools["tools"].as_array().unwrap().len(), 3);
    let tokens = tools.to_string().chars().count() / 4;
    assert!(tokens < 400, "{tokens} tokens: {tools}");
}

#[test]
fn both_protocol_revisions_are_supported() {
    let context = project();
    let mut client = McpClient::start(context.adjutant(["serve"]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.request("server/discover", json!({ "_meta": meta }));
    for version in ["2026-07-28", "2025-11-25"] {
        let versions = found["supportedVersions"].as_array().expect("versions");
        assert!(versions.iter().any(|known| known == version), "{found}");
    }
    let tools = client.request("tools/list", json!({ "_meta": meta }));
    assert_eq!(tools["tools"][0]["name"], "run_subagent", "{tools}");

    let mut older = McpClient::start(context.adjutant(["serve"]));
    let answer = older.initialize();
    assert_eq!(answer["protocolVersion"], "2025-11-25");
    assert_eq!(answer["serverInfo"]["name"], "adjutant");
}

#[test_case(json!({ "agent_name": "web-serch", "prompt": "x" }), "AGENT_NOT_FOUND", "Did you mean `web-search`?")]
#[test_case(json!({ "agent_name": "private", "prompt": "x" }), "CALLER_NOT_ALLOWED", "reviewer")]
#[test_case(json!({ "agent_name": "broken", "prompt": "x" }), "AGENT_INVALID", "alow")]
#[test_case(json!({ "agent_name": "web-search", "prompt": " " }), "INVALID_ARGUMENT", "`prompt` is empty")]
#[test_case(json!({ "agent_name": "", "prompt": "x" }), "INVALID_ARGUMENT", "`agent_name` is empty")]
#[test_case(json!({ "agent_name": "web-search" }), "INVALID_ARGUMENT", "prompt")]
#[test_case(json!({ "agent_name": "web-search", "prompt": "x", "sesion_key": "k" }), "INVALID_ARGUMENT", "sesion_key")]
#[test_case(json!({ "agent_name": "web-search", "prompt": 7 }), "INVALID_ARGUMENT", "string")]
fn invalid_call_is_rejected_with_a_one_line_error(arguments: Value, code: &str, says: &str) {
    let context = project();
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    let result = client.call_tool("run_subagent", arguments);
    assert_eq!(result["isError"], true, "{result}");
    let said = result_text(&result);
    assert!(said.starts_with(&format!("{code}: ")) && said.contains(says), "{said}");
    assert!(said.lines().count() == 1 && said.ends_with(['.', '?']), "{said}");
    assert!(!context.root().join("data/events.jsonl").exists(), "nothing was begun");
}

/// Names that could act as a path, a flag or another name, with a valid agent at every place that they could lead to.
#[test]
fn a1_invalid_agent_name_is_rejected_and_no_path_is_touched() {
    const NOT_FOUND: &str = "AGENT_NOT_FOUND";
    const INVALID: &str = "INVALID_ARGUMENT";
    // A directory of this name exists, and the error says that the name is not valid for an agent.
    const BROKEN: &str = "AGENT_INVALID";
    let context = project();
    for bait in [
        "main",
        "agents",
        "agents/a/b",
        "agents/MAIN",
        "agents/--resume",
        "agents/w\u{435}b-search",
    ] {
        context.write(format!("{bait}/agent.md"), agent_file("bait", ""));
    }
    let started = context.root().join("started");
    let claude = context.home().join("claude");
    fs::write(&claude, format!("#!/bin/sh\ntouch '{}'\n", started.display())).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let with_claude = |mut command: Command| {
        command.env("ADJUTANT_CLAUDE", &claude);
        command
    };
    let before = files_outside_data(&context.root());
    let mut client = McpClient::connect(with_claude(context.adjutant(["serve"])));
    let long = "x".repeat(10 << 10);
    let names = [
        ("../main", NOT_FOUND),
        ("a/b", NOT_FOUND),
        ("/etc/passwd", NOT_FOUND),
        ("", INVALID),
        (&long, INVALID),
        (".", NOT_FOUND),
        ("web-search\0", NOT_FOUND),
        ("web-search\n", NOT_FOUND),
        ("w\u{435}b-search", BROKEN),
        ("web\u{2010}search", NOT_FOUND),
        ("MAIN", BROKEN),
        ("--resume", BROKEN),
    ];
    for (name, code) in names {
        let lines_before = context.audit_entries().len();
        let task = json!({ "agent_name": name, "prompt": "x" });
        let refused = client.call_tool("run_subagent", task.clone());
        let said = result_text(&refused);
        assert!(said.starts_with(&format!("{code}: ")), "{name:?}: {said}");
        assert!(said.lines().count() == 1 && said.len() < 1_000, "{name:?}: {said}");
        let together = client.call_tool("run_subagents", json!({ "tasks": [task] }));
        assert_eq!(
            together["structuredContent"]["results"][0]["error"]["code"], code,
            "{name:?}: {together}"
        );
        let mut refusals = 2;
        // Program arguments cannot contain NUL.
        if !name.contains('\0') {
            let run = with_claude(context.adjutant(["run", "--json", "--", name, "x"]));
            let output = { run }.output().unwrap();
            assert_eq!(report(&output)["error"]["code"], code, "{name:?}: {output:?}");
            refusals += 1;
        }
        let audit = context.audit_entries().split_off(lines_before);
        assert_eq!(audit.len(), refusals, "each has its line: {audit:#?}");
        assert!(audit.iter().all(|line| line["code"] == code), "{audit:#?}");
    }
    assert!(!started.exists(), "nothing was started");
    assert!(!context.root().join("data/events.jsonl").exists(), "nothing was begun");
    assert_eq!(files_outside_data(&context.root()), before, "nothing was changed");
}

/// Every file with its content, except those in `data`.
fn files_outside_data(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_name() != "data")
    {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_outside_data(&entry.path())),
            false => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found
}

#[test]
fn error_for_a_missing_claude_says_how_to_install_it() {
    let context = project();
    let mut command = context.adjutant(["serve"]);
    command.env("PATH", "/nowhere");
    let mut client = McpClient::connect(command);
    let result =
        client.call_tool("run_subagent", json!({ "agent_name": "web-search", "prompt": "x" }));
    let said = result_text(&result);
    assert!(
        said.starts_with("SPAWN_FAILED: ")
            && said.contains("npm install -g @anthropic-ai/claude-code"),
        "{said}"
    );
}

#[test]
fn a_subagent_cannot_start_adjutant() {
    let refused = "error: this command was started by the subagent `web-search`: subagents cannot delegate, \
                   act for other callers or change the project; let the main agent or a person run it\n";
    let context = project();
    for command in [vec!["serve"], vec!["run", "web-search", "x"]] {
        let mut inside = context.adjutant([]);
        inside.args(&command).env("ADJUTANT_AGENT", "web-search").stdin(Stdio::null());
        let output = inside.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), refused);
    }
    // Clearing the variable does not help: the environment of the parent process still has it.
    let program = env!("CARGO_BIN_EXE_adjutant");
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("env -u ADJUTANT_AGENT {program} run web-search x; true")])
        .env("ADJUTANT_AGENT", "web-search")
        .current_dir(context.root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), refused);
}

#[test]
fn server_exits_when_its_client_disconnects() {
    let context = project();
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    client.disconnect();
    assert!(client.wait_for_exit().success());
}

#[test]
fn gateway_tools_are_listed_if_other_servers_are_configured() {
    let context = project();
    context.write(
        ".mcp.json",
        r#"{"mcpServers":{"adjutant":{"command":"adjutant","args":["serve"]}}}"#,
    );
    let names = |client: &mut McpClient| -> Vec<String> {
        let tools = client.request("tools/list", json!({}));
        tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    assert_eq!(names(&mut client), ["run_subagent", "run_subagents"]);
    context.write(".mcp.json", r#"{"mcpServers":{"files":{"command":"no-such-program"}}}"#);
    client.wait_for_notification(|message| message["method"] == "notifications/tools/list_changed");
    assert!(names(&mut client).iter().any(|name| name == "execute_tool"));
    let refused = client.call_tool("list_servers", json!({ "agent_id": "main" }));
    assert!(
        result_text(&refused).starts_with("INVALID_AGENT_ID: "),
        "no rules, no access: {refused}"
    );
}
