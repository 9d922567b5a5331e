//! Log messages of servers: always in our own log, and forwarded to a client that has the servers to itself.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::{GatewayContext, call_tool_text, execute, faulty};
use crate::support::http::{
    HttpRequest, HttpServer, initialize_request, stateless_post, stateless_request,
};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const LOG_NOTIFICATION: &str = "notifications/message";

fn is_log_message(notification: &Value) -> bool {
    notification["method"] == LOG_NOTIFICATION
}

/// Log messages received by the client and not consumed.
fn log_messages(client: &McpClient) -> Vec<&Value> {
    client.notifications.iter().filter(|notification| is_log_message(notification)).collect()
}

#[test_case("gateway")]
#[test_case("serve")]
fn a_log_message_arrives_unchanged_except_for_the_name_of_its_server(command: &str) {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = McpClient::start(fixture.context.adjutant([command]));
    let introduced = client.initialize();
    assert_eq!(introduced["capabilities"]["logging"], json!({}), "{introduced}");
    let data = json!({ "z": [1.5, null], "a": "é" });
    execute(
        &mut client,
        "good",
        "log",
        json!({ "level": "warning", "logger": "db", "data": data }),
    );
    let first = client.wait_for_notification(is_log_message);
    let expected = json!({ "level": "warning", "logger": "good/db", "data": data });
    assert_eq!(first["params"].to_string(), expected.to_string());
    execute(&mut client, "good", "log", json!({}));
    let second = client.wait_for_notification(is_log_message);
    let expected = json!({ "level": "info", "logger": "good", "data": "words in a notification" });
    assert_eq!(second["params"], expected);
}

#[test]
fn e1_a_secret_in_a_log_message_is_redacted() {
    let entry = json!({ "command": faulty(), "env": { "TOKEN": "tok-5ecr3t-value" } });
    let fixture = GatewayContext::new(&json!({ "good": entry }));
    let mut client = fixture.connect();
    execute(&mut client, "good", "log", json!({ "data": { "header": "Bearer tok-5ecr3t-value" } }));
    let notification = client.wait_for_notification(is_log_message);
    assert_eq!(notification["params"]["data"]["header"], "Bearer [TOKEN]", "{notification}");
}

#[test]
fn log_messages_of_a_call_arrive_before_its_answer() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    call_tool_text(&mut client, "good", "pid");
    execute(&mut client, "good", "log", json!({ "data": 0, "times": 20 }));
    assert_eq!(log_messages(&client).len(), 20);
}

#[test]
fn log_messages_of_a_server_that_the_client_has_not_called_are_not_forwarded() {
    let fixture = GatewayContext::with(&["good", "talkative"]);
    let mut client = fixture.connect();
    let denied = json!({ "agent_id": "guest", "server": "talkative", "tool": "echo", "args": {} });
    client.call_tool("execute_tool", denied);
    // The server logs as soon as it starts; its messages are read before its tools.
    let tools = json!({ "agent_id": "dev", "server": "talkative" });
    assert!(client.call_tool("get_server_tools", tools)["structuredContent"]["tools"].is_array());
    execute(&mut client, "good", "log", json!({}));
    assert_eq!(client.wait_for_notification(is_log_message)["params"]["logger"], "good");
    assert_eq!(log_messages(&client), Vec::<&Value>::new());
    execute(&mut client, "talkative", "log", json!({}));
    assert_eq!(client.wait_for_notification(is_log_message)["params"]["logger"], "talkative");
}

#[test]
fn calls_allowed_under_earlier_rules_do_not_permit_log_messages() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    execute(&mut client, "good", "log", json!({}));
    client.wait_for_notification(is_log_message);
    let sleep = json!({ "agent_id": "dev", "server": "good", "tool": "late_log", "args": {} });
    let late =
        client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    fixture.rules("{}");
    client.wait_for_notification(|notification| {
        notification["method"] == "notifications/tools/list_changed"
    });
    std::fs::write(fixture.root().join("log-now"), "").unwrap();
    assert_eq!(result_text(&client.answer(late)), "logged late");
    assert_eq!(log_messages(&client), Vec::<&Value>::new());
}

#[test]
fn the_log_level_filters_messages_and_is_forwarded_to_running_and_later_servers() {
    let fixture = GatewayContext::with(&["good", "other"]);
    let mut client = fixture.connect();
    assert_eq!(
        call_tool_text(&mut client, "good", "level"),
        "null",
        "they decide until somebody says more"
    );
    let level = |client: &mut McpClient, level: &str| {
        client.request("logging/setLevel", json!({ "level": level }))
    };
    assert_eq!(level(&mut client, "error"), json!({}));
    for server in ["good", "other"] {
        wait_until("the level", || {
            (call_tool_text(&mut client, server, "level") == "\"error\"").then_some(())
        });
    }
    for loud in ["debug", "warning", "error"] {
        execute(&mut client, "good", "log", json!({ "level": loud }));
    }
    assert_eq!(client.wait_for_notification(is_log_message)["params"]["level"], "error");
    assert_eq!(log_messages(&client), Vec::<&Value>::new());

    for wrong in [json!({ "level": "loud" }), json!({})] {
        let refused = client.request("logging/setLevel", wrong);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    level(&mut client, "debug");
    wait_until("the level", || {
        (call_tool_text(&mut client, "good", "level") == "\"debug\"").then_some(())
    });
    execute(&mut client, "good", "log", json!({ "level": "debug" }));
    assert_eq!(client.wait_for_notification(is_log_message)["params"]["level"], "debug");
}

#[test_case("gateway")]
#[test_case("serve")]
fn log_messages_are_not_forwarded_over_http(command: &str) {
    let fixture = GatewayContext::with(&["good"]);
    let token = fixture.create_token("dev");
    let server = HttpServer::start(fixture.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let begun = server.post(&token, &initialize_request());
    let introduced = begun.message();
    assert_eq!(introduced["result"]["capabilities"].get("logging"), None, "{introduced}");
    let session = begun.header("mcp-session-id").unwrap();
    let send = |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        server.send(&HttpRequest::post(&token, &message).with_header("Mcp-Session-Id", session))
    };
    for level in ["error", "loud"] {
        let refused = send("logging/setLevel", json!({ "level": level })).message();
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    let arguments = json!({ "server": "good", "tool": "log", "args": {} });
    let logged = send("tools/call", json!({ "name": "execute_tool", "arguments": arguments }));
    assert_eq!(result_text(&logged.message()["result"]), "logged");
    assert!(!logged.body.contains(LOG_NOTIFICATION), "{}", logged.body);
    let found = server.send(&stateless_post(&token, 3, "server/discover", json!({}))).message();
    assert!(found["result"]["capabilities"]["tools"].is_object(), "{found}");
    assert_eq!(found["result"]["capabilities"].get("logging"), None, "{found}");
}

#[test]
fn log_messages_are_not_forwarded_to_stdio_while_http_shares_the_servers() {
    let fixture = GatewayContext::with(&["good"]);
    fixture.create_token("dev");
    let command = fixture.context.adjutant(["serve", "--http", "127.0.0.1:0", "--stdio"]);
    let mut client = McpClient::start(command);
    let introduced = client.initialize();
    assert_eq!(introduced["capabilities"].get("logging"), None, "{introduced}");
    execute(&mut client, "good", "log", json!({}));
    assert_eq!(call_tool_text(&mut client, "good", "level"), "null");
    assert_eq!(log_messages(&client), Vec::<&Value>::new());
}

#[test]
fn log_messages_are_not_forwarded_without_a_handshake() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = McpClient::start(fixture.command());
    let mut ask = |method: &str, params: Value| {
        let id = client.next_id();
        client.send(&stateless_request(id, method, params));
        client.answer(id)
    };
    let found = ask("server/discover", json!({}));
    assert!(found["capabilities"]["tools"].is_object(), "{found}");
    assert_eq!(found["capabilities"].get("logging"), None, "{found}");
    for tool in ["log", "level"] {
        let arguments = json!({ "agent_id": "dev", "server": "good", "tool": tool, "args": {} });
        ask("tools/call", json!({ "name": "execute_tool", "arguments": arguments }));
    }
    let refused = ask("logging/setLevel", json!({ "level": "error" }));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    assert_eq!(log_messages(&client), Vec::<&Value>::new());
}

/// Resident memory of a process in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_flood_of_log_messages_is_limited_and_counted_and_does_not_affect_others() {
    let fixture = GatewayContext::with(&["good", "other"]);
    let log = fixture.root().join("log");
    let mut client = McpClient::connect_logging(fixture.command(), File::create(&log).unwrap());
    for server in ["good", "other"] {
        call_tool_text(&mut client, server, "pid");
    }
    let before = resident_kib(client.pid());
    let began = Instant::now();
    let args = json!({ "data": "x".repeat(1_000), "times": 1_000_000 });
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "log", "args": args });
    let params = json!({ "name": "execute_tool", "arguments": arguments });
    let flood = client.send_request("tools/call", params);
    client.wait_for_notification(is_log_message);
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let asked = Instant::now();
        call_tool_text(&mut client, "other", "pid");
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let count = "were not passed on to the client";
    wait_until("the count", || {
        std::fs::read_to_string(&log).unwrap().contains(count).then_some(())
    });
    let all = log_messages(&client).len();
    let most = 50 * (began.elapsed().as_secs() + 2);
    assert!((all as u64) <= most, "{all} of at most {most}");
    let grown = resident_kib(client.pid()).saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more than before");
    client.notify("notifications/cancelled", json!({ "requestId": flood }));
    call_tool_text(&mut client, "other", "pid");
}

#[test]
fn a_log_message_above_the_size_limit_is_not_forwarded() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    execute(&mut client, "good", "log", json!({ "data": "x".repeat(100_000) }));
    execute(&mut client, "good", "log", json!({ "data": "short" }));
    assert_eq!(client.wait_for_notification(is_log_message)["params"]["data"], "short");
}
