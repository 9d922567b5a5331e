//! G1, G2: a broken server fails its own calls, in time, with the reason, and comes back.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, json};
use test_case::test_case;

use super::{Stage, code, execute, faulty, said};
use crate::support::mcp::{McpClient, text};

#[test]
fn g1_a_server_that_dies_in_mid_call_fails_its_calls_at_once_and_comes_back() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let before = said(&mut client, "good", "pid");
    let begun = Instant::now();
    let call = |tool: &str, args| json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "good", "tool": tool, "args": args } });
    let waiting = client.begin("tools/call", call("sleep", json!({ "ms": 60_000 })));
    let deadly = client.begin("tools/call", call("die", json!({})));
    for id in [waiting, deadly] {
        let result = client.answer(id);
        assert_eq!(code(&result), "SERVER_UNAVAILABLE");
        assert!(text(&result).contains("code 7"), "{result}");
        assert!(text(&result).contains("out of cheese"), "{result}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
    assert_ne!(said(&mut client, "good", "pid"), before, "it came back");
}

#[test]
fn g1_a_server_killed_again_and_again_comes_back_and_disturbs_nobody() {
    let entry = json!({ "command": faulty() });
    let stage = Stage::new(&json!({ "good": entry, "other": entry }));
    let mut client = stage.connect();
    let other = said(&mut client, "other", "pid");
    for _ in 0..5 {
        let pid: i32 = said(&mut client, "good", "pid").parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        assert_eq!(said(&mut client, "other", "pid"), other);
        // The call may come before the gateway knows; the one after it may not fail.
        execute(&mut client, "good", "echo", json!({}));
    }
    assert_eq!(said(&mut client, "other", "count"), "7");
}

#[test_case("dies", "code 3", "no licence found")]
#[test_case("dies-after-handshake", "code 4", "")]
fn g1_a_server_that_does_not_start_says_why_and_when_it_is_tried_again(
    mode: &str,
    how: &str,
    words: &str,
) {
    let stage = Stage::with(&["good", mode]);
    let mut client = stage.connect();
    let first = execute(&mut client, mode, "echo", json!({}));
    assert_eq!(code(&first), "SERVER_UNAVAILABLE");
    assert!(text(&first).contains(how) && text(&first).contains(words), "{first}");
    let second = execute(&mut client, mode, "echo", json!({}));
    assert!(text(&second).contains("It is tried again in"), "{second}");
    assert_eq!(said(&mut client, "good", "echo"), "{}");
}

#[test_case("mute")]
#[test_case("deaf")]
fn g1_a_server_that_never_answers_initialize_is_given_up(mode: &str) {
    let entry = json!({ "command": faulty(), "args": [mode], "startup_timeout_ms": 300 });
    let stage = Stage::new(&json!({ "silent": entry, "good": { "command": faulty() } }));
    let mut client = stage.connect();
    let result = execute(&mut client, "silent", "echo", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(text(&result).contains("did not answer `initialize` within 300 ms"), "{result}");
    assert_eq!(said(&mut client, "good", "echo"), "{}");
}

#[test]
fn g1_a_hundred_megabytes_of_noise_harm_nothing() {
    let stage = Stage::with(&["floods", "good"]);
    let mut command = stage.command();
    command.env("RUST_LOG", "error");
    let mut client = McpClient::connect(command);
    let started = client.begin("tools/call", json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "floods", "tool": "echo" } }));
    assert_eq!(said(&mut client, "good", "echo"), "{}");
    assert_eq!(text(&client.answer(started)), "{}");
    let kilobytes = memory(client.pid());
    assert!(kilobytes < 100 * 1024, "{kilobytes} kB");
}

/// The most that a process has held, in kilobytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn g1_answers_that_make_no_sense_fail_only_their_own_call() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let pid = said(&mut client, "good", "pid");
    for tool in ["wrong_id", "invalid_utf8"] {
        let arguments =
            json!({ "agent_id": "dev", "server": "good", "tool": tool, "timeout_ms": 200 });
        assert_eq!(code(&client.call("execute_tool", arguments)), "TIMEOUT", "{tool}");
    }
    assert_eq!(said(&mut client, "good", "twice"), "first");
    assert_eq!(said(&mut client, "good", "garbage"), "after");
    assert_eq!(said(&mut client, "good", "pid"), pid, "and the server stays");
}

#[test_case("huge", "its answer is larger than 16 MiB")]
#[test_case("text_result", "its answer is not the result of a tool")]
#[test_case("nothing", "its answer has neither a result nor an error")]
#[test_case("half_a_character", "its answer is no JSON that can be read")]
fn g1_an_answer_that_cannot_be_used_ends_its_call_at_once(tool: &str, reason: &str) {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let pid = said(&mut client, "good", "pid");
    let begun = Instant::now();
    let result = execute(&mut client, "good", tool, json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert!(text(&result).contains(reason), "{result}");
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
    assert_eq!(said(&mut client, "good", "pid"), pid, "and the server stays");
}

#[test]
fn g1_a_server_that_writes_down_what_it_is_asked_is_served_all_the_same() {
    let stage = Stage::with(&["chatty"]);
    let mut client = stage.connect();
    for _ in 0..3 {
        assert_eq!(said(&mut client, "chatty", "echo"), "{}");
    }
}

#[test]
fn g1_a_list_that_is_none_is_no_empty_list() {
    let stage = Stage::with(&["no-list"]);
    let result = execute(&mut stage.connect(), "no-list", "echo", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert!(text(&result).contains("a page of its `tools/list` has no list `tools`"), "{result}");
}

#[test]
fn g1_a_server_that_never_stops_asking_costs_little_and_disturbs_nobody() {
    let entry = json!({ "command": faulty() });
    let stage = Stage::new(&json!({ "good": entry, "asking": entry }));
    let log = stage.context.root().join("log");
    let mut client = McpClient::connect_logging(stage.command(), fs::File::create(&log).unwrap());
    said(&mut client, "good", "echo");
    assert_eq!(said(&mut client, "asking", "asks_for_ever"), "begun");
    for _ in 0..500 {
        assert_eq!(said(&mut client, "good", "echo"), "{}");
    }
    assert_eq!(said(&mut client, "asking", "echo"), "{}", "it is still served");
    let kilobytes = memory(client.pid());
    assert!(kilobytes < 100 * 1024, "{kilobytes} kB");
    let logged = fs::read_to_string(log).unwrap();
    assert!(logged.lines().count() < 200, "{logged}");
}

#[test_case("sampling/createMessage")]
#[test_case("elicitation/create")]
#[test_case("roots/list")]
#[test_case("made/up")]
fn g1_what_a_server_asks_of_us_is_refused(method: &str) {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let result = execute(&mut client, "good", "ask", json!({ "method": method }));
    let answer: serde_json::Value = serde_json::from_str(text(&result)).unwrap();
    assert_eq!(answer["error"]["code"], -32601, "{result}");
}

#[test]
fn g2_lists_are_bounded_and_every_page_is_read() {
    let stage = Stage::with(&["pages", "circle", "endless", "many", "long-name"]);
    let mut client = stage.connect();
    let mut names = |server: &str| -> Vec<String> {
        let result =
            client.call("get_server_tools", json!({ "agent_id": "dev", "server": server }));
        let tools = result["structuredContent"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("pages"), ["first", "echo"]);
    assert_eq!(names("circle"), ["echo"]);
    assert_eq!(names("long-name"), ["echo"]);
    assert_eq!(names("endless").len(), 500);
    assert_eq!(names("many").len(), 5_000);
}

#[test]
fn a_server_that_starts_with_the_gateway_comes_back_without_being_called() {
    let started = "echo >> starts; test $(wc -l < starts) -gt 2 || exit 3; exec \"$0\"";
    let entry =
        json!({ "command": "/bin/sh", "args": ["-c", started, faulty()], "start": "eager" });
    let stage = Stage::new(&json!({ "late": entry }));
    let mut command = stage.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    super::until("it is back", || {
        let status = client.call("get_gateway_status", json!({ "agent_id": "dev" }));
        let servers = status["structuredContent"]["servers"].to_string();
        servers.contains("\"connected\"").then_some(())
    });
    let starts = fs::read_to_string(stage.context.root().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 3, "twice it did not start");
}

#[test]
fn half_of_fifty_servers_are_broken_and_the_others_do_not_notice() {
    let mut servers = Map::new();
    for number in 0..25 {
        let broken = ["dies", "mute", "deaf", "dies-after-handshake"][number % 4];
        servers.insert(format!("good-{number}"), json!({ "command": faulty() }));
        servers.insert(format!("bad-{number}"), json!({ "command": faulty(), "args": [broken] }));
    }
    let stage = Stage::new(&servers.into());
    let mut command = stage.command();
    command.env("GATEWAY_INIT_STRATEGY", "eager").env("RUST_LOG", "off");
    let mut client = crate::support::mcp::McpClient::connect(command);
    for number in 0..25 {
        assert_eq!(said(&mut client, &format!("good-{number}"), "echo"), "{}");
    }
}
