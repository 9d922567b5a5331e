//! What goes through the gateway arrives as it was sent: results, errors, progress, cancellation.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use test_case::test_case;

use super::{Stage, code, execute, faulty, said, until};
use crate::support::http::{HttpServer, Request, initialize, modern, modern_post};
use crate::support::mcp::{McpClient, text};

#[test]
fn results_of_every_kind_are_the_same_as_directly() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let mut direct = McpClient::connect(Command::new(faulty()));
    for tool in ["odd", "fail", "echo"] {
        let expected = direct.call(tool, json!({ "n": 1.5 }));
        let result = execute(&mut client, "good", tool, json!({ "n": 1.5 }));
        // As text: the order of fields and the form of numbers count too.
        assert_eq!(result.to_string(), expected.to_string());
    }
}

/// An argument that nobody reads makes a call take the long way, through rmcp; a server that is up lets the other pass.
#[test_case("dev", "good", "echo"; "an answer")]
#[test_case("dev", "good", "odd"; "every kind of content")]
#[test_case("dev", "good", "fail"; "a failure of the tool")]
#[test_case("dev", "good", "protocol_error"; "an error of the protocol")]
#[test_case("dev", "good", "ecoh"; "a tool that is not there")]
#[test_case("dev", "god", "echo"; "a server that is not there")]
#[test_case("guest", "good", "odd"; "a refusal")]
#[test_case("nobody", "good", "echo"; "an unknown agent")]
#[test_case("", "good", "echo"; "no agent")]
fn the_short_way_and_the_long_one_give_the_same_answer(agent: &str, server: &str, tool: &str) {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    execute(&mut client, "good", "echo", json!({}));
    let mut arguments = json!({ "agent_id": agent, "server": server, "tool": tool, "args": {} });
    let without_id = |mut answer: Value| {
        answer.as_object_mut().unwrap().remove("id");
        answer.to_string()
    };
    let short = without_id(client.call("execute_tool", arguments.clone()));
    arguments["nobody-reads-this"] = json!(true);
    assert_eq!(short, without_id(client.call("execute_tool", arguments)));
    assert_both_are_recorded_alike(&stage);
}

/// After the call that starts the server.
fn assert_both_are_recorded_alike(stage: &Stage) {
    let log = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        for differs in ["seq", "time", "prev", "call_id", "latency_us"] {
            line.as_object_mut().unwrap().remove(differs);
        }
        line
    };
    let lines: Vec<Value> =
        log.lines().map(line).filter(|line| line["operation"] == "execute_tool").collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert_eq!(lines[1], lines[2], "who, what, by which rule, and the sizes");
}

#[test_case("dev", "good", "echo"; "an answer")]
#[test_case("dev", "good", "odd"; "every kind of content")]
#[test_case("dev", "good", "protocol_error"; "an error of the protocol")]
#[test_case("dev", "good", "ecoh"; "a tool that is not there")]
#[test_case("guest", "good", "odd"; "a refusal")]
fn in_the_revision_without_a_handshake_too(agent: &str, server: &str, tool: &str) {
    let stage = Stage::with(&["good"]);
    let mut client = McpClient::start(stage.command());
    let mut send = |arguments: Value| {
        let id = client.next_id();
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        client.send(&modern(id, "tools/call", params));
        let mut answer = client.answer(id);
        answer.as_object_mut().unwrap().remove("id");
        answer
    };
    // The first request decides how the connection is used, and is never a short one.
    send(json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": {} }));
    let mut arguments = json!({ "agent_id": agent, "server": server, "tool": tool, "args": {} });
    let short = send(arguments.clone());
    arguments["nobody-reads-this"] = json!(true);
    assert_eq!(short, send(arguments));
    assert_both_are_recorded_alike(&stage);
}

#[test_case("dev", "good", "echo"; "an answer")]
#[test_case("dev", "good", "odd"; "every kind of content")]
#[test_case("dev", "good", "fail"; "a failure of the tool")]
#[test_case("dev", "good", "protocol_error"; "an error of the protocol")]
#[test_case("dev", "good", "ecoh"; "a tool that is not there")]
#[test_case("guest", "good", "odd"; "another agent than the token says")]
fn over_http_too(agent: &str, server: &str, tool: &str) {
    let stage = Stage::with(&["good"]);
    let token = stage.context.token("dev");
    let http = HttpServer::start(stage.context.adjutant(["gateway", "--http", "127.0.0.1:0"]));
    let send = |arguments: Value| {
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        http.send(&modern_post(&token, 7, "tools/call", params))
    };
    send(json!({ "server": "good", "tool": "echo", "args": {} }));
    let mut arguments = json!({ "agent_id": agent, "server": server, "tool": tool, "args": {} });
    let short = send(arguments.clone());
    arguments["nobody-reads-this"] = json!(true);
    let long = send(arguments);
    assert_eq!(short.message().to_string(), long.message().to_string());
    assert_eq!(short.status, long.status);
    assert_eq!(short.header("content-type"), long.header("content-type"));
    assert_both_are_recorded_alike(&stage);
}

#[test]
fn a_client_that_talks_over_sockets_is_served_like_one_with_pipes() {
    let stage = Stage::with(&["good"]);
    let (near, far) = UnixStream::pair().unwrap();
    let (near_in, far_in) = UnixStream::pair().unwrap();
    let mut gateway = stage.command();
    gateway.stdin(OwnedFd::from(far_in)).stdout(OwnedFd::from(far));
    let mut gateway = gateway.spawn().unwrap();
    near.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let (mut input, mut output) = (near_in, BufReader::new(near));
    let mut tell = |message: &Value| writeln!(input, "{message}").unwrap();
    let mut hear = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    tell(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" },
    }}));
    assert_eq!(hear()["result"]["serverInfo"]["name"], "adjutant-gateway");
    tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    // A socket holds far less than this: what does not fit at once waits for its turn.
    let args = json!({ "text": "x".repeat(3 << 20) });
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": args });
    let params = json!({ "name": "execute_tool", "arguments": arguments });
    tell(&json!({ "jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params }));
    let answer = hear();
    assert_eq!(answer["id"], "one");
    assert_eq!(text(&answer["result"]), args.to_string());
    drop(input);
    assert!(gateway.wait().unwrap().success(), "it ends with its client");
}

#[test]
fn a_protocol_error_stays_one() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let answer = execute(&mut client, "good", "protocol_error", json!({}));
    let expected = json!({ "code": -32042, "message": "not like this", "data": { "hint": 1 } });
    assert_eq!(answer["error"], expected, "{answer}");
}

#[test]
fn definitions_keep_what_the_server_says() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let mut direct = McpClient::connect(Command::new(faulty()));
    let expected = direct.request("tools/list", json!({}));
    let result = client.call("get_server_tools", json!({ "agent_id": "dev", "server": "good" }));
    let tools = &result["structuredContent"]["tools"];
    assert_eq!(tools.to_string(), expected["tools"].to_string());
    assert_eq!(serde_json::from_str::<Value>(text(&result)).unwrap(), result["structuredContent"]);
}

#[test_case(json!({ "agent_id": "dev", "server": "good", "tool": "progress", "args": {} }); "the short way")]
#[test_case(json!({ "agent_id": "dev", "server": "good", "tool": "progress" }); "the long way")]
fn progress_comes_in_order_under_the_callers_own_token(arguments: Value) {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let params = json!({ "name": "execute_tool", "arguments": arguments, "_meta": { "progressToken": "mine" } });
    assert_eq!(text(&client.request("tools/call", params)), "done");
    let steps: Vec<(String, String)> = client
        .notifications
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| {
            let word = |field: &str| message["params"][field].as_str().unwrap().to_owned();
            (word("progressToken"), word("message"))
        })
        .collect();
    let expected: Vec<_> = (1..=5).map(|n| ("mine".to_owned(), format!("step {n}"))).collect();
    assert_eq!(steps, expected);
}

#[test]
fn a_cancelled_call_and_a_late_one_are_cancelled_at_the_server() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let mut asked: u64 = said(&mut client, "good", "count").parse().unwrap();
    let sleep =
        json!({ "agent_id": "dev", "server": "good", "tool": "sleep", "args": { "ms": 60_000 } });
    let id = client.begin("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    // Only a call that has reached the server can be cancelled there.
    until("the call", || {
        asked += 1;
        let count: u64 = said(&mut client, "good", "count").parse().unwrap();
        (count > asked).then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    until("the cancellation", || (said(&mut client, "good", "cancelled") == "1").then_some(()));
    let mut late = sleep;
    late["timeout_ms"] = json!(100);
    let result = client.call("execute_tool", late);
    assert_eq!(code(&result), "TIMEOUT");
    assert!(text(&result).contains("within 100 ms"), "{result}");
    until("the second", || (said(&mut client, "good", "cancelled") == "2").then_some(()));
}

#[test]
fn calls_do_not_wait_for_each_other() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    said(&mut client, "good", "pid");
    let call = |tool: &str, ms: u64| json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "good", "tool": tool, "args": { "ms": ms } } });
    let slow = client.begin("tools/call", call("sleep", 1_500));
    let quick: Vec<u64> = (0..50).map(|n| client.begin("tools/call", call("echo", n))).collect();
    for (n, id) in quick.into_iter().enumerate() {
        assert_eq!(text(&client.answer(id)), format!("{{\"ms\":{n}}}"));
    }
    assert!(client.notifications.is_empty(), "the slow one is still on its way");
    assert_eq!(text(&client.answer(slow)), "slept");
}

#[test]
fn arguments_are_checked_with_a_sentence() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    for (arguments, expected) in [
        (json!({ "agent_id": "dev", "tool": "echo" }), "`server` is missing"),
        (
            json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": [1] }),
            "`args` must be an object",
        ),
        (
            json!({ "agent_id": "dev", "server": "good", "tool": "echo", "timeout_ms": 0 }),
            "`timeout_ms` must be more than 0",
        ),
        (json!({ "agent_id": 5, "server": "good", "tool": "echo" }), "`agent_id` must be text"),
    ] {
        let result = client.call("execute_tool", arguments);
        assert_eq!(code(&result), "INVALID_ARGUMENT");
        assert!(text(&result).contains(expected), "{result}");
    }
    let as_text =
        json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": "{\"a\":1}" });
    assert_eq!(text(&client.call("execute_tool", as_text)), "{\"a\":1}");
}

/// What is asked over HTTP in both revisions, and what comes back: with a session, and without one.
fn over_http(server: &HttpServer, token: &str, method: &str, params: &Value) -> [Value; 2] {
    let begun = server.post(token, &initialize());
    let session = begun.header("mcp-session-id").unwrap();
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let with_session = Request::post(token, &message).with("Mcp-Session-Id", session);
    let modern = modern_post(token, 1, method, params.clone());
    let modern = match params["uri"].as_str() {
        Some(uri) => modern.with("Mcp-Name", uri),
        None => modern,
    };
    [with_session, modern].map(|request| server.send(&request).message()["result"].clone())
}

#[test_case("gateway")]
#[test_case("serve")]
fn over_http_results_are_the_same_as_directly(command: &str) {
    let stage = Stage::with(&["good"]);
    let token = stage.context.token("dev");
    let server = HttpServer::start(stage.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let mut direct = McpClient::connect(Command::new(faulty()));
    let mut same = |method: &str, params: Value, expected: (&str, Value)| {
        let expected = direct.request(expected.0, expected.1);
        let [with_session, mut modern] = over_http(&server, &token, method, &params);
        assert_eq!(with_session.to_string(), expected.to_string());
        // Only what the newer revision asks for is added.
        for field in ["resultType", "ttlMs", "cacheScope"] {
            modern.as_object_mut().unwrap().shift_remove(field);
        }
        assert_eq!(modern.to_string(), expected.to_string());
    };
    for tool in ["odd", "fail", "echo"] {
        let arguments = json!({ "server": "good", "tool": tool, "args": { "n": 1.5 } });
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        same(
            "tools/call",
            params,
            ("tools/call", json!({ "name": tool, "arguments": { "n": 1.5 } })),
        );
    }
    let uri = direct_uri(&mut McpClient::connect(Command::new(faulty())));
    same("resources/list", json!({}), ("resources/list", json!({})));
    same("resources/read", json!({ "uri": uri }), ("resources/read", json!({ "uri": uri })));
    let prompt = ("prompts/get", json!({ "name": "greet" }));
    same("prompts/get", json!({ "name": "good/greet" }), prompt);
}

fn direct_uri(direct: &mut McpClient) -> Value {
    direct.request("resources/list", json!({}))["resources"][0]["uri"].clone()
}
