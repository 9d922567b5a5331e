//! `serve --stdio --http`: one catalog, one set of conversations, one pool and one gateway for both.

use std::fs::File;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::gateway::{faulty, until};
use crate::support::TestContext;
use crate::support::http::{HttpServer, Request, initialize, modern_post, send_to};
use crate::support::mcp::{McpClient, text};
use crate::support::stage::{NEW, Stage};

const KEEPER: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\nallowed_callers: [\"*\"]\n---\nYou remember.\n";

/// Whoever speaks over stdin and stdout, and where the others come in.
fn both(stage: &Stage) -> (McpClient, SocketAddr) {
    let log = stage.context.root().join("log");
    let command = stage.adjutant(["serve", "--http", "127.0.0.1:0", "--stdio"]);
    let client = McpClient::connect_logging(command, File::create(&log).unwrap());
    let said = std::fs::read_to_string(&log).unwrap();
    let place = said.split("http://").nth(1).unwrap().split('/').next().unwrap();
    (client, place.parse().unwrap())
}

fn ask(address: SocketAddr, token: &str, method: &str, params: Value) -> Value {
    send_to(address, &modern_post(token, 1, method, params)).message()["result"].clone()
}

#[test]
fn stdio_and_http_share_catalog_conversations_pool_and_gateway() {
    let Some(stage) = Stage::new(NEW) else { return };
    let context = &stage.context;
    context.agent("keeper", KEEPER);
    context.write(
        ".mcp.json",
        json!({ "mcpServers": { "good": { "command": faulty() } } }).to_string(),
    );
    context.write(".mcp-gateway-rules.json", r#"{"agents":{"bot":{"allow":{"servers":["*"]}}}}"#);
    let token = context.token("bot");
    let (mut client, address) = both(&stage);

    // One conversation, in the process that the other side has left.
    let run = |prompt: &str| json!({ "agent_name": "keeper", "prompt": prompt });
    let first = client.call("run_subagent", run("SAY the word is plum"));
    let first = &first["structuredContent"];
    let live = || send_to(address, &Request::get("/metrics")).body;
    until("a process that waits", || {
        live().contains("adjutant_pool_processes{kind=\"live\"} 1").then_some(())
    });
    let call = json!({ "name": "run_subagent", "arguments": run("SAY fine") });
    let second = ask(address, &token, "tools/call", call);
    let second = &second["structuredContent"];
    assert_eq!((&second["result"], second.get("note")), (&json!("fine"), None), "{second}");
    assert_eq!(second["session_id"], first["session_id"]);
    let started = |number: usize| {
        let events = std::fs::read_to_string(context.root().join("data/events.jsonl")).unwrap();
        let starts: Vec<Value> = events
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|event: &Value| event["hook_event_name"] == "RunStarted")
            .collect();
        starts[number]["pid"].clone()
    };
    assert_eq!(started(0), started(1), "the same process");
    assert!(stage.model.requests().last().unwrap().body.to_string().contains("the word is plum"));

    // One server behind the gateway.
    let pid = json!({ "agent_id": "bot", "server": "good", "tool": "pid" });
    let by_stdio = client.call("execute_tool", pid.clone());
    let by_http =
        ask(address, &token, "tools/call", json!({ "name": "execute_tool", "arguments": pid }));
    assert_eq!(text(&by_stdio), text(&by_http));

    // One catalog: both are told of the same change.
    context.agent("late", &KEEPER.replace("keeper", "late"));
    client.await_notification(|news| news["method"] == "notifications/tools/list_changed");
    for list in
        [client.request("tools/list", json!({})), ask(address, &token, "tools/list", json!({}))]
    {
        assert!(list["tools"][0]["description"].as_str().unwrap().contains("late"), "{list}");
    }
}

#[test]
fn the_gateways_variable_asks_for_http() {
    let context = TestContext::new();
    let token = context.token("bot");
    let mut command = context.adjutant(["gateway", "--http", "127.0.0.1:0"]);
    command.env("GATEWAY_TRANSPORT", "http");
    let server = HttpServer::start(command);
    assert_eq!(server.post(&token, &initialize()).status, 200, "the flag says where");

    let mut command = context.adjutant(["gateway"]);
    command.env("GATEWAY_TRANSPORT", "HTTP");
    let log = context.root().join("log");
    let mut child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    // Something else of this machine may be there already; then that is said.
    let said = until("where it listens", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("127.0.0.1:8080").then_some(said)
    });
    if said.contains("serving MCP at http://127.0.0.1:8080/mcp") {
        let address = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(send_to(address, &Request::post(&token, &initialize())).status, 200);
        child.kill().unwrap();
    } else {
        assert!(said.contains("127.0.0.1:8080 cannot be listened at"), "{said}");
    }
    child.wait().unwrap();
}
