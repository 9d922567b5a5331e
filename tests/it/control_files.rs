//! Control files: an agent cannot change the files that define permissions, nor read the files that Adjutant owns.
//! Tested with two versions of `claude`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW, OLD, report};
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;

/// Permission rules that allow everything.
const RULES: &str = "permissions:\n  allow: [\"Read(//**)\", \"Edit(//**)\", Read, Grep, Glob, Edit, Write, NotebookEdit]\n";

fn editor_agent(settings: &str) -> String {
    format!("---\nname: editor\ndescription: Edits\n{RULES}{settings}---\nYou edit.\n")
}

fn script_of_calls(calls: &[(&str, Value)]) -> String {
    let mut script = String::new();
    for (tool, input) in calls {
        writeln!(script, "CALL {tool} {input}").unwrap();
    }
    script
}

/// Existing files that the agent tries to change, with their description in the denial.
const EXISTING_TARGETS: [(&str, &str); 6] = [
    ("agents/editor/agent.md", "`agents/`: agent files"),
    (".mcp.json", "`.mcp.json`: MCP servers"),
    (".mcp-gateway-rules.json", "`.mcp-gateway-rules.json`: gateway rules"),
    (".claude/settings.json", "`.claude/`: Claude Code settings"),
    ("extensions/shop/server.py", "`extensions/shop/`: an extension"),
    (".git/config", "`.git/config`: git configuration"),
];
/// Missing files that the agent tries to create.
const CREATED_TARGETS: [(&str, &str); 6] = [
    ("agents/helper/agent.md", "`agents/`: agent files"),
    ("extensions/new/extension.json", "`extensions/*/extension.json`: an extension manifest"),
    (".git/hooks/pre-commit", "`.git/hooks/`: git hooks"),
    ("data/tokens.json", "`data/tokens.json`: tokens"),
    ("alias/tool-pins.json", "`data/tool-pins.json`: tool pins"),
    ("../home/.config/adjutant/.mcp.json", "`.mcp.json`: MCP servers"),
];
const NOTEBOOK_TARGET: (&str, &str) = ("agents/editor/notes.ipynb", "`agents/`: agent files");

/// Creates the existing targets; returns tool calls that change or create each target once.
fn create_targets_and_calls(context: &TestContext) -> Vec<(&'static str, Value)> {
    let root = context.root();
    for (path, _) in EXISTING_TARGETS.iter().filter(|(path, _)| *path != "agents/editor/agent.md") {
        context.write(path, "{}\n");
    }
    // Claude Code validates settings before it asks for permission to write them.
    context.write(".claude/settings.json", r#"{ "env": { "A": "original" } }"#);
    context.write("extensions/shop/extension.json", r#"{"name": "shop", "version": "1.0.0"}"#);
    let cell = json!({ "cell_type": "markdown", "id": "a", "metadata": {}, "source": ["old"] });
    let notebook = json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    context.write(NOTEBOOK_TARGET.0, notebook.to_string());
    symlink("data", root.join("alias")).unwrap();
    let mut calls = Vec::new();
    for (number, (path, _)) in EXISTING_TARGETS.iter().enumerate() {
        // Claude Code refuses to change an existing file that was not read before, without asking for permission.
        calls.push(("Read", json!({ "file_path": root.join(path) })));
        let text = fs::read_to_string(root.join(path)).unwrap();
        let first = text.lines().next().unwrap();
        calls.push(match number % 2 {
            _ if text.contains("original") => {
                let (old, new) = ("original", "changed");
                ("Edit", json!({ "file_path": path, "old_string": old, "new_string": new }))
            }
            0 => ("Write", json!({ "file_path": path, "content": format!("{text}changed\n") })),
            _ => {
                let (old, new) = (first, format!("{first} changed"));
                ("Edit", json!({ "file_path": path, "old_string": old, "new_string": new }))
            }
        });
    }
    for (path, _) in CREATED_TARGETS {
        calls.push(("Write", json!({ "file_path": root.join(path), "content": "changed\n" })));
    }
    calls.push(("Read", json!({ "file_path": root.join(NOTEBOOK_TARGET.0) })));
    let edit = json!({ "notebook_path": root.join(NOTEBOOK_TARGET.0), "cell_id": "a", "new_source": "changed" });
    calls.push(("NotebookEdit", edit));
    calls
}

fn all_targets() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXISTING_TARGETS.into_iter().chain(CREATED_TARGETS).chain([NOTEBOOK_TARGET])
}

fn is_changed(root: &Path, path: &str) -> bool {
    fs::read_to_string(root.join(path)).is_ok_and(|text| text.contains("changed"))
}

#[test_case(NEW)]
#[test_case(OLD)]
fn control_files_cannot_be_changed_even_if_rules_allow_it(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("editor", &editor_agent(""));
    let (root, calls) = (fixture.root(), create_targets_and_calls(&fixture.context));
    let report = fixture.run("editor", &script_of_calls(&calls));
    for (path, _) in all_targets() {
        assert!(!is_changed(&root, path), "{path}: {report:#}");
    }
    assert!(!root.join("data/tool-pins.json").exists(), "behind the link");
    let sentence = |given: String, what: &str| {
        format!(
            "agent `editor` may not change `{given}`: it is a control file ({what}); \
             `may_change_project_config: true` in its agent.md permits this"
        )
    };
    // Claude Code makes paths absolute and removes `..` before it asks for permission.
    let absolute = |path: &str| match path.strip_prefix("../") {
        Some(beside) => root.with_file_name(beside).display().to_string(),
        None => root.join(path).display().to_string(),
    };
    let expected: BTreeSet<String> =
        all_targets().map(|(path, what)| sentence(absolute(path), what)).collect();
    let told = report["denials"].as_array().unwrap().iter();
    let told: BTreeSet<String> =
        told.map(|denial| denial["rule"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, expected, "{report:#}");
    let audit = fixture.audit_entries().into_iter();
    let denied = audit.filter(|line| line["operation"] == "tool_use" && line["decision"] == "deny");
    let reasons: BTreeSet<String> =
        denied.map(|line| line["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, expected);
    assert_eq!(fixture.events_named("PermissionDenied").len(), expected.len());
}

/// Adjutant permits the changes; Claude Code itself still asks a person about some of the files.
#[test_case(NEW)]
#[test_case(OLD)]
fn an_agent_with_may_change_project_config_can_change_control_files(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("editor", &editor_agent("may_change_project_config: true\n"));
    let (root, calls) = (fixture.root(), create_targets_and_calls(&fixture.context));
    fs::create_dir_all(root.join("data")).unwrap();
    let mut client = McpClient::connect_with_elicitation(fixture.adjutant(["serve"]));
    let task = json!({ "agent_name": "editor", "prompt": script_of_calls(&calls) });
    let id =
        client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": task }));
    for path in [
        "project/.mcp.json",
        ".claude/settings.json",
        ".git/config",
        ".git/hooks/pre-commit",
        "adjutant/.mcp.json",
    ] {
        let question = client.wait_for_elicitation(path);
        client.answer_elicitation(&question, "allow_once");
    }
    let result = client.answer(id);
    for (path, _) in all_targets() {
        assert!(
            is_changed(&root, path),
            "{path}: {}",
            result["structuredContent"]["result"].as_str().unwrap()
        );
    }
    assert_eq!(result["structuredContent"]["denials"], Value::Null, "{result:#}");
}

/// Claude Code refuses some calls without asking Adjutant; the denials are still reported and audited.
#[test_case(NEW)]
#[test_case(OLD)]
fn a_call_that_claude_itself_refuses_is_audited(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture
        .agent("editor", &editor_agent(""))
        .write(".mcp.json", "{}")
        .write("data/costs.json.damaged-1", "x");
    let root = fixture.root();
    let calls = [
        // Refused: the file was not read before.
        ("Write", json!({ "file_path": root.join(".mcp.json"), "content": "changed" })),
        // Refused: a rule in `permissions.deny` matches.
        ("Read", json!({ "file_path": root.join("data/costs.json.damaged-1") })),
        // Fails for a reason that is not a denial.
        ("Read", json!({ "file_path": root.join("none") })),
    ];
    let report = fixture.run("editor", &script_of_calls(&calls));
    assert!(!is_changed(&root, ".mcp.json"), "{report:#}");
    let path = |name: &str| root.join(name).display().to_string();
    let expected = json!([
        { "tool": "Write", "rule": format!(
            "agent `editor` may not change `{}`: it is a control file (`.mcp.json`: MCP servers); \
             `may_change_project_config: true` in its agent.md permits this", path(".mcp.json")
        ) },
        { "tool": "Read", "rule": format!(
            "agent `editor` may not read `{}`: the file belongs to Adjutant \
             (`data/costs.json.damaged-*`: costs)", path("data/costs.json.damaged-1")
        ) },
    ]);
    assert_eq!(report["denials"], expected, "{report:#}");
    let audit = fixture.audit_entries().into_iter();
    let denied = audit.filter(|line| line["operation"] == "tool_use" && line["decision"] == "deny");
    let tools: Vec<Value> = denied.map(|line| line["tool"].clone()).collect();
    assert_eq!(tools, ["Write", "Read"]);
}

/// A project in which Adjutant has run: `data/` contains its files and one file of the user.
fn used_project(fixture: &ClaudeContext) -> PathBuf {
    let context = &fixture.context;
    context
        .agent("editor", &editor_agent(""))
        .agent("talker", "---\ndescription: Talks\nsession: true\n---\nTalk.\n");
    context.write("data/user.txt", "NEEDLE of the user\n").write("src/a.txt", "NEEDLE in src\n");
    fixture.run("talker", "SAY hello");
    assert!(fixture.adjutant(["token", "new", "bot"]).output().unwrap().status.success());
    let hook = fixture.adjutant(["hook"]).stdin(Stdio::null()).output().unwrap();
    assert!(hook.status.success());
    let root = context.root();
    // Placeholders for files that the steps above do not create.
    for path in [
        "data/results/0192.txt",
        "data/tool-pins.json",
        "data/costs.json",
        "data/audit.000000000042.jsonl",
        "data/events.000000000042.jsonl",
        "data/.tmp-aBc123",
        "data/sessions.json.damaged-2026-11-19T00-00-00.000Z",
        "data/open-sessions/x.json",
    ] {
        context.write(path, "{} NEEDLE of Adjutant\n");
    }
    symlink("../data", root.join("src/data-link")).unwrap();
    symlink("../data/tool-pins.json", root.join("src/pins-link")).unwrap();
    root
}

#[test_case(NEW)]
#[test_case(OLD)]
fn adjutants_own_files_can_neither_be_read_nor_searched(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let root = used_project(&fixture);
    let there: BTreeSet<String> = fs::read_dir(root.join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in
        ["sessions.json", "tokens.json", "events.jsonl", "audit.jsonl", "hook.log", "leases"]
    {
        assert!(there.contains(name), "{name} of {there:?}");
    }
    let grep = |input: Value| {
        let mut input = input;
        input["pattern"] = "NEEDLE".into();
        input["output_mode"] = "content".into();
        ("Grep", input)
    };
    let glob = |input: Value| ("Glob", input);
    // Searches from a parent directory find only the user's files.
    let found = [
        (grep(json!({})), "data/user.txt:1:NEEDLE of the user\nsrc/a.txt:1:NEEDLE in src"),
        (
            grep(json!({ "path": root })),
            "data/user.txt:1:NEEDLE of the user\nsrc/a.txt:1:NEEDLE in src",
        ),
        (grep(json!({ "path": "data" })), "data/user.txt:1:NEEDLE of the user"),
        (grep(json!({ "glob": "data/**" })), "data/user.txt:1:NEEDLE of the user"),
        (grep(json!({ "glob": "{tool-pins.json,costs.json}" })), "No matches found"),
        (glob(json!({ "pattern": "data/**" })), "data/user.txt"),
        (glob(json!({ "pattern": "{data,none}/*" })), "data/user.txt"),
        (glob(json!({ "pattern": root.join("**/*.jsonl") })), "No files found"),
        (("Read", json!({ "file_path": "data/user.txt" })), "1\tNEEDLE of the user\n2\t"),
    ];
    for ((tool, input), expected) in found {
        let report = fixture.run("editor", &script_of_calls(&[(tool, input.clone())]));
        let result = report["result"].as_str().unwrap();
        let lines: BTreeSet<&str> = result.lines().collect();
        assert_eq!(lines, expected.lines().collect(), "{tool} {input}");
        assert_eq!(report.get("denials"), None, "{tool} {input}");
    }
    let refused = [
        ("Read", json!({ "file_path": root.join("data/tool-pins.json") })),
        ("Read", json!({ "file_path": "src/../data/results/0192.txt" })),
        ("Read", json!({ "file_path": root.join("src/pins-link") })),
        ("Read", json!({ "file_path": root.join("src/data-link/costs.json") })),
        grep(json!({ "path": "data/results" })),
        grep(json!({ "path": root.join("data/tool-pins.json") })),
        grep(json!({ "path": ".." })),
        grep(json!({ "path": "src/data-link" })),
        glob(json!({ "pattern": "*", "path": "data" })),
        glob(json!({ "pattern": "data/results/*" })),
        glob(json!({ "pattern": "**/*.json", "path": root.parent() })),
        glob(json!({ "pattern": root.join("src/data-link/*") })),
        glob(json!({ "pattern": root.join("data/*") })),
    ];
    let before = fixture.model.requests().len();
    let report = fixture.run("editor", &script_of_calls(&refused));
    let requests = fixture.model.requests();
    for request in &requests[before..] {
        assert!(!request.body.to_string().contains("NEEDLE of Adjutant"), "{report:#}");
    }
    let result = report["result"].as_str().unwrap();
    assert!(!result.contains("0192.txt\n") && !result.contains("aBc123"), "{result}");
    let audit = fixture.audit_entries().into_iter();
    let denied = audit.filter(|line| line["operation"] == "tool_use" && line["decision"] == "deny");
    assert_eq!(denied.count(), refused.len());
}

/// A new file of Adjutant in `data/` must be added to the list of control files.
#[test]
fn every_file_that_adjutant_creates_in_data_is_unreadable() {
    let context = TestContext::new();
    let entry = json!({ "mcpServers": { "good": { "command": crate::gateway::faulty() } } });
    context
        .agent("editor", &editor_agent(""))
        .agent("talker", "---\ndescription: Talks\nsession: true\n---\nTalk.\n")
        .write(".mcp.json", entry.to_string())
        .write(".mcp-gateway-rules.json", r#"{"agents": {"main": {"allow": {"servers": ["*"]}}}}"#);
    let run = |agent: &str, prompt: &str| {
        let mut command = context.adjutant(["run", agent, prompt, "--json"]);
        report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap())
    };
    run("talker", "FAKE result hello");
    assert!(context.run(["token", "new", "bot"]).status.success());
    McpClient::connect(context.adjutant(["gateway"]))
        .call_tool("get_server_tools", json!({ "agent_id": "main", "server": "good" }));
    let hook = context.adjutant(["hook"]).stdin(Stdio::null()).output().unwrap();
    assert!(hook.status.success());
    // Damaged stores are copied under other names.
    context.write("data/sessions.json", "{").write("data/costs.json", "{");
    run("talker", "FAKE result again");
    let files = files_below(&context.root().join("data"));
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    for part in
        ["sessions.json.damaged", "costs.json.damaged", "tool-pins.json", "tokens", "hook.log"]
    {
        assert!(names.iter().any(|name| name.contains(part)), "{part} of {names:#?}");
    }
    let ask = |path: &PathBuf| format!("FAKE ask Read {}\n", json!({ "file_path": path }));
    let report = run("editor", &files.iter().map(ask).collect::<String>());
    let denied: BTreeSet<&str> = report["denials"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|denial| denial["rule"].as_str()?.split('`').nth(3))
        .collect();
    let readable: Vec<&String> =
        names.iter().filter(|name| !denied.contains(name.as_str())).collect();
    assert!(readable.is_empty(), "{readable:#?}: {report:#}");
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.map(|path| if path.is_dir() { files_below(&path) } else { vec![path] });
    files.flatten().collect()
}

/// Claude Code attaches files that a prompt names with `@` without a tool call that Adjutant could deny.
#[test_case(NEW)]
#[test_case(OLD)]
fn a_prompt_cannot_attach_adjutants_own_files(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    used_project(&fixture);
    fixture.run("editor", "SAY look at @data/results/0192.txt and @data/user.txt please");
    let requests = fixture.model.requests();
    let body = requests.last().unwrap().body.to_string();
    assert!(body.contains("NEEDLE of the user"), "attaching works: {body}");
    assert!(!body.contains("NEEDLE of Adjutant"), "{body}");
}

/// Names of project directories with characters that are special in the patterns of permission rules.
const NAMES_WITH_PATTERN_CHARACTERS: [&str; 7] =
    ["p[1]", "a*b", "a?b", "p(1)", "{a,b}", "#! x", "back\\slash"];

/// `permissions.deny` contains patterns: paths in them must be escaped, for attached files and for searches.
#[test_case(NEW)]
#[test_case(OLD)]
fn special_characters_in_the_project_path_do_not_reveal_adjutants_own_files(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let root = used_project(&fixture);
    let search = json!({ "pattern": "NEEDLE", "output_mode": "content" });
    let prompt = format!(
        "SAY look at @data/results/0192.txt and @data/tool-pins.json and @data/user.txt please\nCALL Grep {search}"
    );
    let mut revealing = Vec::new();
    // 2.1.197 does not start in a directory with a backslash in its name.
    for name in NAMES_WITH_PATTERN_CHARACTERS
        .into_iter()
        .filter(|name| version == NEW || !name.contains('\\'))
    {
        let mut command = fixture.adjutant(["run", "editor", &prompt, "--json"]);
        let (odd, before) = (root.with_file_name(name), fixture.model.requests().len());
        fs::rename(&root, &odd).unwrap();
        let report = report(&command.current_dir(&odd).output().unwrap());
        fs::rename(&odd, &root).unwrap();
        let requests = fixture.model.requests();
        let told: String = requests[before..].iter().map(|r| r.body.to_string()).collect();
        assert!(told.contains("1\\tNEEDLE of the user"), "attaching works: {name}: {report:#}");
        assert!(told.contains("src/a.txt:1:NEEDLE in src"), "searching works: {name}: {report:#}");
        if told.contains("NEEDLE of Adjutant") {
            revealing.push(name);
        }
    }
    assert!(revealing.is_empty(), "{revealing:?}");
}

/// A file tool is denied if its path cannot be determined.
#[test]
fn a_file_tool_without_a_path_is_denied() {
    let context = TestContext::new();
    context.agent("editor", &editor_agent(""));
    let prompt = "FAKE ask Write {\"content\":\"x\"}";
    let mut command = context.adjutant(["run", "editor", prompt, "--json"]);
    let report = report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap());
    let why = "agent `editor` may not use `Write` here: the file it means cannot be determined: `file_path` is missing";
    assert_eq!(report["denials"], json!([{ "tool": "Write", "rule": why }]), "{report}");
}
