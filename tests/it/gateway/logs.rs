//! What servers log: in our own log always, and passed on to a client that is alone with them.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::{Stage, execute, faulty, said, until};
use crate::support::http::{HttpServer, Request, initialize, modern, modern_post};
use crate::support::mcp::{McpClient, text};

const MESSAGE: &str = "notifications/message";

fn is_message(news: &Value) -> bool {
    news["method"] == MESSAGE
}

/// What the client has heard so far, and not taken.
fn heard(client: &McpClient) -> Vec<&Value> {
    client.notifications.iter().filter(|news| is_message(news)).collect()
}

#[test_case("gateway")]
#[test_case("serve")]
fn a_message_arrives_with_the_name_of_its_server_and_otherwise_unchanged(command: &str) {
    let stage = Stage::with(&["good"]);
    let mut client = McpClient::start(stage.context.adjutant([command]));
    let introduced = client.initialize();
    assert_eq!(introduced["capabilities"]["logging"], json!({}), "{introduced}");
    let data = json!({ "z": [1.5, null], "a": "é" });
    execute(
        &mut client,
        "good",
        "log",
        json!({ "level": "warning", "logger": "db", "data": data }),
    );
    let first = client.await_notification(is_message);
    let expected = json!({ "level": "warning", "logger": "good/db", "data": data });
    assert_eq!(first["params"].to_string(), expected.to_string());
    execute(&mut client, "good", "log", json!({}));
    let second = client.await_notification(is_message);
    let expected = json!({ "level": "info", "logger": "good", "data": "words in a notification" });
    assert_eq!(second["params"], expected);
}

#[test]
fn e1_a_secret_that_a_server_logs_is_not_passed_on() {
    let entry = json!({ "command": faulty(), "env": { "TOKEN": "tok-5ecr3t-value" } });
    let stage = Stage::new(&json!({ "good": entry }));
    let mut client = stage.connect();
    execute(&mut client, "good", "log", json!({ "data": { "header": "Bearer tok-5ecr3t-value" } }));
    let news = client.await_notification(is_message);
    assert_eq!(news["params"]["data"]["header"], "Bearer [TOKEN]", "{news}");
}

#[test]
fn every_message_is_there_with_the_answer() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    said(&mut client, "good", "pid");
    execute(&mut client, "good", "log", json!({ "data": 0, "times": 20 }));
    assert_eq!(heard(&client).len(), 20);
}

#[test]
fn a_server_that_the_client_has_not_called_is_not_heard() {
    let stage = Stage::with(&["good", "talkative"]);
    let mut client = stage.connect();
    let denied = json!({ "agent_id": "guest", "server": "talkative", "tool": "echo", "args": {} });
    client.call("execute_tool", denied);
    // It starts, and talks at once; what it said is read before its tools are.
    let tools = json!({ "agent_id": "dev", "server": "talkative" });
    assert!(client.call("get_server_tools", tools)["structuredContent"]["tools"].is_array());
    execute(&mut client, "good", "log", json!({}));
    assert_eq!(client.await_notification(is_message)["params"]["logger"], "good");
    assert_eq!(heard(&client), Vec::<&Value>::new());
    execute(&mut client, "talkative", "log", json!({}));
    assert_eq!(client.await_notification(is_message)["params"]["logger"], "talkative");
}

#[test]
fn what_was_allowed_under_other_rules_does_not_count() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    execute(&mut client, "good", "log", json!({}));
    client.await_notification(is_message);
    let sleep = json!({ "agent_id": "dev", "server": "good", "tool": "late_log", "args": {} });
    let late = client.begin("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    stage.rules("{}");
    client.await_notification(|news| news["method"] == "notifications/tools/list_changed");
    std::fs::write(stage.context.root().join("log-now"), "").unwrap();
    assert_eq!(text(&client.answer(late)), "logged late");
    assert_eq!(heard(&client), Vec::<&Value>::new());
}

#[test]
fn a_level_filters_and_is_handed_on_to_servers_that_are_there_and_that_come() {
    let stage = Stage::with(&["good", "other"]);
    let mut client = stage.connect();
    assert_eq!(said(&mut client, "good", "level"), "null", "they decide until somebody says more");
    let level = |client: &mut McpClient, level: &str| {
        client.request("logging/setLevel", json!({ "level": level }))
    };
    assert_eq!(level(&mut client, "error"), json!({}));
    for server in ["good", "other"] {
        until("the level", || (said(&mut client, server, "level") == "\"error\"").then_some(()));
    }
    for loud in ["debug", "warning", "error"] {
        execute(&mut client, "good", "log", json!({ "level": loud }));
    }
    assert_eq!(client.await_notification(is_message)["params"]["level"], "error");
    assert_eq!(heard(&client), Vec::<&Value>::new());

    for wrong in [json!({ "level": "loud" }), json!({})] {
        let refused = client.request("logging/setLevel", wrong);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    level(&mut client, "debug");
    until("the level", || (said(&mut client, "good", "level") == "\"debug\"").then_some(()));
    execute(&mut client, "good", "log", json!({ "level": "debug" }));
    assert_eq!(client.await_notification(is_message)["params"]["level"], "debug");
}

#[test_case("gateway")]
#[test_case("serve")]
fn over_http_nothing_is_passed_on(command: &str) {
    let stage = Stage::with(&["good"]);
    let token = stage.context.token("dev");
    let server = HttpServer::start(stage.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let begun = server.post(&token, &initialize());
    let introduced = begun.message();
    assert_eq!(introduced["result"]["capabilities"].get("logging"), None, "{introduced}");
    let session = begun.header("mcp-session-id").unwrap();
    let send = |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params });
        server.send(&Request::post(&token, &message).with("Mcp-Session-Id", session))
    };
    for level in ["error", "loud"] {
        let refused = send("logging/setLevel", json!({ "level": level })).message();
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    let arguments = json!({ "server": "good", "tool": "log", "args": {} });
    let logged = send("tools/call", json!({ "name": "execute_tool", "arguments": arguments }));
    assert_eq!(text(&logged.message()["result"]), "logged");
    assert!(!logged.body.contains(MESSAGE), "{}", logged.body);
    let found = server.send(&modern_post(&token, 3, "server/discover", json!({}))).message();
    assert!(found["result"]["capabilities"]["tools"].is_object(), "{found}");
    assert_eq!(found["result"]["capabilities"].get("logging"), None, "{found}");
}

#[test]
fn where_others_use_the_same_servers_over_http_the_client_on_stdio_hears_nothing() {
    let stage = Stage::with(&["good"]);
    stage.context.token("dev");
    let command = stage.context.adjutant(["serve", "--http", "127.0.0.1:0", "--stdio"]);
    let mut client = McpClient::start(command);
    let introduced = client.initialize();
    assert_eq!(introduced["capabilities"].get("logging"), None, "{introduced}");
    execute(&mut client, "good", "log", json!({}));
    assert_eq!(said(&mut client, "good", "level"), "null");
    assert_eq!(heard(&client), Vec::<&Value>::new());
}

#[test]
fn without_a_handshake_nothing_is_passed_on() {
    let stage = Stage::with(&["good"]);
    let mut client = McpClient::start(stage.command());
    let mut ask = |method: &str, params: Value| {
        let id = client.next_id();
        client.send(&modern(id, method, params));
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
    assert_eq!(heard(&client), Vec::<&Value>::new());
}

/// The memory that a process holds, in kilobytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_flood_is_cut_and_counted_and_harms_nobody_else() {
    let stage = Stage::with(&["good", "other"]);
    let log = stage.context.root().join("log");
    let mut client = McpClient::connect_logging(stage.command(), File::create(&log).unwrap());
    for server in ["good", "other"] {
        said(&mut client, server, "pid");
    }
    let before = memory(client.pid());
    let began = Instant::now();
    let args = json!({ "data": "x".repeat(1_000), "times": 1_000_000 });
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "log", "args": args });
    let params = json!({ "name": "execute_tool", "arguments": arguments });
    let flood = client.begin("tools/call", params);
    client.await_notification(is_message);
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let asked = Instant::now();
        said(&mut client, "other", "pid");
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let count = "were not passed on to the client";
    until("the count", || std::fs::read_to_string(&log).unwrap().contains(count).then_some(()));
    let all = heard(&client).len();
    let most = 50 * (began.elapsed().as_secs() + 2);
    assert!((all as u64) <= most, "{all} of at most {most}");
    let grown = memory(client.pid()).saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more than before");
    client.notify("notifications/cancelled", json!({ "requestId": flood }));
    said(&mut client, "other", "pid");
}

#[test]
fn a_message_that_is_too_long_is_not_passed_on() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    execute(&mut client, "good", "log", json!({ "data": "x".repeat(100_000) }));
    execute(&mut client, "good", "log", json!({ "data": "short" }));
    assert_eq!(client.await_notification(is_message)["params"]["data"], "short");
}
