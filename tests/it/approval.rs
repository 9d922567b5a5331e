//! What no rule decides is asked of the person behind the caller; without one it is refused.

#[path = "approval/channels.rs"]
mod people;
#[path = "approval/untrusted_servers.rs"]
mod untrusted;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};
use crate::support::stage::{NEW, OLD, Stage, report, until_connected};

const TOUCHER: &str = "---
name: toucher
description: Makes files
permissions: { ask: [\"Bash(touch:*)\"] }
---
You make files.
";

fn touch(file: &str) -> String {
    format!("CALL Bash {}", json!({ "command": format!("touch {file}") }))
}

fn calls(agent: &str, prompt: &str) -> Value {
    json!({ "name": "run_subagent", "arguments": { "agent_name": agent, "prompt": prompt } })
}

fn audit(context: &TestContext) -> Vec<Value> {
    let text = fs::read_to_string(context.root().join("data/audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["operation"].as_str().unwrap().starts_with("approval")).collect()
}

fn stage(version: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    stage.context.agent("toucher", TOUCHER);
    Some(stage)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_person_allows_for_the_run_and_is_asked_once(version: &str) {
    let Some(stage) = stage(version) else { return };
    let mut client = McpClient::connect_asking(stage.adjutant(["serve"]));
    let id = client.begin("tools/call", calls("toucher", &[touch("one"), touch("two")].join("\n")));
    let question = client.question("toucher");
    let message = question["params"]["message"].as_str().unwrap();
    for part in [
        "Tool: Bash",
        "touch one",
        "`Bash(touch:*)` in `permissions.ask` of its agent.md",
        "every plain command that begins with `touch`",
        "120 s",
    ] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    let choices = &question["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(*choices, json!(["allow_once", "allow_for_run", "deny"]));
    client.reply(&question, "allow_for_run");
    let result = client.answer(id);
    assert!(!result["isError"].as_bool().unwrap_or(false), "{result}");
    let root = stage.context.root();
    assert!(root.join("one").exists() && root.join("two").exists(), "{result}");
    let lines = audit(&stage.context);
    let seen: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            (line["operation"].as_str().unwrap(), line["rule"].as_str().unwrap_or_default())
        })
        .collect();
    let wanted =
        [("approval_question", ""), ("approval", "allow_for_run"), ("approval", "allowed_for_run")];
    assert_eq!(seen, wanted);
    assert!(lines.iter().all(|line| line["agent"] == "toucher" && line["run_id"].is_string()));
}

#[test]
fn once_is_once_and_a_no_is_told_to_agent_and_caller() {
    let Some(stage) = stage(NEW) else { return };
    let mut client = McpClient::connect_asking(stage.adjutant(["serve"]));
    let id = client.begin("tools/call", calls("toucher", &[touch("one"), touch("two")].join("\n")));
    let question = client.question("touch one");
    client.reply(&question, "allow_once");
    let question = client.question("touch two");
    client.reply(&question, "deny");
    let result = client.answer(id);
    let root = stage.context.root();
    assert!(root.join("one").exists() && !root.join("two").exists(), "{result}");
    let denial = &result["structuredContent"]["denials"][0];
    let said = denial["rule"].as_str().unwrap();
    assert!(said.contains("the person at `main` said no"), "{result}");
    assert!(stage.told().contains("the person at `main` said no"));
}

#[test_case("decline", "the person at `main` said no"; "declined")]
#[test_case("cancel", "the question was put away"; "dismissed")]
#[test_case("whatever", "the person at `main` said no"; "a choice that there is not")]
fn whatever_is_no_yes_is_a_no(answer: &str, said: &str) {
    let context = fake_project("");
    let mut client = McpClient::connect_asking(fake_serve(&context));
    let id = client.begin("tools/call", calls("asker", "FAKE ask Bash {\"command\":\"rm x\"}"));
    let question = client.question("rm x");
    client.reply(&question, answer);
    let result = client.answer(id).to_string();
    assert!(result.contains("Denied by Adjutant") && result.contains(said), "{result}");
}

/// An agent that lists `Bash`, and no rule for it.
fn fake_project(more: &str) -> TestContext {
    let context = TestContext::new();
    for name in ["asker", "other"] {
        let text =
            format!("---\nname: {name}\ndescription: Asks\ntools: [Bash]\n{more}---\nYou ask.\n");
        context.agent(name, &text);
    }
    context
}

fn fake_serve(context: &TestContext) -> Command {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    command
}

#[test]
fn a_run_waits_for_a_person_longer_than_it_may_be_silent_and_then_denies() {
    let context = fake_project("idle_timeout_ms: 400\napproval_timeout_ms: 1500\n");
    let mut client = McpClient::connect_asking(fake_serve(&context));
    let id = client.begin("tools/call", calls("asker", "FAKE ask Bash {\"command\":\"rm x\"}"));
    let question = client.question("rm x");
    let result = client.answer(id).to_string();
    assert!(result.contains("nobody answered within 1.5 s"), "{result}");
    let recalled = client.await_notification(|message| {
        message["method"] == "notifications/cancelled"
            && message["params"]["requestId"] == question["id"]
    });
    assert!(recalled["params"]["reason"].is_string());
    let lines = audit(&context);
    assert_eq!(lines.last().unwrap()["rule"], "timeout", "{lines:?}");
}

#[test]
fn calls_side_by_side_have_answers_of_their_own_and_block_nobody() {
    let context = fake_project("");
    let mut client = McpClient::connect_asking(fake_serve(&context));
    let ask = |agent, file| {
        calls(agent, &format!("FAKE ask Bash {}", json!({ "command": format!("rm {file}") })))
    };
    let first = client.begin("tools/call", ask("asker", "first"));
    let second = client.begin("tools/call", ask("other", "second"));
    let about_first = client.question("rm first");
    let about_second = client.question("rm second");
    let free = client.request("tools/call", calls("asker", "hello"));
    assert!(!free["isError"].as_bool().unwrap_or(false), "{free}");
    client.reply(&about_second, "allow_once");
    client.reply(&about_first, "deny");
    let first = client.answer(first).to_string();
    let second = client.answer(second).to_string();
    assert!(first.contains("said no") && !second.contains("said no"), "{first}\n{second}");
    assert!(second.contains("allow"), "{second}");
}

#[test]
fn tasks_of_one_call_ask_each_for_itself() {
    let context = fake_project("");
    let mut client = McpClient::connect_asking(fake_serve(&context));
    let task = |agent: &str, file: &str| {
        let prompt = format!("FAKE ask Bash {}", json!({ "command": format!("rm {file}") }));
        json!({ "agent_name": agent, "prompt": prompt })
    };
    let tasks = json!({ "tasks": [task("asker", "first"), task("other", "second")] });
    let call = json!({ "name": "run_subagents", "arguments": tasks });
    let id = client.begin("tools/call", call);
    let about_second = client.question("rm second");
    let about_first = client.question("rm first");
    client.reply(&about_first, "allow_once");
    client.reply(&about_second, "deny");
    let result = client.answer(id);
    let results = result["structuredContent"]["results"].as_array().unwrap();
    let says_no = |result: &Value| result.to_string().contains("said no");
    assert!(!says_no(&results[0]) && says_no(&results[1]), "{result}");
}

#[test]
fn a_client_that_cannot_ask_is_not_asked() {
    let context = fake_project("");
    let mut client = McpClient::connect(fake_serve(&context));
    let result =
        client.request("tools/call", calls("asker", "FAKE ask Bash {\"command\":\"rm x\"}"));
    let told = text(&result).to_owned() + &result["structuredContent"].to_string();
    assert!(told.contains("did not declare that it can ask"), "{result}");
    let lines = audit(&context);
    assert_eq!(lines.len(), 1, "no question was asked: {lines:?}");
    assert_eq!((&lines[0]["rule"], &lines[0]["decision"]), (&json!("nobody"), &json!("deny")));
}

#[test]
fn a_cancelled_call_takes_its_question_back() {
    let context = fake_project("");
    let mut client = McpClient::connect_asking(fake_serve(&context));
    let id = client.begin("tools/call", calls("asker", "FAKE ask Bash {\"command\":\"rm x\"}"));
    let question = client.question("rm x");
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    client.await_notification(|message| {
        message["method"] == "notifications/cancelled"
            && message["params"]["requestId"] == question["id"]
    });
    let withdrawn = || audit(&context).iter().any(|line| line["rule"] == "withdrawn");
    while !withdrawn() {
        std::thread::yield_now();
    }
}

#[test]
fn secrets_and_escapes_do_not_reach_the_person_and_a_hidden_middle_is_said() {
    let context = fake_project(
        "mcp_servers:\n  - name: vault\n    command: \"true\"\n    optional: true\n    env: { KEY: \"${VAULT_KEY}\" }\n",
    );
    let mut command = fake_serve(&context);
    command.env("VAULT_KEY", "sk-very-private-4711");
    let mut client = McpClient::connect_asking(command);
    let shell =
        format!("echo sk-very-private-4711 \u{1b}[2J\u{202e} {} ; rm -rf end", " ".repeat(900));
    let prompt = format!("FAKE ask Bash {}", json!({ "command": shell }));
    let id = client.begin("tools/call", calls("asker", &prompt));
    let question = client.question("asker");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(!message.contains("sk-very") && message.contains("[KEY]"), "{message}");
    assert!(!message.contains(['\u{1b}', '\u{202e}']), "{message}");
    assert!(
        message.contains("characters are not shown") && message.contains("rm -rf end"),
        "{message}"
    );
    client.reply(&question, "deny");
    client.answer(id);
}

/// A main `claude` without a person, `claude -p`, with these settings.
fn main_claude(stage: &Stage, prompt: &str, settings: &Value) -> Value {
    let server = json!({ "mcpServers": { "adjutant": {
        "command": env!("CARGO_BIN_EXE_adjutant"), "args": ["serve"],
        "env": { "ADJUTANT_CLAUDE": stage.claude },
    } } });
    stage.context.write("mcp.json", server.to_string());
    let home = stage.context.home();
    let input: PathBuf = stage.context.root().join("prompt.txt");
    fs::write(&input, prompt).unwrap();
    let output = Command::new(&stage.claude)
        .args(["-p", "--output-format=json", "--mcp-config=mcp.json"])
        .arg("--allowedTools=mcp__adjutant__run_subagent")
        .arg(format!("--settings={settings}"))
        .env_clear()
        .envs(crate::support::claude::scripted_environment(&stage.model, &home))
        .current_dir(stage.context.root())
        .stdin(fs::File::open(input).unwrap())
        .output()
        .unwrap();
    report(&output)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_main_claude_without_a_person_is_denied_in_a_sentence(version: &str) {
    let Some(stage) = stage(version) else { return };
    let delegated = json!({ "agent_name": "toucher", "prompt": touch("planted") });
    let prompt =
        format!("{}CALL mcp__adjutant__run_subagent {delegated}", until_connected(version));
    let result = main_claude(&stage, &prompt, &json!({}));
    assert!(!stage.context.root().join("planted").exists(), "{result}");
    let told = result["result"].as_str().unwrap();
    assert!(told.contains("in `permissions.ask` of its agent.md wants a person"), "{told}");
    let lines = audit(&stage.context);
    assert_eq!(lines.last().unwrap()["rule"], "dismissed", "its client puts questions away");
    assert_eq!(lines.last().unwrap()["decision"], "deny", "{lines:?}");
}
