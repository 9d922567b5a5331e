//! What is recorded of runs with the real `claude`: the right agent on every event, and every start with its stop.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_case::test_case;

use crate::processes::family::wait_until;
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::stage::{NEW, OLD, Stage};

const WORKER: &str = "---
name: NAME
description: Works
permissions: { allow: [\"Bash(echo:*)\", \"Bash(false)\", \"Bash(sleep:*)\"] }
---
You work.
";

fn worker(stage: &Stage, name: &str) {
    stage.context.agent(name, &WORKER.replace("NAME", name));
}

/// All events of the project, in order.
fn events(stage: &Stage) -> Vec<Value> {
    let file = stage.context.root().join("data/events.jsonl");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| text(event, "hook_event_name")).collect()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_run_is_told_step_by_step(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    worker(&stage, "worker");
    let prompt = "CALL Bash {\"command\":\"echo one\"}\nCALL Bash {\"command\":\"false\"}\n\
                  CALL Bash {\"command\":\"touch nothing-allows-this\"}\nSAY done";
    let report = stage.run("worker", prompt);
    let events = events(&stage);
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
    assert_named(&events);
    for event in &events {
        assert_eq!(event["run_id"], report["run_id"], "{event}");
        assert_eq!(event["agent_type"], "worker", "{event}");
        assert_eq!(event["caller"]["name"], "main", "{event}");
        let path = "agent_transcript_path";
        assert_eq!(event[path], events[3][path], "the CLI names the same as we foresaw: {event}");
    }
    let ended = &events[13];
    assert_eq!(ended["outcome"], "SUCCESS");
    assert_eq!(ended["turns"], report["turns"]);
    assert_eq!(ended["cost_usd"], report["cost_usd"]);
    assert!(ended["tokens"]["input"].as_u64().is_some_and(|tokens| tokens > 0), "{ended}");
    assert!([5, 7, 10, 11, 12, 13].iter().all(|at| events[*at]["duration_ms"].is_u64()));
    assert!(text(&events[10], "reason").contains("permissions.allow"));
    assert_readable(&stage, text(&report, "run_id"));
}

/// Every event of a run says which agent it is of, with nothing left open.
fn assert_named(events: &[Value]) {
    for event in events {
        let named = ["agent_id", "agent_type", "agent_transcript_path", "run_id", "session_id"];
        assert!(named.iter().all(|key| !text(event, key).is_empty()), "{event}");
        let inside = event.get("parent_agent_id").is_some();
        let own = if inside { "parent_agent_id" } else { "agent_id" };
        assert_eq!(event[own], event["run_id"], "{event}");
        let file = format!("{}.jsonl", text(event, "session_id"));
        assert!(inside || text(event, "agent_transcript_path").ends_with(&file), "{event}");
    }
}

fn printed<const N: usize>(stage: &Stage, arguments: [&str; N]) -> String {
    let output = stage.adjutant(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, as people and programs read it.
fn assert_readable(stage: &Stage, run: &str) {
    let denied = printed(stage, ["events", "--type", "PermissionDenied", "--agent", "worker"]);
    assert_eq!(denied.lines().count(), 1, "{denied}");
    assert_eq!(printed(stage, ["events", "--run", run, "--json"]).lines().count(), 14);
    assert_eq!(printed(stage, ["events", "--agent", "main"]), "");
    let dashed = uuid::Uuid::parse_str(run).unwrap().hyphenated().to_string();
    assert!(printed(stage, ["runs", "show", &dashed]).contains("echo one"));
    assert_eq!(printed(stage, ["events", "--run", &dashed]).lines().count(), 14);
    let shown = printed(stage, ["runs", "show", "last"]);
    for part in
        ["SUCCESS", "Bash (failed)", "Bash (denied)", "echo one", "4 turns", "1 denied", run]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let page = printed(stage, ["runs", "show", &run[20..], "--html"]);
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 2, "{page}");
    assert!(!page.contains("http") || !page.contains("src="), "nothing is fetched: {page}");
    let stats: Value = serde_json::from_str(&printed(stage, ["stats", "--json"])).unwrap();
    let worker = &stats["worker"];
    assert_eq!(
        (&worker["runs"], &worker["denials"], &worker["tools"]),
        (&json!(1), &json!(1), &json!(2))
    );
    assert_eq!(worker["p50_ms"], worker["p95_ms"]);
}

/// Every start has its stop, in every run.
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
fn ten_at_once_are_told_apart_also_when_half_of_them_are_killed(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    stage.context.write("agents/defaults.yaml", "max_runs: 10\n");
    (0..10).for_each(|number| worker(&stage, &format!("w{number}")));
    let mut client = stage.serve();
    let tasks: Vec<Value> = (0..10)
        .map(|number| {
            let rest = if number % 2 == 1 { "CALL Bash {\"command\":\"sleep 100\"}\n" } else { "" };
            let prompt =
                format!("CALL Bash {{\"command\":\"echo own-w{number}\"}}\n{rest}SAY done");
            json!({ "agent_name": format!("w{number}"), "prompt": prompt })
        })
        .collect();
    let call = client
        .begin("tools/call", json!({ "name": "run_subagents", "arguments": { "tasks": tasks } }));
    let doomed = wait_until("five that sleep", || {
        let events = events(&stage);
        let asleep: BTreeSet<String> = events
            .iter()
            .filter(|event| event["tool_input"]["command"] == "sleep 100")
            .map(|event| text(event, "run_id").to_owned())
            .collect();
        (asleep.len() == 5).then_some(asleep)
    });
    for event in events(&stage) {
        if event["hook_event_name"] == "RunStarted" && doomed.contains(text(&event, "run_id")) {
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
    drop(client);

    let events = events(&stage);
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "none is lost");
    assert_paired(&events);
    assert_named(&events);
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
        let killed = doomed.contains(*run);
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
fn the_next_start_ends_in_the_record_what_a_killed_server_left_open() {
    let Some(stage) = Stage::new(NEW) else { return };
    worker(&stage, "worker");
    let mut client = stage.serve();
    let prompt = "CALL Bash {\"command\":\"sleep 100\"}\nSAY done";
    let arguments = json!({ "agent_name": "worker", "prompt": prompt });
    client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    wait_until("the tool's start", || names(&events(&stage)).contains(&"PreToolUse").then_some(()));
    client.child().kill().unwrap();
    let first = text(&events(&stage)[0], "run_id").to_owned();
    assert_eq!(stage.run("worker", "SAY next")["result"], "next");
    let events = events(&stage);
    assert_paired(&events);
    assert_named(&events);
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
fn the_transcript_is_known_before_the_run_begins(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    stage.context.agent("worker", &WORKER.replace("NAME", "worker\nsession: true"));
    let first = stage.run("worker", "SAY one");
    assert_eq!(stage.run("worker", "SAY two")["session_id"], first["session_id"]);
    let events = events(&stage);
    assert_named(&events);
    let paths: BTreeSet<&str> =
        events.iter().map(|event| text(event, "agent_transcript_path")).collect();
    let [path] = Vec::from_iter(paths)[..] else { panic!("one conversation: {events:#?}") };
    assert!(std::fs::read_to_string(path).unwrap().contains("SAY two"), "it is the transcript");
}

#[test_case(NEW, "Agent")]
#[test_case(OLD, "Task")]
fn a_native_subagent_inside_of_ours_is_recorded_with_its_own_name(version: &str, tool: &str) {
    let Some(stage) = Stage::new(version) else { return };
    let tools = format!("worker\ntools: [\"builtin:Bash\", \"builtin:{tool}\"]");
    let file =
        WORKER.replace("NAME", &tools).replace("[\"Bash(echo", &format!("[{tool}, \"Bash(echo"));
    stage.context.agent("worker", &file);
    let task = json!({
        "description": "look", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": "CALL Bash {\"command\":\"echo inside\"}\nSAY looked",
    });
    let report = stage.run("worker", &format!("CALL {tool} {task}\nSAY done"));
    assert_eq!(report["result"], "done", "{report}");
    let events = events(&stage);
    assert_named(&events);
    assert_paired(&events);
    let inside: Vec<Value> =
        events.iter().filter(|event| event["agent_type"] == "general-purpose").cloned().collect();
    let expected = ["SubagentStart", "PreToolUse", "PostToolUse", "SubagentStop"];
    assert_eq!(names(&inside), expected, "{events:#?}");
    for event in &inside {
        assert_eq!(event["parent_agent_type"], "worker", "{event}");
        assert_eq!(event["agent_id"], inside[0]["agent_id"], "{event}");
        let own = format!("subagents/agent-{}.jsonl", text(event, "agent_id"));
        assert!(text(event, "agent_transcript_path").ends_with(&own), "{event}");
    }
    assert!(inside[2..].iter().all(|event| event["duration_ms"].is_u64()));
}

/// The real one sends it to a terminal alone.
#[test]
fn what_claude_wants_attention_for_is_recorded() {
    let context = TestContext::new();
    context.agent("worker", &WORKER.replace("NAME", "worker"));
    let prompt = "FAKE hook Notification {\"message\":\"it waits for you\"}\nFAKE result done";
    let mut command = context.adjutant(["run", "worker", prompt, "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(context.root().join("data/events.jsonl")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_named(&events);
    let told = events.iter().find(|event| event["hook_event_name"] == "Notification").unwrap();
    assert_eq!(told["message"], "it waits for you");
    let hooked = |name: &str| names(&events).contains(&name);
    assert!(hooked("SessionStart") && hooked("SessionEnd") && hooked("RunEnded"));
}

/// A collector on loopback: gives out every body that is posted to it.
fn collector() -> (String, Receiver<Value>) {
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
fn a_run_and_its_tool_calls_are_spans_of_the_trace_they_were_asked_in() {
    let Some(stage) = Stage::new(NEW) else { return };
    stage.context.agent(
        "worker",
        &WORKER.replace("NAME", "worker").replace("Bash(false)", "Bash(printenv:*)"),
    );
    let (endpoint, bodies) = collector();
    let prompt =
        "CALL Bash {\"command\":\"printenv TRACEPARENT\"}\nCALL Bash {\"command\":\"touch x\"}";
    let output = stage
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
    let handed_on = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", text(run, "spanId"));
    assert!(stage.told().contains(&handed_on), "the process knows its place");
    let cost = run["attributes"].to_string();
    assert!(
        cost.contains("adjutant.cost_usd") && cost.contains("gen_ai.usage.input_tokens"),
        "{cost}"
    );
}
