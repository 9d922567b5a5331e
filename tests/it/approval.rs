//! Approval of tool calls that no rule decides: a person is asked; without one the call is denied.

mod channels;
mod untrusted_servers;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::{
    ClaudeContext, NEW, OLD, delegated_report, report, wait_for_servers_script,
};
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::{McpClient, result_text};

const TOUCHER: &str = "---
name: toucher
description: Makes files
permissions: { ask: [\"Bash(touch:*)\"] }
---
You make files.
";

fn touch_call(file: &str) -> String {
    format!("CALL Bash {}", json!({ "command": format!("touch {file}") }))
}

fn run_subagent_params(agent: &str, prompt: &str) -> Value {
    json!({ "name": "run_subagent", "arguments": { "agent_name": agent, "prompt": prompt } })
}

fn approval_entries(context: &TestContext) -> Vec<Value> {
    let entries = context.audit_entries().into_iter();
    entries.filter(|line| line["operation"].as_str().unwrap().starts_with("approval")).collect()
}

fn approval_context(version: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    fixture.agent("toucher", TOUCHER);
    Some(fixture)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn allow_for_run_covers_later_calls_of_the_run(version: &str) {
    let Some(fixture) = approval_context(version) else { return };
    let mut client = McpClient::connect_with_elicitation(fixture.adjutant(["serve"]));
    let id = client.send_request(
        "tools/call",
        run_subagent_params("toucher", &[touch_call("one"), touch_call("two")].join("\n")),
    );
    let question = client.wait_for_elicitation("toucher");
    let message = question["params"]["message"].as_str().unwrap();
    insta::allow_duplicates! {
        insta::assert_snapshot!(message, @r#"
        The subagent `toucher` asks for approval.

        Tool: Bash
        Arguments: {"command":"touch one"}
        Why it asks: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a person to decide.

        «Allow for this run» covers every plain command that begins with `touch`, until this run is over. No answer within 120 s is a no.
        "#);
    }
    let choices = &question["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(*choices, json!(["allow_once", "allow_for_run", "deny"]));
    client.answer_elicitation(&question, "allow_for_run");
    let result = client.answer(id);
    assert!(!result["isError"].as_bool().unwrap_or(false), "{result}");
    let root = fixture.root();
    assert!(root.join("one").exists() && root.join("two").exists(), "{result}");
    let lines = approval_entries(&fixture.context);
    let seen: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            (line["operation"].as_str().unwrap(), line["rule"].as_str().unwrap_or_default())
        })
        .collect();
    let wanted =
        [("approval_question", ""), ("approval", "allow_for_run"), ("approval", "allowed_for_run")];
    assert_eq!(seen, wanted);
    assert!(
        lines.iter().all(|line| line["caller"]["name"] == "toucher" && line["run_id"].is_string())
    );
}

#[test]
fn allow_once_covers_one_call_and_a_denial_reaches_agent_and_caller() {
    let Some(fixture) = approval_context(NEW) else { return };
    let mut client = McpClient::connect_with_elicitation(fixture.adjutant(["serve"]));
    let id = client.send_request(
        "tools/call",
        run_subagent_params("toucher", &[touch_call("one"), touch_call("two")].join("\n")),
    );
    let question = client.wait_for_elicitation("touch one");
    client.answer_elicitation(&question, "allow_once");
    let question = client.wait_for_elicitation("touch two");
    client.answer_elicitation(&question, "deny");
    let result = client.answer(id);
    let root = fixture.root();
    assert!(root.join("one").exists() && !root.join("two").exists(), "{result}");
    let denial = &result["structuredContent"]["denials"][0];
    let said = denial["rule"].as_str().unwrap();
    assert_eq!(
        said,
        "`Bash: touch two`: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a person \
         to decide; the person at `main` said no"
    );
    assert!(fixture.all_requests_text().contains("the person at `main` said no"));
}

#[test_case("decline", "the person at `main` said no"; "declined")]
#[test_case("cancel", "the question was put away at `main`, unanswered"; "dismissed")]
#[test_case("whatever", "the person at `main` said no"; "an unknown choice")]
fn every_answer_but_an_approval_denies(answer: &str, said: &str) {
    let context = fake_project("");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let id = client.send_request(
        "tools/call",
        run_subagent_params("asker", "FAKE ask Bash {\"command\":\"rm x\"}"),
    );
    let question = client.wait_for_elicitation("rm x");
    client.answer_elicitation(&question, answer);
    let result = client.answer(id);
    let report = &result["structuredContent"];
    let unruled = "no rule for `Bash` in `permissions.allow` of its agent.md allows it";
    let told_agent = format!(
        "denied: Denied by Adjutant: agent `asker` wants `Bash: rm x`; {unruled}, and {said}. \
         Do without it, and say so in your answer."
    );
    assert_eq!(report["result"], told_agent, "{result}");
    let rule = format!("`Bash: rm x`: {unruled}; {said}");
    assert_eq!(report["denials"], json!([{ "tool": "Bash", "rule": rule }]), "{result}");
}

/// A project with agents that list `Bash` without a permission rule for it.
fn fake_project(more: &str) -> TestContext {
    let context = TestContext::new();
    for name in ["asker", "other"] {
        let text =
            format!("---\nname: {name}\ndescription: Asks\ntools: [Bash]\n{more}---\nYou ask.\n");
        context.agent(name, &text);
    }
    context
}

fn serve_command(context: &TestContext) -> Command {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    command
}

#[test]
fn waiting_for_approval_pauses_the_idle_timeout_and_ends_in_a_denial() {
    let context = fake_project("idle_timeout_ms: 3000\napproval_timeout_ms: 5000\n");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let id = client.send_request(
        "tools/call",
        run_subagent_params("asker", "FAKE ask Bash {\"command\":\"rm x\"}"),
    );
    let question = client.wait_for_elicitation("rm x");
    let result = client.answer(id);
    let rule = "`Bash: rm x`: no rule for `Bash` in `permissions.allow` of its agent.md allows it; \
                nobody answered within 5 s";
    let denials = &result["structuredContent"]["denials"];
    assert_eq!(*denials, json!([{ "tool": "Bash", "rule": rule }]), "{result}");
    let recalled = client.wait_for_notification(|message| {
        message["method"] == "notifications/cancelled"
            && message["params"]["requestId"] == question["id"]
    });
    assert!(recalled["params"]["reason"].is_string());
    let lines = approval_entries(&context);
    assert_eq!(lines.last().unwrap()["rule"], "timeout", "{lines:?}");
}

#[test]
fn parallel_calls_get_separate_approvals_and_do_not_block_others() {
    let context = fake_project("");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let ask = |agent, file| {
        run_subagent_params(
            agent,
            &format!("FAKE ask Bash {}", json!({ "command": format!("rm {file}") })),
        )
    };
    let first = client.send_request("tools/call", ask("asker", "first"));
    let second = client.send_request("tools/call", ask("other", "second"));
    let about_first = client.wait_for_elicitation("rm first");
    let about_second = client.wait_for_elicitation("rm second");
    let free = client.request("tools/call", run_subagent_params("asker", "hello"));
    assert!(!free["isError"].as_bool().unwrap_or(false), "{free}");
    client.answer_elicitation(&about_second, "allow_once");
    client.answer_elicitation(&about_first, "deny");
    let first = client.answer(first);
    let rule = "`Bash: rm first`: no rule for `Bash` in `permissions.allow` of its agent.md allows it; \
                the person at `main` said no";
    let denials = &first["structuredContent"]["denials"];
    assert_eq!(*denials, json!([{ "tool": "Bash", "rule": rule }]), "{first}");
    let second = client.answer(second);
    let report = &second["structuredContent"];
    assert_eq!(report["result"], "allowed: {\"command\":\"rm second\"}", "{second}");
    assert_eq!(report.get("denials"), None, "{second}");
}

#[test]
fn each_task_of_a_call_asks_for_its_own_approval() {
    let context = fake_project("");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let task = |agent: &str, file: &str| {
        let prompt = format!("FAKE ask Bash {}", json!({ "command": format!("rm {file}") }));
        json!({ "agent_name": agent, "prompt": prompt })
    };
    let tasks = json!({ "tasks": [task("asker", "first"), task("other", "second")] });
    let call = json!({ "name": "run_subagents", "arguments": tasks });
    let id = client.send_request("tools/call", call);
    let about_second = client.wait_for_elicitation("rm second");
    let about_first = client.wait_for_elicitation("rm first");
    client.answer_elicitation(&about_first, "allow_once");
    client.answer_elicitation(&about_second, "deny");
    let result = client.answer(id);
    let results = result["structuredContent"]["results"].as_array().unwrap();
    let says_no = |result: &Value| result.to_string().contains("said no");
    assert!(!says_no(&results[0]) && says_no(&results[1]), "{result}");
}

/// Another process holds the lock of the audit log while an approval and the start of a run wait for their entries.
#[test]
fn approvals_and_runs_that_wait_for_the_audit_lock_block_nobody() {
    let context = fake_project("");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let ask = run_subagent_params("asker", "FAKE ask Bash {\"command\":\"rm x\"}");
    let approval = client.send_request("tools/call", ask);
    let question = client.wait_for_elicitation("rm x");
    let head = context.root().join("data/audit.jsonl.head");
    let head = fs::OpenOptions::new().write(true).open(head).unwrap();
    head.lock().unwrap();
    client.answer_elicitation(&question, "allow_once");
    let runs: Vec<u64> = (0..4)
        .map(|_| client.send_request("tools/call", run_subagent_params("other", "hello")))
        .collect();
    for _ in 0..100 {
        client.request("ping", json!({}));
    }
    let is_answered = client
        .notifications
        .iter()
        .any(|message| message["id"] == approval || runs.iter().any(|run| message["id"] == *run));
    assert!(!is_answered, "{:?}", client.notifications);
    drop(head);
    for id in [vec![approval], runs].concat() {
        let result = client.answer(id);
        assert!(!result["isError"].as_bool().unwrap_or(false), "{result}");
    }
    assert_eq!(approval_entries(&context).last().unwrap()["rule"], "allow_once");
}

#[test]
fn a_client_without_elicitation_is_not_asked() {
    let context = fake_project("");
    let mut client = McpClient::connect(serve_command(&context));
    let result = client.request(
        "tools/call",
        run_subagent_params("asker", "FAKE ask Bash {\"command\":\"rm x\"}"),
    );
    let rule = "`Bash: rm x`: no rule for `Bash` in `permissions.allow` of its agent.md allows it; nobody \
                can be asked: the client of Adjutant did not declare that it can ask (MCP elicitation)";
    let expected = json!([{ "tool": "Bash", "rule": rule }]);
    assert_eq!(result["structuredContent"]["denials"], expected, "{result}");
    let told: Value = serde_json::from_str(result_text(&result)).unwrap();
    assert_eq!(told["denials"], expected, "{result}");
    let lines = approval_entries(&context);
    assert_eq!(lines.len(), 1, "no question was asked: {lines:?}");
    assert_eq!((&lines[0]["rule"], &lines[0]["decision"]), (&json!("nobody"), &json!("deny")));
}

#[test]
fn cancelling_a_call_cancels_its_question() {
    let context = fake_project("");
    let mut client = McpClient::connect_with_elicitation(serve_command(&context));
    let id = client.send_request(
        "tools/call",
        run_subagent_params("asker", "FAKE ask Bash {\"command\":\"rm x\"}"),
    );
    let question = client.wait_for_elicitation("rm x");
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    client.wait_for_notification(|message| {
        message["method"] == "notifications/cancelled"
            && message["params"]["requestId"] == question["id"]
    });
    let withdrawn = || approval_entries(&context).iter().any(|line| line["rule"] == "withdrawn");
    while !withdrawn() {
        std::thread::yield_now();
    }
}

#[test]
fn questions_redact_secrets_strip_escapes_and_report_omitted_text() {
    let context = fake_project(
        "mcp_servers:\n  - name: vault\n    command: \"true\"\n    optional: true\n    env: { KEY: \"${VAULT_KEY}\" }\n",
    );
    let mut command = serve_command(&context);
    command.env("VAULT_KEY", "sk-very-private-4711");
    let mut client = McpClient::connect_with_elicitation(command);
    let shell =
        format!("echo sk-very-private-4711 \u{1b}[2J\u{202e} {} ; rm -rf end", " ".repeat(900));
    let prompt = format!("FAKE ask Bash {}", json!({ "command": shell }));
    let id = client.send_request("tools/call", run_subagent_params("asker", &prompt));
    let question = client.wait_for_elicitation("asker");
    let message = question["params"]["message"].as_str().unwrap();
    insta::assert_snapshot!(message, @r#"
    The subagent `asker` asks for approval.

    Tool: Bash
    Arguments: {"command":"echo [KEY] \u001b[2J                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     [… 198 characters are not shown …]                                                                                                                                                                                                                                             ; rm -rf end"}
    Why it asks: no rule for `Bash` in `permissions.allow` of its agent.md allows it.

    «Allow for this run» covers calls of `Bash` with exactly these arguments, until this run is over. No answer within 120 s is a no.
    "#);
    assert!(!message.contains(['\u{1b}', '\u{202e}']), "{message}");
    insta::assert_snapshot!(message, @r#"
    The subagent `asker` asks for approval.

    Tool: Bash
    Arguments: {"command":"echo [KEY] \u001b[2J                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     [… 198 characters are not shown …]                                                                                                                                                                                                                                             ; rm -rf end"}
    Why it asks: no rule for `Bash` in `permissions.allow` of its agent.md allows it.

    «Allow for this run» covers calls of `Bash` with exactly these arguments, until this run is over. No answer within 120 s is a no.
    "#);
    client.answer_elicitation(&question, "deny");
    client.answer(id);
}

/// Runs a main `claude -p` with these settings, and returns its report.
fn run_main_claude(fixture: &ClaudeContext, prompt: &str, settings: &Value) -> Value {
    let server = json!({ "mcpServers": { "adjutant": {
        "command": env!("CARGO_BIN_EXE_adjutant"), "args": ["serve"],
        "env": { "ADJUTANT_CLAUDE": fixture.claude },
    } } });
    fixture.write("mcp.json", server.to_string());
    let home = fixture.home();
    let input: PathBuf = fixture.root().join("prompt.txt");
    fs::write(&input, prompt).unwrap();
    let output = Command::new(&fixture.claude)
        .args(["-p", "--output-format=json", "--mcp-config=mcp.json"])
        .arg("--allowedTools=mcp__adjutant__run_subagent")
        .arg(format!("--settings={settings}"))
        .env_clear()
        .envs(crate::support::real_claude::scripted_environment(&fixture.model, &home))
        .current_dir(fixture.root())
        .stdin(fs::File::open(input).unwrap())
        .output()
        .unwrap();
    report(&output)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_main_claude_without_a_person_gets_a_readable_denial(version: &str) {
    let Some(fixture) = approval_context(version) else { return };
    let delegated = json!({ "agent_name": "toucher", "prompt": touch_call("planted") });
    let prompt =
        format!("{}CALL mcp__adjutant__run_subagent {delegated}", wait_for_servers_script(version));
    let result = run_main_claude(&fixture, &prompt, &json!({}));
    assert!(!fixture.root().join("planted").exists(), "{result}");
    let told = delegated_report(result["result"].as_str().unwrap());
    let rule = "`Bash: touch planted`: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a \
                person to decide; the question was put away at `main`, unanswered";
    assert_eq!(told["denials"], json!([{ "tool": "Bash", "rule": rule }]), "{result}");
    let lines = approval_entries(&fixture.context);
    assert_eq!(lines.last().unwrap()["rule"], "dismissed", "its client puts questions away");
    assert_eq!(lines.last().unwrap()["decision"], "deny", "{lines:?}");
}
