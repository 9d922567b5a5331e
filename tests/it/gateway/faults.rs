//! G1, G2: a faulty server fails only its own calls, in bounded time and with the reason, and is restarted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, json};
use test_case::test_case;

use super::{GatewayContext, call_tool_text, error_code, execute, faulty};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

#[test]
fn g1_a_server_that_exits_during_calls_fails_them_at_once_and_is_restarted() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let before = call_tool_text(&mut client, "good", "pid");
    let begun = Instant::now();
    let call = |tool: &str, args| json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "good", "tool": tool, "args": args } });
    let waiting = client.send_request("tools/call", call("sleep", json!({ "ms": 60_000 })));
    let exiting = client.send_request("tools/call", call("die", json!({})));
    for id in [waiting, exiting] {
        let result = client.answer(id);
        assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
        assert_eq!(
            result_text(&result),
            "SERVER_UNAVAILABLE: server `good` is unavailable: it exited with code 7; its last \
             words: out of cheese. Call again later; `adjutant doctor` says more."
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
    assert_ne!(call_tool_text(&mut client, "good", "pid"), before, "it came back");
}

#[test]
fn g1_a_server_killed_repeatedly_is_restarted_and_does_not_affect_others() {
    let entry = json!({ "command": faulty() });
    let fixture = GatewayContext::new(&json!({ "good": entry, "other": entry }));
    let mut client = fixture.connect();
    let other = call_tool_text(&mut client, "other", "pid");
    for _ in 0..5 {
        let pid: i32 = call_tool_text(&mut client, "good", "pid").parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        assert_eq!(call_tool_text(&mut client, "other", "pid"), other);
        // This call may arrive before the gateway has seen the exit; the next one must not fail.
        execute(&mut client, "good", "echo", json!({}));
    }
    assert_eq!(call_tool_text(&mut client, "other", "count"), "7");
}

#[test_case(
    "dies",
    "it ended before `initialize`; it exited with code 3; its last words: no licence found, token. It is tried again in 1 s.",
    "it ended before `initialize`; it exited with code 3; its last words: no licence found, token. It is tried again in 1 s."
)]
#[test_case(
    "dies-after-handshake",
    "it exited with code 4. Call again later; `adjutant doctor` says more.",
    "it exited with code 4. It is tried again in 1 s."
)]
fn g1_a_failed_start_reports_its_cause_and_the_time_of_the_next_try(
    mode: &str,
    first: &str,
    second: &str,
) {
    let fixture = GatewayContext::with(&["good", mode]);
    let mut client = fixture.connect();
    for expected in [first, second] {
        let result = execute(&mut client, mode, "echo", json!({}));
        let expected = format!("SERVER_UNAVAILABLE: server `{mode}` is unavailable: {expected}");
        assert_eq!((result["isError"].as_bool(), result_text(&result)), (Some(true), &*expected));
    }
    assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
}

#[test_case("mute")]
#[test_case("deaf")]
fn g1_a_server_that_never_answers_initialize_times_out(mode: &str) {
    let entry = json!({ "command": faulty(), "args": [mode], "startup_timeout_ms": 300 });
    let fixture = GatewayContext::new(&json!({ "silent": entry, "good": { "command": faulty() } }));
    let mut client = fixture.connect();
    let result = execute(&mut client, "silent", "echo", json!({}));
    // Its stdin is closed at the deadline; it may have exited by the time the answer is written.
    let told = result_text(&result).replace("; it exited with code 0", "");
    let expected = "SERVER_UNAVAILABLE: server `silent` is unavailable: it did not answer `initialize` within 300 ms. \
                    It is tried again in 1 s.";
    assert_eq!((result["isError"].as_bool(), &*told), (Some(true), expected));
    assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
}

#[test]
fn g1_a_hundred_megabytes_of_noise_do_not_affect_memory_or_calls() {
    let fixture = GatewayContext::with(&["floods", "good"]);
    let mut command = fixture.command();
    command.env("RUST_LOG", "error");
    let mut client = McpClient::connect(command);
    let started = client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "floods", "tool": "echo" } }));
    assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
    assert_eq!(result_text(&client.answer(started)), "{}");
    let kilobytes = peak_memory_kib(client.pid());
    assert!(kilobytes < 100 * 1024, "{kilobytes} kB");
}

/// Peak memory of a process in KiB.
fn peak_memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn g1_invalid_answers_fail_only_their_own_call() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let pid = call_tool_text(&mut client, "good", "pid");
    for tool in ["wrong_id", "invalid_utf8"] {
        let arguments =
            json!({ "agent_id": "dev", "server": "good", "tool": tool, "timeout_ms": 200 });
        assert_eq!(error_code(&client.call_tool("execute_tool", arguments)), "TIMEOUT", "{tool}");
    }
    assert_eq!(call_tool_text(&mut client, "good", "twice"), "first");
    assert_eq!(call_tool_text(&mut client, "good", "garbage"), "after");
    assert_eq!(call_tool_text(&mut client, "good", "pid"), pid, "and the server stays");
}

#[test_case(
    "huge",
    "SERVER_UNAVAILABLE: server `good` is unavailable: its answer is larger than 16 MiB. Call again later; `adjutant doctor` says more."
)]
#[test_case(
    "text_result",
    "SERVER_UNAVAILABLE: server `good` is unavailable: its answer is not the result of a tool. Call again later; `adjutant doctor` says more."
)]
#[test_case(
    "nothing",
    "SERVER_UNAVAILABLE: server `good` is unavailable: its answer has neither a result nor an error. Call again later; `adjutant doctor` says more."
)]
#[test_case(
    "half_a_character",
    "SERVER_UNAVAILABLE: server `good` is unavailable: its answer is no JSON that can be read. Call again later; `adjutant doctor` says more."
)]
fn g1_an_unusable_answer_fails_its_call_at_once(tool: &str, reason: &str) {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let pid = call_tool_text(&mut client, "good", "pid");
    let begun = Instant::now();
    let result = execute(&mut client, "good", tool, json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert_eq!(result_text(&result), reason);
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
    assert_eq!(call_tool_text(&mut client, "good", "pid"), pid, "and the server stays");
}

#[test]
fn g1_a_log_line_with_the_id_of_a_call_does_not_end_the_call() {
    let fixture = GatewayContext::with(&["chatty"]);
    let mut client = fixture.connect();
    for _ in 0..3 {
        assert_eq!(call_tool_text(&mut client, "chatty", "echo"), "{}");
    }
}

#[test]
fn g1_an_invalid_tool_list_is_an_error_and_not_an_empty_list() {
    let fixture = GatewayContext::with(&["no-list"]);
    let result = execute(&mut fixture.connect(), "no-list", "echo", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `no-list` is unavailable: a page of its `tools/list` has no \
         list `tools`. Call again later; `adjutant doctor` says more."
    );
}

#[test]
fn g1_endless_requests_from_a_server_cost_little_and_do_not_affect_others() {
    let entry = json!({ "command": faulty() });
    let fixture = GatewayContext::new(&json!({ "good": entry, "asking": entry }));
    let log = fixture.root().join("log");
    let mut client = McpClient::connect_logging(fixture.command(), fs::File::create(&log).unwrap());
    call_tool_text(&mut client, "good", "echo");
    assert_eq!(call_tool_text(&mut client, "asking", "asks_for_ever"), "begun");
    for _ in 0..500 {
        assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
    }
    assert_eq!(call_tool_text(&mut client, "asking", "echo"), "{}", "it is still served");
    let kilobytes = peak_memory_kib(client.pid());
    assert!(kilobytes < 100 * 1024, "{kilobytes} kB");
    let logged = fs::read_to_string(log).unwrap();
    assert!(logged.lines().count() < 200, "{logged}");
}

#[test]
fn s9_a_server_that_sends_requests_without_reading_answers_is_stopped() {
    let entry = json!({ "command": faulty() });
    let fixture = GatewayContext::new(&json!({ "good": entry, "asking": entry }));
    let log = fixture.root().join("log");
    let mut client = McpClient::connect_logging(fixture.command(), fs::File::create(&log).unwrap());
    let pid = call_tool_text(&mut client, "asking", "pid");
    assert_eq!(call_tool_text(&mut client, "asking", "asks_without_reading"), "begun");
    let call = json!({ "agent_id": "dev", "server": "asking", "tool": "echo" });
    let waiting = client
        .send_request("tools/call", json!({ "name": "execute_tool", "arguments": call.clone() }));
    wait_until("its end", || {
        assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    let result = client.answer(waiting);
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `asking` is unavailable: it does not read the answers to its own requests. \
         Call again later; `adjutant doctor` says more.",
    );
    assert_ne!(call_tool_text(&mut client, "asking", "pid"), pid, "it came back");
    let kilobytes = peak_memory_kib(client.pid());
    assert!(kilobytes < 100 * 1024, "{kilobytes} kB");
    let logged = fs::read_to_string(log).unwrap();
    assert!(logged.lines().count() < 200, "{logged}");
}

#[test]
fn frames_queued_for_a_server_that_does_not_read_are_bounded() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    assert_eq!(call_tool_text(&mut client, "good", "stop_reading"), "stopped");
    let args = json!({ "text": "x".repeat(4 << 20) });
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": args, "timeout_ms": 2_000 });
    let call = json!({ "name": "execute_tool", "arguments": arguments });
    let calls: Vec<u64> =
        (0..40).map(|_| client.send_request("tools/call", call.clone())).collect();
    for id in calls {
        // On a slow machine the server is stopped and restarted, and answers the last calls.
        client.answer(id);
    }
    let kilobytes = peak_memory_kib(client.pid());
    assert!(kilobytes < 100 * 1024, "160 MiB were sent, {kilobytes} kB held");
}

#[test_case("sampling/createMessage")]
#[test_case("elicitation/create")]
#[test_case("roots/list")]
#[test_case("made/up")]
fn g1_requests_from_a_server_are_refused(method: &str) {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let result = execute(&mut client, "good", "ask", json!({ "method": method }));
    let answer: serde_json::Value = serde_json::from_str(result_text(&result)).unwrap();
    assert_eq!(answer["error"]["code"], -32601, "{result}");
}

#[test]
fn g2_lists_are_bounded_and_every_page_is_read() {
    let fixture = GatewayContext::with(&["pages", "circle", "endless", "many", "long-name"]);
    let mut client = fixture.connect();
    let mut names = |server: &str| -> Vec<String> {
        let result =
            client.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": server }));
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
fn an_eager_server_is_restarted_without_a_call() {
    let started = "echo >> starts; test $(wc -l < starts) -gt 2 || exit 3; exec \"$0\"";
    let entry =
        json!({ "command": "/bin/sh", "args": ["-c", started, faulty()], "start": "eager" });
    let fixture = GatewayContext::new(&json!({ "late": entry }));
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    wait_until("it is back", || {
        let status = client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }));
        let servers = status["structuredContent"]["servers"].to_string();
        servers.contains("\"connected\"").then_some(())
    });
    let starts = fs::read_to_string(fixture.root().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 3, "twice it did not start");
}

#[test]
fn an_eager_server_that_dies_after_listing_its_tools_is_restarted_with_growing_pauses() {
    let start = "date +%s%3N >> starts; exec \"$0\" dies-after-list";
    let entry = json!({ "command": "/bin/sh", "args": ["-c", start, faulty()], "start": "eager" });
    let fixture = GatewayContext::new(&json!({ "crashing": entry }));
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    let starts: Vec<u64> = wait_until("the third start", || {
        let starts = fs::read_to_string(fixture.root().join("starts")).ok()?;
        let times: Vec<u64> = starts.lines().filter_map(|time| time.parse().ok()).collect();
        (times.len() >= 3).then_some(times)
    });
    let pauses: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] >= 500 && pauses[1] >= 1_000, "{pauses:?}");
    let state = wait_until("the pause after the third start", || {
        let status = client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }));
        let state = status["structuredContent"]["servers"]["crashing"][0].clone();
        state["retry_in_ms"].as_u64().filter(|wait| *wait > 1_000).map(|_| state)
    });
    assert_eq!((&state["state"], &state["restarts"]), (&json!("failed"), &json!(2)), "{state}");
    assert_eq!(state["reason"], "it exited with code 5");
    let wanted = json!({ "agent_id": "dev", "include_metadata": true });
    let listed = client.call_tool("list_servers", wanted)["structuredContent"]["result"][0].clone();
    assert_eq!(listed["state"], "failed", "{listed}");
    assert!(listed["retry_in_ms"].as_u64().is_some_and(|wait| wait > 0), "{listed}");
}

#[test]
fn twenty_five_broken_servers_do_not_affect_working_ones() {
    let mut servers = Map::new();
    for number in 0..25 {
        let broken = ["dies", "mute", "deaf", "dies-after-handshake"][number % 4];
        servers.insert(format!("good-{number}"), json!({ "command": faulty() }));
        servers.insert(format!("bad-{number}"), json!({ "command": faulty(), "args": [broken] }));
    }
    let fixture = GatewayContext::new(&servers.into());
    let mut command = fixture.command();
    command.env("GATEWAY_INIT_STRATEGY", "eager").env("RUST_LOG", "off");
    let mut client = crate::support::mcp::McpClient::connect(command);
    for number in 0..25 {
        assert_eq!(call_tool_text(&mut client, &format!("good-{number}"), "echo"), "{}");
    }
}
