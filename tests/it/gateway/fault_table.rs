//! The same faults over every transport: a fault ends its own call in bounded time, and the next call works.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::relay_server::{RelayServer, RelayTransport};
use super::{GatewayContext, call_tool_text, error_code, execute, faulty};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

/// A gateway with the faulty server behind one transport, as `odd`, and a sound one over stdio, as `good`.
struct FaultStage {
    stage: GatewayContext,
    _relay: Option<RelayServer>,
}

impl FaultStage {
    fn new(transport: &str, mode: &str) -> Self {
        let relay = match transport {
            "stdio" => None,
            "sse" => Some(RelayServer::start(RelayTransport::Sse, mode)),
            "streamable" => Some(RelayServer::start(RelayTransport::Streamable, mode)),
            other => panic!("{other}"),
        };
        let odd = match &relay {
            Some(relay) => relay.entry(),
            None => json!({ "command": faulty(), "args": [mode] }),
        };
        let good = json!({ "command": faulty() });
        Self { stage: GatewayContext::new(&json!({ "odd": odd, "good": good })), _relay: relay }
    }

    fn call(client: &mut McpClient, tool: &str, args: Value) -> Value {
        let arguments = json!({ "agent_id": "dev", "server": "odd", "tool": tool, "args": args, "timeout_ms": 20_000 });
        client.call_tool("execute_tool", arguments)
    }
}

/// Asserts that both servers answer again. A call may arrive before the gateway has seen the end of a connection.
fn assert_recovers(client: &mut McpClient) {
    wait_until("the next call works", || {
        let result = execute(client, "odd", "echo", json!({ "after": 1 }));
        (result_text(&result) == r#"{"after":1}"#).then_some(())
    });
    assert_eq!(call_tool_text(client, "good", "echo"), "{}");
}

#[test_case("stdio", "dies_in_a_line")]
#[test_case("sse", "dies_in_a_line")]
#[test_case("streamable", "dies_in_a_line")]
#[test_case("stdio", "half_a_character")]
#[test_case("sse", "half_a_character")]
#[test_case("streamable", "half_a_character")]
#[test_case("stdio", "huge")]
#[test_case("sse", "huge")]
#[test_case("streamable", "huge")]
#[test_case("stdio", "text_result")]
#[test_case("sse", "text_result")]
#[test_case("streamable", "text_result")]
#[test_case("stdio", "nothing")]
#[test_case("sse", "nothing")]
#[test_case("streamable", "nothing")]
fn a_call_without_a_usable_answer_fails_at_once(transport: &str, tool: &str) {
    let stage = FaultStage::new(transport, "good");
    let mut client = stage.stage.connect();
    assert_recovers(&mut client);
    let begun = Instant::now();
    let result = FaultStage::call(&mut client, tool, json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert!(begun.elapsed() < Duration::from_secs(15), "not at the deadline: {result}");
    assert_recovers(&mut client);
}

#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn a_second_answer_is_ignored(transport: &str) {
    let stage = FaultStage::new(transport, "good");
    let mut client = stage.stage.connect();
    for _ in 0..3 {
        let text = call_tool_text(&mut client, "odd", "twice");
        // Streamable HTTP has no order between the stream of a request and the stream of the session.
        assert!(text == "first" || (transport == "streamable" && text == "second"), "{text}");
    }
    assert_recovers(&mut client);
}

#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn a_late_answer_is_ignored(transport: &str) {
    let stage = FaultStage::new(transport, "good");
    let mut client = stage.stage.connect();
    assert_recovers(&mut client);
    let pid = call_tool_text(&mut client, "odd", "pid");
    let late = json!({ "agent_id": "dev", "server": "odd", "tool": "sleep", "args": { "ms": 500 }, "timeout_ms": 100 });
    assert_eq!(error_code(&client.call_tool("execute_tool", late)), "TIMEOUT");
    // The late answer arrives during this call.
    let during = FaultStage::call(&mut client, "sleep", json!({ "ms": 1_000 }));
    assert_eq!(result_text(&during), "slept");
    assert_eq!(call_tool_text(&mut client, "odd", "pid"), pid, "and the server stays");
    assert_eq!(call_tool_text(&mut client, "odd", "cancelled"), "1", "it was told");
}

/// The faulty server goes on with a call that is cancelled, and answers it.
#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn a_server_that_ignores_a_cancellation_delays_nobody(transport: &str) {
    let stage = FaultStage::new(transport, "good");
    let mut client = stage.stage.connect();
    assert_recovers(&mut client);
    let sleep =
        json!({ "agent_id": "dev", "server": "odd", "tool": "sleep", "args": { "ms": 2_000 } });
    let mut calls: u64 = call_tool_text(&mut client, "odd", "count").parse().unwrap();
    let id =
        client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": sleep }));
    // Only a call that has reached the server can be cancelled there.
    wait_until("the call", || {
        calls += 1;
        let count: u64 = call_tool_text(&mut client, "odd", "count").parse().unwrap();
        (count > calls).then_some(())
    });
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_until("the cancellation", || {
        (call_tool_text(&mut client, "odd", "cancelled") == "1").then_some(())
    });
    // The server hears of the cancellation before the entry of the call is written.
    wait_until("the entry of the call", || {
        let mut entries = stage.stage.audit_entries().into_iter();
        entries.find(|entry| entry["code"] == "CANCELLED")
    });
    assert_recovers(&mut client);
}

#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn a_flood_of_notifications_delays_only_its_own_server(transport: &str) {
    let stage = FaultStage::new(transport, "good");
    let mut client = stage.stage.connect();
    assert_recovers(&mut client);
    let announce = json!({ "agent_id": "dev", "server": "odd", "tool": "announce", "args": { "times": 4_000 } });
    let id =
        client.send_request("tools/call", json!({ "name": "execute_tool", "arguments": announce }));
    for _ in 0..100 {
        assert_eq!(call_tool_text(&mut client, "good", "echo"), "{}");
    }
    assert_eq!(result_text(&client.answer(id)), "announced");
    assert_recovers(&mut client);
}

#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn a_server_that_changes_its_tools_is_listed_again(transport: &str) {
    let stage = FaultStage::new(transport, "grows");
    let mut client = stage.stage.connect();
    let before = execute(&mut client, "odd", "late", json!({}));
    assert_eq!(error_code(&before), "TOOL_NOT_FOUND", "{before}");
    assert_eq!(call_tool_text(&mut client, "odd", "announce"), "announced");
    assert_eq!(call_tool_text(&mut client, "odd", "late"), "late");
}

/// Numbers whose text does not survive a parser that reads 64-bit integers and floats, and white space.
#[test_case("stdio")]
#[test_case("sse")]
#[test_case("streamable")]
fn arguments_reach_the_server_verbatim(transport: &str) {
    let stage = FaultStage::new(transport, "raw");
    let mut client = stage.stage.connect();
    execute(&mut client, "odd", "echo", json!({}));
    let args = r#"{"z": 1e2,"a":123456789012345678901234567890 ,"zeros":1.10,"ü":"\u00e9"}"#;
    let id = client.next_id();
    let arguments = format!(r#"{{"agent_id":"dev","server":"odd","tool":"raw","args":{args}}}"#);
    client.send_line(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"execute_tool","arguments":{arguments}}}}}"#
    ));
    let line = result_text(&client.answer(id)).to_owned();
    let (_, params) = line.split_once(r#""params":"#).expect("params");
    assert_eq!(params, format!(r#"{{"name":"raw","arguments":{args}}}}}"#));
}
