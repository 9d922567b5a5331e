//! Rejected runs and denied tools: messages, audit entries, limits, and behaviour during shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::fake_claude::fake_claude;
use crate::support::http::{HttpServer, send_to, stateless_post};
use crate::support::idle_processes::wait_until_gone;
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::{error_text, mask};
use crate::support::wait::wait_until;

/// Runs `adjutant run helper PROMPT --json` with these settings in the agent's file.
fn run_helper(settings: &str, prompt: &str) -> Value {
    let context = TestContext::new();
    let text = format!("---\nname: helper\ndescription: Helps\n{settings}\n---\nYou help.\n");
    context.agent("helper", &text);
    let mut command = context.adjutant(["run", "helper", prompt, "--json"]);
    report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs"))
}

#[test_case("permissions: {ask: [\"Edit(notes/**)\"], allow: [\"Edit\"]}", "FAKE ask Edit {\"file_path\":\"x\"}",
    "Edit: x", "`Edit(notes/**)` in `permissions.ask` of its agent.md wants a person to decide"; "the rule requires a question")]
#[test_case("permissions: {allow: [\"Bash(curl:*)\"]}", "FAKE ask Bash {\"command\":\"rm x\"}",
    "Bash: rm x", "no rule for `Bash` in `permissions.allow` of its agent.md allows it"; "no rule and no suggestion")]
fn a_denial_names_the_rule_to_agent_and_caller(
    settings: &str,
    prompt: &str,
    call: &str,
    rule: &str,
) {
    let report = run_helper(settings, prompt);
    let unasked = "nobody can be asked: `adjutant run` has no terminal";
    let told_agent = format!(
        "denied: Denied by Adjutant: agent `helper` wants `{call}`; {rule}, and {unasked}. \
         Do without it, and say so in your answer."
    );
    assert_eq!(report["result"], told_agent);
    assert_eq!(report["denials"][0]["rule"], format!("`{call}`: {rule}; {unasked}"));
}

#[test_case("env: {KEY: \"${ADJUTANT_TEST_UNSET}\"}",
    "`env.KEY` of agent `helper` needs the variable `ADJUTANT_TEST_UNSET`, which is not set. \
     Set it where Adjutant is started, or write `${ADJUTANT_TEST_UNSET:-a default}` in [ROOT]/agents/helper/agent.md."; "an unset variable")]
#[test_case("cwd: ./nowhere", "the working folder `./nowhere` of agent `helper` cannot be used: No such file or directory (os error 2). Create it, or change `cwd` in [ROOT]/agents/helper/agent.md."; "a missing directory")]
fn an_agent_that_cannot_start_fails_once_and_starts_no_process(settings: &str, says: &str) {
    let report = run_helper(settings, "hello");
    assert_eq!(report["error"]["code"], "SPAWN_FAILED", "{report}");
    assert_eq!(mask(&error_text(&report)), format!("SPAWN_FAILED: {says}"));
    assert_eq!(report.get("turns"), None, "{report}");
}

#[test]
fn an_unset_variable_is_replaced_by_its_default() {
    let report = run_helper("env: {KEY: \"${ADJUTANT_TEST_UNSET:-plum}\"}", "FAKE report");
    let told = report["result"].as_str().unwrap();
    assert!(told.contains("KEY"), "{told}");
}

/// Starts `adjutant serve` with the fake `claude` and one agent `helper`.
fn serve_helper(context: &TestContext, settings: &str) -> McpClient {
    let text = format!("---\nname: helper\ndescription: Helps\n{settings}---\nYou help.\n");
    context.agent("helper", &text);
    let mut command = context.adjutant(["serve"]);
    McpClient::connect({
        command.env("ADJUTANT_CLAUDE", fake_claude());
        command
    })
}

fn tasks_arguments(count: usize) -> Value {
    let task = json!({ "agent_name": "nobody", "prompt": "x" });
    json!({ "tasks": vec![task; count] })
}

#[test_case("run_subagent", json!({}), ""; "no arguments")]
#[test_case("run_subagent", json!({ "agent_name": "helper", "prompt": 7 }), "helper"; "a prompt that is a number")]
#[test_case("run_subagent", json!({ "agent_name": "helper", "prompt": "x", "model": "best" }), "helper"; "an unknown argument")]
#[test_case("run_subagents", json!({ "tasks": "all" }), ""; "tasks as a string")]
#[test_case("run_subagents", tasks_arguments(0), ""; "no tasks")]
#[test_case("run_subagents", tasks_arguments(65), ""; "too many tasks")]
fn a_delegation_with_invalid_arguments_is_audited(tool: &str, arguments: Value, agent: &str) {
    let context = TestContext::new();
    let mut server = serve_helper(&context, "");
    let refused = server.call_tool(tool, arguments);
    assert!(result_text(&refused).starts_with("INVALID_ARGUMENT: "), "{refused}");
    let lines = context.audit_entries();
    let entry = lines.iter().rfind(|line| line["operation"] == "run_subagent");
    let entry = entry.unwrap_or_else(|| panic!("no entry: {lines:#?}"));
    assert_eq!(entry["code"], "INVALID_ARGUMENT", "{entry}");
    assert_eq!(
        (&entry["caller"]["name"], &entry["tool"]),
        (&json!("main"), &json!(agent)),
        "{entry}"
    );
}

#[test_case("run_subagent"; "one")]
#[test_case("run_subagents"; "several")]
fn a_delegation_whose_arguments_are_not_an_object_is_audited(tool: &str) {
    let context = TestContext::new();
    let mut server = serve_helper(&context, "");
    for arguments in [json!([1]), json!("x")] {
        let params = json!({ "name": tool, "arguments": arguments });
        let refused = server.request("tools/call", params);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let entries = context.audit_entries();
    let entries = entries.iter().filter(|entry| entry["operation"] == "run_subagent");
    let entries = entries.map(|entry| (&entry["code"], &entry["caller"]["name"], &entry["tool"]));
    let expected = (&json!("INVALID_ARGUMENT"), &json!("main"), &json!(""));
    assert_eq!(entries.collect::<Vec<_>>(), [expected; 2]);
}

/// The answer, the audit entry and `explain` give the same rule and the same sentence.
#[test_case("", "", "allow", "allowed_callers[0]"; "a caller in the list")]
#[test_case("allowed_callers: [\"*\"]\n", "", "allow", "allowed_callers"; "anyone")]
#[test_case("allowed_callers: [other]\n", "", "deny", "allowed_callers"; "a caller that is not in the list")]
#[test_case("", "identity: required\n", "deny", "identity"; "a caller that nothing attests")]
#[test_case("timeout_ms: soon\n", "", "deny", "wrong-type"; "an agent with errors")]
fn a_delegation_is_decided_by_a_rule(settings: &str, defaults: &str, decision: &str, rule: &str) {
    let context = TestContext::new();
    let text = format!("---\nname: helper\ndescription: Helps\n{settings}---\nYou help.\n");
    context.agent("helper", &text).write("agents/defaults.yaml", defaults);
    let mut command = context.adjutant(["run", "helper", "FAKE result done", "--json"]);
    let answer = report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs"));
    let audited = context.audit_entries().swap_remove(0);
    let explained =
        report(&context.run(["explain", "--json", "--agent", "main", "--subagent", "helper"]));
    for entry in [&audited, &explained] {
        assert_eq!([&entry["decision"], &entry["rule"]], [decision, rule], "{entry}");
    }
    assert_eq!(audited["reason"], explained["reason"]);
    if decision == "allow" {
        assert_eq!(answer["result"], "done", "{answer}");
    } else {
        let (error, reason) = (error_text(&answer), explained["reason"].as_str());
        let (_, told) = error.split_once(": ").unwrap();
        assert_eq!(
            told.strip_prefix(reason.unwrap()).map(|rest| &rest[..2]),
            Some(". "),
            "{answer}"
        );
    }
}

#[test]
fn a_delegation_over_http_during_shutdown_is_audited() {
    let context = TestContext::new();
    context.agent(
        "helper",
        "---\nname: helper\ndescription: Helps\nallowed_callers: [bot]\n---\nHelp.\n",
    );
    let token = context.create_token("bot");
    let mut command = context.adjutant(["serve", "--http", "127.0.0.1:0"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let server = HttpServer::start(command);
    let call = |prompt: &str| {
        let task = json!({ "agent_name": "helper", "prompt": prompt });
        let params = json!({ "name": "run_subagent", "arguments": task });
        stateless_post(&token, 1, "tools/call", params)
    };
    // Connects before the shutdown: afterwards no connection is accepted.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let (hanging, address) = (call("FAKE hang-mid-turn"), server.address);
    thread::spawn(move || send_to(address, &hanging));
    wait_until("the run", || (!context.events_named("SessionStart").is_empty()).then_some(()));
    let refused = call("FAKE result done").to_bytes();
    let (last, most) = refused.split_last().unwrap();
    stream.write_all(most).unwrap();
    server.signal(Signal::SIGTERM);
    wait_until("the end of accepting", || TcpStream::connect(server.address).err());
    stream.write_all(&[*last]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    assert_eq!(head.lines().next(), Some("HTTP/1.1 200 OK"));
    assert_eq!(
        body,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32000,\"message\":\"CANCELLED: Adjutant was told to \
         stop and takes no new calls. Call again when it has been started again.\"}}\n"
    );
    let entries = context.audit_entries();
    let entry = entries.iter().find(|entry| entry["code"] == "CANCELLED");
    let entry = entry.unwrap_or_else(|| panic!("no entry: {entries:#?}"));
    let told = (&entry["operation"], &entry["tool"], &entry["caller"]["name"]);
    assert_eq!(told, (&json!("run_subagent"), &json!("helper"), &json!("bot")), "{entry}");
}

#[test]
fn a_delegation_during_shutdown_is_audited() {
    let context = TestContext::new();
    let mut server = serve_helper(&context, "");
    let hanging = json!({ "agent_name": "helper", "prompt": "FAKE hang-mid-turn" });
    server.send_request("tools/call", json!({ "name": "run_subagent", "arguments": hanging }));
    wait_until("the run", || (!context.events_named("SessionStart").is_empty()).then_some(()));
    kill(Pid::from_raw(i32::try_from(server.pid()).unwrap()), Signal::SIGTERM).unwrap();
    let refused = wait_until("the refusal", || {
        let task = json!({ "agent_name": "helper", "prompt": "FAKE result done" });
        let answer = server.call_tool("run_subagent", task);
        (answer["isError"] == true).then_some(answer)
    });
    assert_eq!(
        result_text(&refused),
        "CANCELLED: Adjutant was told to stop and takes no new calls. Call again when it has \
         been started again."
    );
    let run = &refused["_meta"]["adjutant/error"]["run_id"];
    let lines = context.audit_entries();
    let entry = lines.iter().find(|line| line["code"] == "CANCELLED");
    let entry = entry.unwrap_or_else(|| panic!("no entry for {run}: {lines:#?}"));
    assert_eq!(entry["tool"], "helper", "{entry}");
}

/// What cannot be audited is refused for that, whatever else it would be refused for.
#[test_case(json!({ "agent_name": "nobody", "prompt": "x" }), "AGENT_NOT_FOUND"; "an unknown agent")]
#[test_case(json!({ "agent_name": "ours", "prompt": "x" }), "CALLER_NOT_ALLOWED"; "a caller that may not call it")]
#[test_case(json!({ "agent_name": "helper", "prompt": "x" }), "BUDGET_EXCEEDED"; "a budget that is spent")]
#[test_case(json!({ "agent_name": "helper", "prompt": 7 }), "INVALID_ARGUMENT"; "invalid arguments")]
#[test_case(json!({ "agent_name": "helper", "prompt": "x", "agent_id": "other" }), "IDENTITY_MISMATCH"; "another identity")]
fn an_audit_log_that_cannot_be_written_overrides_the_reason_of_a_refusal(
    arguments: Value,
    code: &str,
) {
    for (audit, code) in [("best_effort", code), ("required", "AUDIT_UNAVAILABLE")] {
        let context = TestContext::new();
        let budget = "budgets: { helper: { per_day_usd: 0.01 } }";
        context.write("agents/defaults.yaml", format!("audit: {audit}\n{budget}\n"));
        context.agent(
            "ours",
            "---\nname: ours\ndescription: Ours\nallowed_callers: [helper]\n---\nHelp.\n",
        );
        let mut server = serve_helper(&context, "");
        let spends = json!({ "agent_name": "helper", "prompt": "FAKE result hello" });
        assert_ne!(server.call_tool("run_subagent", spends)["isError"], true);
        let log = context.root().join("data/audit.jsonl");
        fs::rename(&log, log.with_extension("before")).unwrap();
        fs::create_dir(&log).unwrap();
        let refused = server.call_tool("run_subagent", arguments.clone());
        assert_eq!(refused["_meta"]["adjutant/error"]["error"]["code"], code, "{audit}: {refused}");
        wait_until("the end of the run that spent", || context.events_named("RunEnded").pop());
        assert_eq!(context.events_named("RunQueued").len(), 1, "{audit}: no other run");
    }
}

#[test]
fn run_subagents_accepts_at_most_64_tasks() {
    let context = TestContext::new();
    let mut server = serve_helper(&context, "");
    let answer = server.call_tool("run_subagents", tasks_arguments(64));
    let results = answer["structuredContent"]["results"].as_array().map(Vec::len);
    assert_eq!(results, Some(64), "{answer}");
    let refused = server.call_tool("run_subagents", tasks_arguments(65));
    let told = "INVALID_ARGUMENT: `tasks` has 65 tasks, and one call takes at most 64. \
                Split them into several calls.";
    assert_eq!(result_text(&refused), told, "{refused}");
    let tools = server.request("tools/list", json!({}));
    let tool = tools["tools"].as_array().unwrap().iter().find(|t| t["name"] == "run_subagents");
    assert_eq!(tool.unwrap()["inputSchema"]["properties"]["tasks"]["maxItems"], 64);
}

#[test]
fn a_claude_that_hangs_on_help_or_version_is_stopped_at_the_deadline() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\ntimeout_ms: 700\n---\nHelp.\n");
    let (claude, pid) = (context.root().join("claude"), context.root().join("pid"));
    let script = format!("#!/bin/sh\necho $$ > {}.$1\nexec sleep 600\n", pid.display());
    context.write("claude", script);
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = context.adjutant(["run", "helper", "x", "--json"]);
    let report = report(&command.env("ADJUTANT_CLAUDE", &claude).output().unwrap());
    assert_eq!(report["error"]["code"], "TIMEOUT", "{report}");
    for option in ["--help", "--version"] {
        let pid = fs::read_to_string(format!("{}.{option}", pid.display())).unwrap();
        wait_until_gone(pid.trim().parse().unwrap());
    }
}
