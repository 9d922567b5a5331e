//! The event log of runs with a real `claude`: every event has its agent, every start has its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::wait::wait_until;

const WORKER: &str = "---
name: NAME
description: Works
permissions: { allow: [\"Bash(echo:*)\", \"Bash(false)\", \"Bash(sleep:*)\"] }
---
You work.
";

fn add_worker(fixture: &ClaudeContext, name: &str) {
    fixture.agent(name, &WORKER.replace("NAME", name));
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| text(event, "hook_event_name")).collect()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn the_event_log_has_every_step_of_a_run(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    add_worker(&fixture, "worker");
    let prompt = "CALL Bash {\"command\":\"echo one\"}\nCALL Bash {\"command\":\"false\"}\n\
                  CALL Bash {\"command\":\"touch nothing-allows-this\"}\nSAY done";
    let report = fixture.run("worker", prompt);
    let events = fixture.events();
    assert_eq!(
        names(&events),
        [
            "RunQueued",
            "RunStarted",
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PreToolUse",
            "PostToolUseFailure",
            "PreToolUse",
            "PermissionRequest",
            "PermissionDenied",
            "Stop",
            "SessionEnd",
            "RunEnded",
        ]
    );
    assert_attributed(&events);
    for event in &events {
        assert_eq!(event["run_id"], report["run_id"], "{event}");
        assert_eq!(event["agent_type"], "worker", "{event}");
        assert_eq!(event["caller"]["name"], "main", "{event}");
        assert_eq!(
            event.get("agent_transcript_path"),
            None,
            "a run without session has none: {event}"
        );
    }
    let ended = &events[13];
    assert_eq!(ended["outcome"], "SUCCESS");
    assert_eq!(ended["turns"], report["turns"]);
    assert_eq!(ended["cost_usd"], report["cost_usd"]);
    assert!(ended["tokens"]["input"].as_u64().is_some_and(|tokens| tokens > 0), "{ended}");
    assert!([5, 7, 10, 11, 12, 13].iter().all(|at| events[*at]["duration_ms"].is_u64()));
    assert_eq!(
        text(&events[10], "reason"),
        "Denied by Adjutant: agent `worker` wants `Bash: touch nothing-allows-this`; no rule \
         for `Bash` in `permissions.allow` of its agent.md allows it, and nobody can be asked: \
         `adjutant run` has no terminal. `Bash(touch nothing-allows-this *)` in \
         `permissions.allow` of its agent.md would allow it. Do without it, and say so in your \
         answer."
    );
    assert_shown(&fixture, text(&report, "run_id"));
}

/// Asserts that every event of a run names its agent, run and session, and the transcript of a session.
fn assert_attributed(events: &[Value]) {
    for event in events {
        let named = ["agent_id", "agent_type", "run_id", "session_id"];
        assert!(named.iter().all(|key| !text(event, key).is_empty()), "{event}");
        let inside = event.get("parent_agent_id").is_some();
        let own = if inside { "parent_agent_id" } else { "agent_id" };
        assert_eq!(event[own], event["run_id"], "{event}");
        let file = format!("{}.jsonl", text(event, "session_id"));
        let path = event.get("agent_transcript_path").and_then(Value::as_str);
        assert!(inside || path.is_none_or(|path| path.ends_with(&file)), "{event}");
    }
}

fn stdout_of<const N: usize>(fixture: &ClaudeContext, arguments: [&str; N]) -> String {
    let output = fixture.adjutant(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that the commands for people and for programs show the same events.
fn assert_shown(fixture: &ClaudeContext, run: &str) {
    let denied = stdout_of(fixture, ["events", "--type", "PermissionDenied", "--agent", "worker"]);
    assert_eq!(denied.lines().count(), 1, "{denied}");
    assert_eq!(stdout_of(fixture, ["events", "--run", run, "--json"]).lines().count(), 14);
    assert_eq!(stdout_of(fixture, ["events", "--agent", "main"]), "");
    let dashed = uuid::Uuid::parse_str(run).unwrap().hyphenated().to_string();
    assert!(stdout_of(fixture, ["runs", "show", &dashed]).contains("echo one"));
    assert_eq!(stdout_of(fixture, ["events", "--run", &dashed]).lines().count(), 14);
    let shown = stdout_of(fixture, ["runs", "show", "last"]);
    for part in
        ["SUCCESS", "Bash (failed)", "Bash (denied)", "echo one", "4 turns", "1 denied", run]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let page = stdout_of(fixture, ["runs", "show", &run[20..], "--html"]);
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 2, "{page}");
    assert!(!page.contains("http") || !page.contains("src="), "nothing is fetched: {page}");
    let stats: Value = serde_json::from_str(&stdout_of(fixture, ["stats", "--json"])).unwrap();
    let worker = &stats[0];
    assert_eq!(
        (&worker["runs"], &worker["denials"], &worker["tools"]),
        (&json!(1), &json!(1), &json!(2))
    );
    assert_eq!(worker["p50_ms"], worker["p95_ms"]);
}

/// Asserts that every start has an end, in every run.
fn assert_paired(events: &[Value]) {
    let mut open: BTreeMap<(String, String), usize> = BTreeMap::new();
    for event in events {
        let run = text(event, "run_id").to_owned();
        let call = || format!("tool {}", text(event, "tool_use_id"));
        let (key, change) = match text(event, "hook_event_name") {
            "RunQueued" => ("run".to_owned(), true),
            "RunEnded" => ("run".to_owned(), false),
            "SessionStart" => ("session".to_owned(), true),
            "SessionEnd" => ("session".to_owned(), false),
            "PreToolUse" => (call(), true),
            "PostToolUse" | "PostToolUseFailure" | "PermissionDenied" => (call(), false),
            _ => continue,
        };
        let count = open.entry((run, key.clone())).or_default();
        assert_eq!(*count, usize::from(!change), "{key}: {event}");
        *count = usize::from(change);
    }
    let left: Vec<_> = open.iter().filter(|(_, count)| **count > 0).collect();
    assert!(left.is_empty(), "begun and never ended: {left:?}");
}

#[test_case(NEW)]
fn events_of_ten_parallel_runs_are_attributed_even_if_half_are_killed(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.write("agents/defaults.yaml", "max_runs: 10\n");
    (0..10).for_each(|number| add_worker(&fixture, &format!("w{number}")));
    let mut client = fixture.serve();
    let tasks: Vec<Value> = (0..10)
        .map(|number| {
            let rest = if number % 2 == 1 { "CALL Bash {\"command\":\"sleep 100\"}\n" } else { "" };
            let prompt =
                format!("CALL Bash {{\"command\":\"echo own-w{number}\"}}\n{rest}SAY done");
            json!({ "agent_name": format!("w{number}"), "prompt": prompt })
        })
        .collect();
    let call = client.send_request(
        "tools/call",
        json!({ "name": "run_subagents", "arguments": { "tasks": tasks } }),
    );
    let killed_runs = wait_until("five that sleep", || {
        let events = fixture.events();
        let asleep: BTreeSet<String> = events
            .iter()
            .filter(|event| event["tool_input"]["command"] == "sleep 100")
            .map(|event| text(event, "run_id").to_owned())
            .collect();
        (asleep.len() == 5).then_some(asleep)
    });
    for event in fixture.events() {
        if event["hook_event_name"] == "RunStarted" && killed_runs.contains(text(&event, "run_id"))
        {
            let pid = i32::try_from(event["pid"].as_u64().unwrap()).unwrap();
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    }
    let answer = client.answer(call);
    assert_eq!(
        answer["structuredContent"]["results"].as_array().map(Vec::len),
        Some(10),
        "{answer}"
    );
    client.stop();

    let events = fixture.events();
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "none is lost");
    assert_paired(&events);
    assert_attributed(&events);
    let agents: BTreeMap<&str, &str> = events
        .iter()
        .filter(|event| event["hook_event_name"] == "RunQueued")
        .map(|event| (text(event, "run_id"), text(event, "agent_type")))
        .collect();
    assert_eq!(agents.len(), 10);
    for event in &events {
        let agent = agents[text(event, "run_id")];
        assert_eq!(
            (text(event, "agent_type"), &event["agent_id"]),
            (agent, &event["run_id"]),
            "{event}"
        );
        let command = text(&event["tool_input"], "command");
        assert!(!command.starts_with("echo") || command == format!("echo own-{agent}"), "{event}");
    }
    for (run, agent) in &agents {
        let own: Vec<Value> =
            events.iter().filter(|event| event["run_id"] == *run).cloned().collect();
        let ended = own.last().unwrap();
        let killed = killed_runs.contains(*run);
        assert_eq!(
            ended["outcome"],
            if killed { "CLAUDE_FAILED" } else { "SUCCESS" },
            "{agent}: {ended}"
        );
        let names = names(&own);
        let count = |name: &str| names.iter().filter(|other| **other == name).count();
        assert_eq!(count("PreToolUse"), 1 + usize::from(killed), "{agent}: {names:?}");
        assert_eq!(count("PostToolUse"), 1, "{agent}: {names:?}");
        assert_eq!(count("PostToolUseFailure"), usize::from(killed), "{agent}: {names:?}");
    }
}

#[test]
fn the_next_start_closes_runs_that_a_killed_server_left_open() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    add_worker(&fixture, "worker");
    let mut client = fixture.serve();
    let prompt = "CALL Bash {\"command\":\"sleep 100\"}\nSAY done";
    let arguments = json!({ "agent_name": "worker", "prompt": prompt });
    client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    wait_until("the tool's start", || {
        names(&fixture.events()).contains(&"PreToolUse").then_some(())
    });
    client.child().kill().unwrap();
    let first = text(&fixture.events()[0], "run_id").to_owned();
    assert_eq!(fixture.run("worker", "SAY next")["result"], "next");
    let events = fixture.events();
    assert_paired(&events);
    assert_attributed(&events);
    let ended = events
        .iter()
        .find(|event| event["hook_event_name"] == "RunEnded" && event["run_id"] == *first);
    let ended = ended.expect("the killed run is over in the record");
    assert_eq!(
        (&ended["outcome"], &ended["caller"]["name"]),
        (&json!("INTERRUPTED"), &json!("main"))
    );
    assert!(ended["duration_ms"].is_u64(), "{ended}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_stopped_run_counts_the_turns_that_it_took(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    add_worker(&fixture, "worker");
    let mut client = fixture.serve();
    let prompt =
        "CALL Bash {\"command\":\"echo one\"}\nCALL Bash {\"command\":\"sleep 100\"}\nSAY done";
    let arguments = json!({ "agent_name": "worker", "prompt": prompt });
    let call = client
        .send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    wait_until("the second command", || {
        let asleep = |event: &Value| event["tool_input"]["command"] == "sleep 100";
        fixture.context.events().iter().any(asleep).then_some(())
    });
    assert!(fixture.adjutant(["runs", "stop", "last"]).status().unwrap().success());
    client.answer(call);
    client.stop();
    let ended = fixture.context.events().pop().unwrap();
    assert_eq!((&ended["outcome"], &ended["turns"]), (&json!("CANCELLED"), &json!(2)), "{ended}");
}

/// How a run is ended from outside, while it waits for nothing.
#[derive(Clone, Copy)]
enum Act {
    Nothing,
    RefuseAdmission,
    CancelCall,
    StopByHand,
    TerminateServer,
    KillServer,
    KillProcess,
}

/// The same holds after two further starts, which look for what a killed server left open.
#[test_case("", "FAKE result done", Act::Nothing, "SUCCESS"; "an answer")]
#[test_case("session: true\n", "FAKE result done", Act::Nothing, "SUCCESS"; "an answer in a session")]
#[test_case("", "FAKE crash", Act::Nothing, "CLAUDE_FAILED"; "a process that crashes")]
#[test_case("", "FAKE is-error overloaded", Act::Nothing, "CLAUDE_FAILED"; "an error of the API")]
#[test_case("timeout_ms: 1500\n", "FAKE hang-mid-turn", Act::Nothing, "TIMEOUT"; "the deadline")]
#[test_case("idle_timeout_ms: 700\n", "FAKE hang-mid-turn", Act::Nothing, "TIMEOUT"; "silence for too long")]
#[test_case("output_schema: {type: object}\n", "FAKE result no", Act::Nothing, "OUTPUT_INVALID"; "an invalid answer")]
#[test_case("cwd: ./nowhere\n", "x", Act::Nothing, "SPAWN_FAILED"; "a process that cannot be started")]
#[test_case("", "x", Act::RefuseAdmission, "TOO_MANY_RUNS"; "a refused admission")]
#[test_case("mcp_servers:\n  own: { command: /no/such/server }\n", "x", Act::Nothing, "SERVER_UNAVAILABLE"; "a server that cannot be started")]
#[test_case("", "FAKE hang-mid-turn", Act::CancelCall, "CANCELLED"; "a cancelled call")]
#[test_case("", "FAKE hang-mid-turn", Act::StopByHand, "CANCELLED"; "a run that a person stops")]
#[test_case("", "FAKE hang-mid-turn", Act::TerminateServer, "CANCELLED"; "a server that is terminated")]
#[test_case("", "FAKE hang-mid-turn", Act::KillServer, "INTERRUPTED"; "a server that is killed")]
#[test_case("", "FAKE hang-mid-turn", Act::KillProcess, "CLAUDE_FAILED"; "a process that is killed")]
fn every_registered_run_has_exactly_one_end(settings: &str, prompt: &str, act: Act, outcome: &str) {
    let context = TestContext::new();
    let file = format!("---\nname: worker\ndescription: Works\n{settings}---\nYou work.\n");
    context.agent("worker", &file);
    context.agent("next", "---\nname: next\ndescription: Comes next\n---\nYou follow.\n");
    let of_kind = |kind: &str| context.events_named(kind);
    if matches!(act, Act::RefuseAdmission) {
        context.write("agents/defaults.yaml", "min_free_memory_mb: 16777216\n");
    }
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut client = McpClient::connect(command);
    let arguments = json!({ "agent_name": "worker", "prompt": prompt });
    let call = client
        .send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    if !matches!(act, Act::Nothing | Act::RefuseAdmission) {
        wait_until("the turn", || (!of_kind("UserPromptSubmit").is_empty()).then_some(()));
    }
    // As after SIGKILL between the event and the removal of the run's file: the second start finds that again.
    let runs = context.root().join("data/runs");
    let files = fs::read_dir(&runs).into_iter().flatten().flatten();
    let files = files.map(|file| (file.path(), fs::read(file.path()).unwrap()));
    let run_files: Vec<_> = match act {
        Act::KillServer => files.collect(),
        _ => Vec::new(),
    };
    match act {
        Act::Nothing | Act::RefuseAdmission => drop(client.answer(call)),
        Act::CancelCall => {
            client.notify("notifications/cancelled", json!({ "requestId": call }));
        }
        Act::StopByHand => {
            let run = text(&of_kind("RunStarted")[0], "run_id").to_owned();
            assert!(context.run(["runs", "stop", &run]).status.success());
            client.answer(call);
        }
        Act::TerminateServer => {
            kill(Pid::from_raw(i32::try_from(client.pid()).unwrap()), Signal::SIGTERM).unwrap();
            client.wait_for_exit();
        }
        Act::KillServer => {
            client.child().kill().unwrap();
            client.child().wait().unwrap();
        }
        Act::KillProcess => {
            let pid = i32::try_from(of_kind("RunStarted")[0]["pid"].as_u64().unwrap()).unwrap();
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            client.answer(call);
        }
    }
    if !matches!(act, Act::KillServer) {
        wait_until("the end", || (!of_kind("RunEnded").is_empty()).then_some(()));
    }
    drop(client);
    context.write("agents/defaults.yaml", "");
    for _ in 0..2 {
        let mut next = context.adjutant(["run", "next", "FAKE result done"]);
        next.env("ADJUTANT_CLAUDE", fake_claude());
        assert!(next.output().unwrap().status.success());
        for (path, bytes) in &run_files {
            assert!(!path.exists(), "the run is no longer listed");
            fs::write(path, bytes).unwrap();
        }
    }
    // Sorted: the end of a killed server's run is recorded in the background, while the next run is going on.
    let mut ends: Vec<(String, String)> = of_kind("RunEnded")
        .iter()
        .map(|end| (text(end, "agent_type").to_owned(), text(end, "outcome").to_owned()))
        .collect();
    ends.sort();
    let end = |agent: &str, outcome: &str| (agent.to_owned(), outcome.to_owned());
    assert_eq!(ends, [end("next", "SUCCESS"), end("next", "SUCCESS"), end("worker", outcome)]);
    let runs = |kind: &str| {
        let mut ids: Vec<String> =
            of_kind(kind).iter().map(|event| text(event, "run_id").to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!(runs("RunQueued"), runs("RunEnded"));
}

/// A call that is refused before it becomes a run is in the audit log alone.
#[test]
fn a_refused_call_has_neither_a_beginning_nor_an_end() {
    let context = TestContext::new();
    let mut command = context.adjutant(["run", "nobody", "x"]);
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    assert_eq!(context.audit_entries()[0]["code"], "AGENT_NOT_FOUND");
    assert!(!context.root().join("data/events.jsonl").exists());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn every_event_of_a_run_has_the_transcript_path(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("worker", &WORKER.replace("NAME", "worker\nsession: true"));
    let first = fixture.run("worker", "SAY one");
    assert_eq!(fixture.run("worker", "SAY two")["session_id"], first["session_id"]);
    let events = fixture.events();
    assert_attributed(&events);
    let paths: BTreeSet<&str> =
        events.iter().map(|event| text(event, "agent_transcript_path")).collect();
    let [path] = Vec::from_iter(paths)[..] else { panic!("one conversation: {events:#?}") };
    assert!(std::fs::read_to_string(path).unwrap().contains("SAY two"), "it is the transcript");
}

#[test_case(NEW, "Agent")]
#[test_case(OLD, "Task")]
fn a_native_subagent_inside_an_agent_is_logged_under_its_own_name(version: &str, tool: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let tools = format!("worker\ntools: [\"builtin:Bash\", \"builtin:{tool}\"]");
    let file =
        WORKER.replace("NAME", &tools).replace("[\"Bash(echo", &format!("[{tool}, \"Bash(echo"));
    fixture.agent("worker", &file);
    let task = json!({
        "description": "look", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": "CALL Bash {\"command\":\"echo inside\"}\nSAY looked",
    });
    let report = fixture.run("worker", &format!("CALL {tool} {task}\nSAY done"));
    assert_eq!(report["result"], "done", "{report}");
    let events = fixture.events();
    assert_attributed(&events);
    assert_paired(&events);
    let inside: Vec<Value> =
        events.iter().filter(|event| event["agent_type"] == "general-purpose").cloned().collect();
    let expected = ["SubagentStart", "PreToolUse", "PostToolUse", "SubagentStop"];
    assert_eq!(names(&inside), expected, "{events:#?}");
    for event in &inside {
        assert_eq!(event["parent_agent_type"], "worker", "{event}");
        assert_eq!(event["agent_id"], inside[0]["agent_id"], "{event}");
        assert_eq!(event.get("agent_transcript_path"), None, "{event}");
    }
    assert!(inside[2..].iter().all(|event| event["duration_ms"].is_u64()));
}

/// Uses the fake `claude`: the real CLI sends `Notification` only when it has a terminal.
#[test]
fn notifications_of_claude_are_logged() {
    let context = TestContext::new();
    context.agent("worker", &WORKER.replace("NAME", "worker"));
    let prompt = "FAKE hook Notification {\"message\":\"it waits for you\"}\nFAKE result done";
    let mut command = context.adjutant(["run", "worker", prompt, "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let events = context.events();
    assert_attributed(&events);
    let told = events.iter().find(|event| event["hook_event_name"] == "Notification").unwrap();
    assert_eq!(told["message"], "it waits for you");
    let hooked = |name: &str| names(&events).contains(&name);
    assert!(hooked("SessionStart") && hooked("SessionEnd") && hooked("RunEnded"));
}

/// An OTLP collector on 127.0.0.1 that returns every body posted to it.
fn otlp_collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut line, mut path) = (0, String::new(), String::new());
            while stream.read_line(&mut line).unwrap() > 2 {
                if path.is_empty() {
                    path.clone_from(&line);
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            assert!(path.starts_with("POST /v1/traces "), "{path}");
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.get_mut().write_all(answer).unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, bodies)
}

#[test]
fn a_run_and_its_tool_calls_are_spans_of_the_callers_trace() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    fixture.agent(
        "worker",
        &WORKER.replace("NAME", "worker").replace("Bash(false)", "Bash(printenv:*)"),
    );
    let (endpoint, bodies) = otlp_collector();
    let prompt =
        "CALL Bash {\"command\":\"printenv TRACEPARENT\"}\nCALL Bash {\"command\":\"touch x\"}";
    let output = fixture
        .adjutant(["run", "worker", prompt, "--json"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut spans = Vec::new();
    while spans.len() < 3 {
        let body = bodies.recv_timeout(Duration::from_secs(20)).expect("three spans");
        let sent = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.extend(sent.as_array().unwrap().iter().cloned());
    }
    let [ran, denied, run] = spans.as_slice() else { panic!("three spans: {spans:?}") };
    assert!(spans.iter().all(|span| span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(
        (&run["name"], &run["parentSpanId"]),
        (&json!("invoke_agent worker"), &json!("00f067aa0ba902b7"))
    );
    assert_eq!((&ran["name"], &ran["parentSpanId"]), (&json!("execute_tool Bash"), &run["spanId"]));
    assert_eq!((&ran["status"]["code"], &denied["status"]["code"]), (&json!(1), &json!(2)));
    let expected_parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", text(run, "spanId"));
    assert!(fixture.all_requests_text().contains(&expected_parent), "the process knows its place");
    for key in ["adjutant.cost_usd", "gen_ai.usage.input_tokens"] {
        let mut attributes = run["attributes"].as_array().unwrap().iter();
        assert!(attributes.any(|attribute| attribute["key"] == key), "{key}: {run}");
    }
}

/// Three result files: one older than `log_retention`, one as old whose run is in a retained event file, one new.
#[test]
fn old_results_are_removed_with_the_events_that_name_them() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "log_max_mb: 1\nlog_retention: 1d\n");
    let day = Duration::from_hours(24);
    for (name, days) in [("old", 10), ("named", 3), ("new", 0)] {
        context.write(format!("data/results/{name}.txt"), name);
        let file = context.root().join(format!("data/results/{name}.txt"));
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        file.set_modified(std::time::SystemTime::now() - day * days).unwrap();
    }
    let began = adjutant::util::now().checked_sub(day * 3).unwrap();
    let event = |seq: usize, text: &str| {
        let event = json!({ "format": 1, "seq": seq, "time": began.to_string(),
            "hook_event_name": "RunEnded", "run_id": "named", "text": text });
        format!("{event}\n")
    };
    let lines: String = (1..=20).map(|seq| event(seq, &"x".repeat(60_000))).collect();
    context.write("data/events.jsonl", lines);
    let mut command = context.adjutant(["run", "helper", "FAKE result done"]);
    assert!(command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap().status.success());
    let kept = std::fs::read_dir(context.root().join("data/results")).unwrap().flatten();
    let mut kept: Vec<_> = kept.map(|entry| entry.file_name().into_string().unwrap()).collect();
    kept.sort();
    assert_eq!(kept, ["named.txt", "new.txt"]);
}

/// As in the server: a full file is rotated, and files older than `log_retention` are removed.
#[test]
fn hooks_rotate_the_event_log_by_the_limits_of_the_project() {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", "log_max_mb: 1\nlog_retention: 2d\n");
    let line = |seq: usize| format!("{{\"seq\":{seq},\"padding\":\"{}\"}}\n", "x".repeat(1000));
    context.write("data/events.000000000007.jsonl", line(7));
    context.write("data/events.jsonl", (8..1200).map(line).collect::<String>());
    let data = context.root().join("data");
    let old = fs::File::options().write(true).open(data.join("events.000000000007.jsonl")).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_hours(72)).unwrap();
    let mut hook = context.adjutant(["hook"]).stdin(Stdio::piped()).spawn().unwrap();
    let payload = json!({ "hook_event_name": "Notification", "session_id": "s1" });
    hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
    assert!(hook.wait().unwrap().success());
    assert_eq!(fs::read_to_string(data.join("hook.log")).unwrap_or_default(), "");
    assert!(data.join("events.000000001199.jsonl").exists(), "the full file gave way");
    assert_eq!(fs::read_to_string(data.join("events.jsonl")).unwrap().lines().count(), 1);
    assert!(!data.join("events.000000000007.jsonl").exists(), "the old file was removed");
}
