//! What goes through the gateway arrives as it was sent: results, errors, progress, cancellation.

use std::process::Command;

use serde_json::{Value, json};

use super::{Stage, code, execute, faulty, said, until};
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

#[test]
fn progress_comes_in_order_under_the_callers_own_token() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "progress" });
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
