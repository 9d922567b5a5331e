//! Calls pass through the gateway unchanged: results, errors, progress and cancellation.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use test_case::test_case;

use super::{GatewayContext, call_tool_text, error_code, execute, faulty};
use crate::support::http::{HttpRequest, HttpServer, initialize_request, stateless_post};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

#[test]
fn results_of_every_kind_equal_those_of_a_direct_call() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let mut direct = McpClient::connect(Command::new(faulty()));
    for tool in ["odd", "fail", "echo"] {
        let expected = direct.call_tool(tool, json!({ "n": 1.5 }));
        let result = execute(&mut client, "good", tool, json!({ "n": 1.5 }));
        // Compared as text: the order of fields and the format of numbers count too.
        assert_eq!(result.to_string(), expected.to_string());
    }
}

#[test]
fn a_client_on_sockets_is_served_like_one_on_pipes() {
    let fixture = GatewayContext::with(&["good"]);
    let (near, far) = UnixStream::pair().unwrap();
    let (near_in, far_in) = UnixStream::pair().unwrap();
    let mut gateway = fixture.command();
    gateway.stdin(OwnedFd::from(far_in)).stdout(OwnedFd::from(far));
    let mut gateway = gateway.spawn().unwrap();
    near.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let (mut input, mut output) = (near_in, BufReader::new(near));
    let mut tell = |message: &Value| writeln!(input, "{message}").unwrap();
    let mut read_answer = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    tell(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" },
    }}));
    assert_eq!(read_answer()["result"]["serverInfo"]["name"], "adjutant-gateway");
    tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    // Larger than a socket buffer: the rest is written when the client has read.
    let args = json!({ "text": "x".repeat(3 << 20) });
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": args });
    let params = json!({ "name": "execute_tool", "arguments": arguments });
    tell(&json!({ "jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params }));
    let answer = read_answer();
    assert_eq!(answer["id"], "one");
    assert_eq!(result_text(&answer["result"]), args.to_string());
    drop(input);
    assert!(gateway.wait().unwrap().success(), "it ends with its client");
}

#[test]
fn a_protocol_error_is_forwarded_as_a_protocol_error() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let answer = execute(&mut client, "good", "protocol_error", json!({}));
    let expected = json!({ "code": -32042, "message": "not like this", "data": { "hint": 1 } });
    assert_eq!(answer["error"], expected, "{answer}");
}

#[test]
fn tool_definitions_are_forwarded_unchanged() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let mut direct = McpClient::connect(Command::new(faulty()));
    let expected = direct.request("tools/list", json!({}));
    let result =
        client.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": "good" }));
    let tools = &result["structuredContent"]["tools"];
    assert_eq!(tools.to_string(), expected["tools"].to_string());
    assert_eq!(
        serde_json::from_str::<Value>(result_text(&result)).unwrap(),
        result["structuredContent"]
    );
}

#[test_case(json!({ "progressToken": "mine" }); "directly")]
#[test_case(json!({ "progressToken": "mine", "x": 1 }); "through rmcp")]
fn progress_arrives_in_order_under_the_callers_token(meta: Value) {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "progress" });
    let params = json!({ "name": "execute_tool", "arguments": arguments, "_meta": meta });
    assert_eq!(result_text(&client.request("tools/call", params)), "done");
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
fn cancelled_and_timed_out_calls_are_cancelled_downstream() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let mut asked: u64 = call_tool_text(&mut client, "good", "count").parse().unwrap();
    let sleep =
        json!({ "agent_id": "dev", "server": "good", "tool": "sleep", "args": { "ms": 60_000 } });
    let id =
        client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    // Only a call that has reached the server can be cancelled there.
    wait_until("the call", || {
        asked += 1;
        let count: u64 = call_tool_text(&mut client, "good", "count").parse().unwrap();
        (count > asked).then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    wait_until("the cancellation", || {
        (call_tool_text(&mut client, "good", "cancelled") == "1").then_some(())
    });
    let mut late = sleep;
    late["timeout_ms"] = json!(100);
    let result = client.call_tool("execute_tool", late);
    assert_eq!(error_code(&result), "TIMEOUT");
    assert_eq!(
        result_text(&result),
        "TIMEOUT: server `good` did not answer within 100 ms. Pass a larger timeout_ms, or ask \
         for less."
    );
    wait_until("the second", || {
        (call_tool_text(&mut client, "good", "cancelled") == "2").then_some(())
    });
}

#[test]
fn calls_run_concurrently() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    call_tool_text(&mut client, "good", "pid");
    let call = |tool: &str, ms: u64| json!({ "name": "execute_tool", "arguments": { "agent_id": "dev", "server": "good", "tool": tool, "args": { "ms": ms } } });
    let slow = client.send_request("tools/call", call("sleep", 1_500));
    let quick: Vec<u64> =
        (0..50).map(|n| client.send_request("tools/call", call("echo", n))).collect();
    for (n, id) in quick.into_iter().enumerate() {
        assert_eq!(result_text(&client.answer(id)), format!("{{\"ms\":{n}}}"));
    }
    assert!(client.notifications.is_empty(), "the slow one is still on its way");
    assert_eq!(result_text(&client.answer(slow)), "slept");
}

#[test]
fn invalid_arguments_get_a_readable_error() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    for (arguments, expected) in [
        (
            json!({ "agent_id": "dev", "tool": "echo" }),
            "INVALID_ARGUMENT: `server` is missing. Correct the arguments.",
        ),
        (
            json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": [1] }),
            "INVALID_ARGUMENT: `args` must be an object. Correct the arguments.",
        ),
        (
            json!({ "agent_id": "dev", "server": "good", "tool": "echo", "timeout_ms": 0 }),
            "INVALID_ARGUMENT: `timeout_ms` must be more than 0. Correct the arguments.",
        ),
        (
            json!({ "agent_id": 5, "server": "good", "tool": "echo" }),
            "INVALID_ARGUMENT: `agent_id` must be text. Correct the arguments.",
        ),
    ] {
        let result = client.call_tool("execute_tool", arguments);
        assert_eq!(error_code(&result), "INVALID_ARGUMENT");
        assert_eq!(result_text(&result), expected);
    }
    let as_text =
        json!({ "agent_id": "dev", "server": "good", "tool": "echo", "args": "{\"a\":1}" });
    assert_eq!(result_text(&client.call_tool("execute_tool", as_text)), "{\"a\":1}");
}

/// Sends a request over HTTP in both revisions, with and without a session; returns both results.
fn request_over_http(server: &HttpServer, token: &str, method: &str, params: &Value) -> [Value; 2] {
    let begun = server.post(token, &initialize_request());
    let session = begun.header("mcp-session-id").unwrap();
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let with_session = HttpRequest::post(token, &message).with_header("Mcp-Session-Id", session);
    let modern = stateless_post(token, 1, method, params.clone());
    let modern = match params["uri"].as_str() {
        Some(uri) => modern.with_header("Mcp-Name", uri),
        None => modern,
    };
    [with_session, modern].map(|request| server.send(&request).message()["result"].clone())
}

#[test_case("gateway")]
#[test_case("serve")]
fn results_over_http_equal_those_of_a_direct_call(command: &str) {
    let fixture = GatewayContext::with(&["good"]);
    let token = fixture.create_token("dev");
    let server = HttpServer::start(fixture.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let mut direct = McpClient::connect(Command::new(faulty()));
    let mut same = |method: &str, params: Value, expected: (&str, Value)| {
        let expected = direct.request(expected.0, expected.1);
        let [with_session, mut modern] = request_over_http(&server, &token, method, &params);
        assert_eq!(with_session.to_string(), expected.to_string());
        // 2026-07-28 only adds fields.
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
