//! `serve --stdio --http`: both transports share catalog, sessions, process pool and gateway.

use std::fs::File;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW};
use crate::support::http::{HttpRequest, HttpServer, initialize_request, send_to, stateless_post};
use crate::support::idle_processes::pids_of_runs;
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const KEEPER_AGENT: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\nallowed_callers: [\"*\"]\n---\nYou remember.\n";

/// Starts a server with both transports; returns the stdio client and the HTTP address.
fn start_stdio_and_http(fixture: &ClaudeContext) -> (McpClient, SocketAddr) {
    let log = fixture.root().join("log");
    let command = fixture.adjutant(["serve", "--http", "127.0.0.1:0", "--stdio"]);
    let client = McpClient::connect_logging(command, File::create(&log).unwrap());
    let said = std::fs::read_to_string(&log).unwrap();
    let place = said.split("http://").nth(1).unwrap().split('/').next().unwrap();
    (client, place.parse().unwrap())
}

fn request_over_http(address: SocketAddr, token: &str, method: &str, params: Value) -> Value {
    send_to(address, &stateless_post(token, 1, method, params)).message()["result"].clone()
}

#[test]
fn stdio_and_http_share_catalog_sessions_pool_and_gateway() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let context = &fixture.context;
    context.agent("keeper", KEEPER_AGENT);
    context.write(
        ".mcp.json",
        json!({ "mcpServers": { "good": { "command": faulty() } } }).to_string(),
    );
    context.write(".mcp-gateway-rules.json", r#"{"agents":{"bot":{"allow":{"servers":["*"]}}}}"#);
    let token = context.create_token("bot");
    let (mut client, address) = start_stdio_and_http(&fixture);

    // One session: the HTTP call reuses the process of the stdio call.
    let run = |prompt: &str| json!({ "agent_name": "keeper", "prompt": prompt });
    let first = client.call_tool("run_subagent", run("SAY the word is plum"));
    let first = &first["structuredContent"];
    let live = || send_to(address, &HttpRequest::get("/metrics")).body;
    wait_until("a process that waits", || {
        live().contains("adjutant_pool_processes{kind=\"live\"} 1").then_some(())
    });
    let call = json!({ "name": "run_subagent", "arguments": run("SAY fine") });
    let second = request_over_http(address, &token, "tools/call", call);
    let second = &second["structuredContent"];
    assert_eq!((&second["result"], second.get("note")), (&json!("fine"), None), "{second}");
    assert_eq!(second["session_id"], first["session_id"]);
    let pids = pids_of_runs(context, 2);
    assert_eq!(pids, [pids[0]; 2], "the same process");
    assert!(fixture.model.requests().last().unwrap().body.to_string().contains("the word is plum"));

    // One process of the downstream server.
    let pid = json!({ "agent_id": "bot", "server": "good", "tool": "pid" });
    let by_stdio = client.call_tool("execute_tool", pid.clone());
    let by_http = request_over_http(
        address,
        &token,
        "tools/call",
        json!({ "name": "execute_tool", "arguments": pid }),
    );
    assert_eq!(result_text(&by_stdio), result_text(&by_http));

    // One catalog: both transports see the same change.
    context.agent("late", &KEEPER_AGENT.replace("keeper", "late"));
    client.wait_for_notification(|news| news["method"] == "notifications/tools/list_changed");
    for list in [
        client.request("tools/list", json!({})),
        request_over_http(address, &token, "tools/list", json!({})),
    ] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(list["tools"][0]["description"].as_str().unwrap(), @r"
            Hand a task to a specialist agent with rights and tools of its own.
            - keeper: Remembers
            - late: Remembers
            ");
        }
    }
}

#[test]
fn the_gateway_transport_variable_enables_http() {
    let context = TestContext::new();
    let token = context.create_token("bot");
    let mut command = context.adjutant(["gateway", "--http", "127.0.0.1:0"]);
    command.env("GATEWAY_TRANSPORT", "http");
    let server = HttpServer::start(command);
    assert_eq!(server.post(&token, &initialize_request()).status, 200, "the flag says where");

    let mut command = context.adjutant(["gateway"]);
    command.env("GATEWAY_TRANSPORT", "HTTP");
    let log = context.root().join("log");
    let mut child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    // Port 8080 may be in use on this machine; then the server reports that.
    let said = wait_until("where it listens", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("127.0.0.1:8080").then_some(said)
    });
    if said.contains("serving MCP at http://127.0.0.1:8080/mcp") {
        let address = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(send_to(address, &HttpRequest::post(&token, &initialize_request())).status, 200);
        child.kill().unwrap();
    } else {
        assert!(said.contains("127.0.0.1:8080 cannot be listened at"), "{said}");
    }
    child.wait().unwrap();
}
