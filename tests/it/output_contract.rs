//! Every command's JSON, the MCP results and every line of the logs have the schemas of `docs/schema/output/`.

use serde_json::{Value, json};

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::schemas::assert_valid;

/// A project with runs that succeeded, failed, and were refused, and with a session.
fn project() -> TestContext {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.agent("keeper", "---\nname: keeper\ndescription: Keeps\nsession: true\n---\nKeep.\n");
    context.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 5 } }\n");
    context
}

fn run_agent(context: &TestContext, agent: &str, prompt: &str) -> Value {
    let mut command = context.adjutant(["run", agent, prompt, "--json"]);
    let command = command.env("ADJUTANT_CLAUDE", fake_claude());
    let report = parse(&command.output().unwrap().stdout);
    assert_valid("report", &report);
    report
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// Runs a command that prints an array of objects, and validates each.
fn assert_list<const N: usize>(context: &TestContext, arguments: [&str; N], object: &str) {
    let list = parse(&context.run(arguments).stdout);
    let list = list.as_array().unwrap_or_else(|| panic!("{arguments:?}: {list}"));
    assert!(!list.is_empty(), "{arguments:?}");
    for one in list {
        assert_valid(object, one);
    }
}

/// Runs a command that prints one object a line, and validates each.
fn assert_lines<const N: usize>(context: &TestContext, arguments: [&str; N], object: &str) {
    let output = context.run(arguments);
    let lines: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(parse)
        .collect();
    assert!(!lines.is_empty(), "{arguments:?}");
    assert!(lines.iter().all(|line| line["format"] == 2), "{lines:#?}");
    for line in &lines {
        assert_valid(object, line);
    }
}

#[test]
fn the_output_of_commands_has_the_schemas() {
    let context = project();
    let first = run_agent(&context, "helper", "FAKE result hello");
    run_agent(&context, "helper", "FAKE crash");
    run_agent(&context, "keeper", "FAKE result kept");
    assert_eq!(run_agent(&context, "nobody", "x")["error"]["code"], "AGENT_NOT_FOUND");
    assert_list(&context, ["runs", "list", "--all", "--json"], "run");
    let run = parse(&context.run(["runs", "show", "last", "--json"]).stdout);
    assert_valid("run", &run);
    let id = first["run_id"].as_str().unwrap();
    for wanted in [id, &id.replace('-', ""), &id[id.len() - 8..]] {
        let shown = parse(&context.run(["runs", "show", wanted, "--json"]).stdout);
        assert_eq!((&shown["run_id"], &shown["agent"]), (&first["run_id"], &json!("helper")));
        assert_eq!(shown.get("agent_transcript_path"), None, "a run without session has none");
    }
    let ambiguous = context.run(["runs", "show", &id[..4]]);
    let message = String::from_utf8_lossy(&ambiguous.stderr).into_owned();
    assert!(!ambiguous.status.success() && message.contains(id), "{message}");
    for by in ["agent", "day", "session"] {
        assert_list(&context, ["costs", "--by", by, "--json"], "cost");
    }
    assert_list(&context, ["stats", "--json"], "stats");
    assert_lines(&context, ["events", "--json"], "event");
    assert_lines(&context, ["audit", "--json"], "audit_entry");
    let verified = parse(&context.run(["audit", "--verify", "--json"]).stdout);
    assert_valid("audit_verification", &verified);
    assert_eq!(verified["ok"], true);
    assert_list(&context, ["sessions", "list", "--json"], "session");
    let session = parse(&context.run(["sessions", "show", "keeper", "--json"]).stdout);
    assert_valid("session", &session);
    assert_list(&context, ["sessions", "forget", "keeper", "--json"], "session");
    assert!(!context.events().is_empty() && !context.audit_entries().is_empty());
}

#[test]
fn mcp_results_are_the_reports_of_run_json() {
    let context = project();
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut server = McpClient::connect(command);
    let task = |prompt: &str| json!({ "agent_name": "helper", "prompt": prompt });
    let answer = server.call_tool("run_subagent", task("FAKE result hello"));
    assert_valid("report", &answer["structuredContent"]);
    let failed = server.call_tool("run_subagent", task("FAKE crash"));
    assert_valid("report", &failed["_meta"]["adjutant/error"]);
    let tasks = json!({ "tasks": [task("FAKE result one"), task("FAKE crash")] });
    let both = server.call_tool("run_subagents", tasks);
    assert_valid("reports", &both["structuredContent"]);
    let slow = server.send_request(
        "tools/call",
        json!({ "name": "run_subagent", "arguments": task("FAKE hang-mid-turn") }),
    );
    let current = crate::support::wait::wait_until("a run that goes on", || {
        let list = parse(&context.run(["runs", "list", "--json"]).stdout);
        list.as_array().filter(|runs| runs.iter().any(|run| run["state"] == "running")).cloned()
    });
    for run in &current {
        assert_valid("run", run);
    }
    let stopped = context.run(["runs", "stop", "last", "--json"]);
    let run = parse(&stopped.stdout);
    assert_valid("run", &run);
    assert_eq!(run["run_id"], current[0]["run_id"], "{run}");
    assert_eq!(server.answer(slow)["isError"], true);
}

/// Lines that 0.1 wrote are printed in format 2.
#[test]
fn lines_of_the_first_format_are_shown_in_the_second() {
    let context = TestContext::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store");
    for name in
        ["audit.000000000003.jsonl", "audit.000000000006.jsonl", "audit.jsonl", "audit.jsonl.head"]
    {
        let bytes = std::fs::read(format!("{fixtures}/audit/rotated/data/{name}")).unwrap();
        context.write(format!("data/{name}"), bytes);
    }
    for name in [
        "events.000000000007.jsonl",
        "events.000000000009.jsonl",
        "events.jsonl",
        "events.jsonl.head",
    ] {
        let bytes = std::fs::read(format!("{fixtures}/events/rotated/data/{name}")).unwrap();
        context.write(format!("data/{name}"), bytes);
    }
    assert_lines(&context, ["audit", "--json"], "audit_entry");
    assert_lines(&context, ["events", "--json"], "event");
    assert_list(&context, ["runs", "list", "--all", "--json"], "run");
    assert!(context.run(["audit", "--verify"]).status.success());
}
