//! HTTP server: authentication, Host and Origin checks, sessions, limits, health pages, shutdown.

mod half_open;
mod metrics;
mod slow_clients;
mod stdio_and_http;
mod tls;
mod unauthenticated;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::http::{HttpRequest, initialize_request, stateless_post};
use crate::support::mcp::McpClient;
use crate::support::text::mask;

const BOT_AGENT: &str =
    "---\nname: helper\ndescription: Helps\nallowed_callers: [bot]\n---\nHelp.\n";

fn project() -> TestContext {
    let context = TestContext::new();
    context.agent("helper", BOT_AGENT);
    context
}

fn refused_request_codes(context: &TestContext) -> Vec<String> {
    let lines =
        context.audit_entries().into_iter().filter(|line| line["operation"] == "http_request");
    lines.map(|line| line["code"].as_str().unwrap().to_owned()).collect()
}

fn run_subagent_description(token: &str, server: &crate::support::http::HttpServer) -> String {
    let answer = server.send(&stateless_post(token, 1, "tools/list", json!({})));
    answer.message()["result"]["tools"][0]["description"].as_str().unwrap().to_owned()
}

/// Another process holds the lock of the audit log. The entry is written later: it did not wait 5 s and fail.
#[test]
fn a_refusal_does_not_wait_for_the_audit_lock() {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    assert_eq!(server.post(&token, &initialize_request()).status, 200);
    assert_eq!(server.post("wrong", &initialize_request()).status, 401);
    let before = refused_request_codes(&context);
    let head = context.root().join("data/audit.jsonl.head");
    let head = std::fs::OpenOptions::new().write(true).open(head).unwrap();
    head.lock().unwrap();
    assert_eq!(server.post("", &initialize_request()).status, 401);
    assert_eq!(server.post(&token, &initialize_request()).status, 200);
    assert_eq!(refused_request_codes(&context), before);
    drop(head);
    while refused_request_codes(&context).len() == before.len() {
        std::thread::yield_now();
    }
    assert_eq!(refused_request_codes(&context).last().unwrap(), "NO_TOKEN");
}

#[test]
fn the_token_name_is_the_caller_in_both_protocol_revisions() {
    let context = project();
    let (bot, ci) = (context.create_token("bot"), context.create_token("ci"));
    let server = context.serve_http([]);
    assert_eq!(
        run_subagent_description(&bot, &server),
        "Hand a task to a specialist agent with rights and tools of its own.\n- helper: Helps"
    );
    assert!(!run_subagent_description(&ci, &server).contains("helper"));

    let begun = server.post(&ci, &initialize_request());
    let session = begun.header("mcp-session-id").expect("a session").to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let of_session = |message: &Value| {
        HttpRequest::post(&ci, message)
            .with_header("Mcp-Session-Id", &session)
            .with_header("MCP-Protocol-Version", "2025-11-25")
    };
    assert_eq!(server.send(&of_session(&ready)).status, 202);
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_subagent", "arguments": { "agent_name": "helper", "prompt": "Help!" },
    } });
    let answer = server.send(&of_session(&call)).message();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("CALLER_NOT_ALLOWED: `ci` (known by its token) may not call `helper`"),
        "{text}"
    );
}

#[test_case("Host", "evil.example.com" => 403; "j1 a foreign host")]
#[test_case("Host", "localhost:1234" => 200; "j1 localhost")]
#[test_case("Origin", "http://evil.example.com" => 403; "j1 a foreign origin")]
#[test_case("Origin", "null" => 403; "j1 a null origin")]
#[test_case("Origin", "http://localhost:3000" => 200; "j1 a local origin")]
fn j1_foreign_hosts_and_origins_are_rejected(header: &str, value: &str) -> u16 {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let request = HttpRequest::post(&token, &initialize_request());
    let request = if header == "Host" { request.without_header("Host") } else { request };
    server.send(&request.with_header(header, value)).status
}

#[test]
fn j1_a_repeated_origin_is_rejected_and_audited() {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let local = "http://localhost:80";
    let twice = HttpRequest::post(&token, &initialize_request())
        .with_header("Origin", local)
        .with_header("Origin", local);
    assert_eq!(server.send(&twice).status, 403);
    assert_eq!(refused_request_codes(&context), ["FOREIGN_ORIGIN"]);
}

#[test]
fn j1_serving_without_tokens_requires_insecure_local_on_loopback() {
    let context = project();
    let said = |arguments: [&str; 4]| {
        let output = context.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        said(["serve", "--http", "0.0.0.0:0", "--stdio"]),
        "error: 0.0.0.0:0 can be reached from other machines and there are no tokens: make one \
         with `adjutant token new CALLER`\n"
    );
    assert_eq!(
        said(["gateway", "--http", "0.0.0.0:0", "--insecure-local"]),
        "error: --insecure-local is for loopback alone and 0.0.0.0:0 can be reached from other \
         machines: listen at 127.0.0.1, or leave it out and use tokens\n"
    );
    let server = context.serve_http(["--insecure-local"]);
    server.wait_for("WARNING: --insecure-local");
    assert_eq!(server.post("", &initialize_request()).status, 200);
    assert_eq!(
        server.post("wrong", &initialize_request()).status,
        401,
        "a wrong token is still wrong"
    );
}

#[test]
fn j2_tokens_are_required_and_revocation_is_immediate() {
    let context = project();
    let (token, expired) = (context.create_token("bot"), {
        let output = context.run(["token", "new", "bot", "--expires", "1s"]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    });
    let server = context.serve_http([]);
    let missing = server.post("", &initialize_request());
    assert_eq!(missing.status, 401);
    assert!(missing.header("www-authenticate").unwrap().starts_with("Bearer"));
    assert_eq!(
        missing.body,
        "a token is needed: send `Authorization: Bearer TOKEN`; `adjutant token new CALLER` \
         makes one\n"
    );
    assert_eq!(server.post("adjutant_wrong", &initialize_request()).status, 401);
    let basic = HttpRequest::post("", &initialize_request())
        .with_header("Authorization", &format!("Basic {token}"));
    assert_eq!(server.send(&basic).status, 401);
    let end = Instant::now() + Duration::from_secs(20);
    while server.post(&expired, &initialize_request()).status != 401 {
        assert!(Instant::now() < end, "a token outlives its time");
    }
    assert_eq!(server.post(&token, &initialize_request()).status, 200);
    assert!(context.run(["token", "revoke", "bot"]).status.success());
    assert_eq!(server.post(&token, &initialize_request()).status, 401);
    let refused = refused_request_codes(&context);
    assert_eq!(refused, ["NO_TOKEN", "WRONG_TOKEN", "EXPIRED_TOKEN"], "alike ones are one line");
    let stored = context.audit_log();
    assert!(!stored.contains(&token) && !stored.contains("adjutant_wrong"));
}

#[test]
fn nobody_is_let_in_while_the_tokens_cannot_be_read() {
    let context = project();
    let token = context.create_token("bot");
    let path = context.root().join("data/tokens.json");
    let stored = std::fs::read_to_string(&path).unwrap();
    let server = context.serve_http([]);
    std::fs::write(&path, stored.replace("\"caller\"", "\"admin\"")).unwrap();
    for presented in [token.as_str(), "adjutant_wrong"] {
        let refused = server.post(presented, &initialize_request());
        let reason = "STORE_UNAVAILABLE: `data/tokens.json` cannot be read: line 6 is not valid.";
        assert_eq!((refused.status, refused.body.starts_with(reason)), (503, true), "{refused:?}");
        assert!(!refused.body.contains("admin"), "a stranger sees nothing of the file");
    }
    assert_eq!(server.post("", &initialize_request()).status, 401);
    let other = context.run(["serve", "--http", "127.0.0.1:0"]);
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert_eq!(
        mask(&stderr),
        "error: `[ROOT]/data/tokens.json` cannot be read: unknown field `admin`, expected one \
         of `id`, `caller`, `hash`, `created`, `expires` at line 6 column 13; nobody is let in \
         until it can (move it away to start over)\n"
    );
    std::fs::write(&path, stored).unwrap();
    assert_eq!(server.post(&token, &initialize_request()).status, 200);
    assert_eq!(refused_request_codes(&context), ["STORE_UNAVAILABLE", "NO_TOKEN"]);
}

#[test]
fn j3_a_session_cannot_be_used_by_another_caller() {
    let context = project();
    let (bot, ci) = (context.create_token("bot"), context.create_token("ci"));
    let server = context.serve_http([]);
    let begun = server.post(&bot, &initialize_request());
    let session = begun.header("mcp-session-id").unwrap();
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    let by = |token: &str| {
        server.send(&HttpRequest::post(token, &ping).with_header("Mcp-Session-Id", session)).status
    };
    assert_eq!((by(&ci), by(&bot)), (403, 200));
    let delete =
        HttpRequest::new("DELETE", "/mcp").with_header("Authorization", &format!("Bearer {ci}"));
    assert_eq!(server.send(&delete.with_header("Mcp-Session-Id", session)).status, 403);
    let listen = HttpRequest::get("/mcp")
        .with_header("Authorization", &format!("Bearer {ci}"))
        .with_header("Accept", "text/event-stream");
    assert_eq!(server.send(&listen.with_header("Mcp-Session-Id", session)).status, 403);
    let line = context.audit_entries().into_iter().find(|line| line["code"] == "FOREIGN_SESSION");
    assert_eq!(line.unwrap()["caller"]["name"], "ci");
}

#[test]
fn j4_large_bodies_and_mismatched_headers_are_rejected() {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let mut large = HttpRequest::post(&token, &initialize_request());
    large.body = vec![b' '; 5 << 20];
    assert_eq!(server.send(&large).status, 413);
    let mut chunked = HttpRequest::post(&token, &initialize_request())
        .with_header("Transfer-Encoding", "chunked");
    chunked.body = [format!("{:x}\r\n", 5 << 20).into_bytes(), vec![b' '; 5 << 20]].concat();
    assert_eq!(server.send(&chunked).status, 413);
    let lying = stateless_post(&token, 1, "tools/call", json!({ "name": "run_subagent" }))
        .without_header("Mcp-Name")
        .with_header("Mcp-Name", "list_servers");
    assert_eq!(server.send(&lying).status, 400);
    assert_eq!(server.post(&token, &initialize_request()).status, 200, "and goes on");
}

#[test]
fn a_rate_limited_caller_is_told_when_to_retry() {
    let context = project();
    let (bot, ci) = (context.create_token("bot"), context.create_token("ci"));
    let server = context.serve_http(["--requests-per-second", "1"]);
    let ask = |token: &str| server.send(&stateless_post(token, 9, "tools/list", json!({})));
    let limited = (0..20).map(|_| ask(&bot)).find(|answer| answer.message().get("error").is_some());
    let limited = limited.expect("a limit");
    let error = &limited.message()["error"];
    assert_eq!(limited.message()["id"], 9);
    assert!(error["message"].as_str().unwrap().starts_with("RATE_LIMITED: "), "{error}");
    assert!(error["data"]["retry_after_ms"].as_u64().unwrap() <= 1000, "{error}");
    assert!(limited.header("retry-after").is_some());
    assert!(ask(&ci).message().get("result").is_some(), "others are not held up");
}

#[test]
fn stdio_and_http_are_served_concurrently_and_stop_together() {
    let context = project();
    context.agent("mine", "---\nname: mine\ndescription: For main\n---\nHelp.\n");
    let token = context.create_token("bot");
    let log = context.root().join("log");
    let command = context.adjutant(["serve", "--http", "127.0.0.1:0", "--stdio"]);
    let mut client = McpClient::connect_logging(command, std::fs::File::create(&log).unwrap());
    let said = std::fs::read_to_string(&log).unwrap();
    let place = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let list = client.request("tools/list", json!({}));
    assert_eq!(
        list["tools"][0]["description"],
        "Hand a task to a specialist agent with rights and tools of its own.\n- mine: For main"
    );
    let mut stream = TcpStream::connect(&place).unwrap();
    stream.write_all(&stateless_post(&token, 1, "tools/list", json!({})).to_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("helper: Helps") && !answer.contains("mine: For main"), "{answer}");
    client.disconnect();
    assert!(client.wait_for_exit().success());
    assert!(TcpStream::connect(place).is_err());
}

#[test]
fn sigterm_stops_the_server_and_closes_its_streams() {
    let context = project();
    let token = context.create_token("bot");
    let mut server = context.serve_http([]);
    let begun = server.post(&token, &initialize_request());
    let listen = HttpRequest::get("/mcp")
        .with_header("Authorization", &format!("Bearer {token}"))
        .with_header("Accept", "text/event-stream")
        .with_header("Mcp-Session-Id", begun.header("mcp-session-id").unwrap());
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&listen.to_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.signal(Signal::SIGTERM);
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert!(server.wait_for_exit().success());
}

#[test]
fn health_readiness_and_metrics_reveal_no_secrets() {
    let context = project();
    let token = context.create_token("bot");
    context.write(
        ".mcp.json",
        json!({ "mcpServers": { "away": {
            "command": "/no/such/program", "env": { "KEY": "hunter2-secret" },
        } } })
        .to_string(),
    );
    context
        .write(".mcp-gateway-rules.json", r#"{"agents":{"bot":{"allow":{"servers":["away"]}}}}"#);
    let mut command = context.adjutant(["serve", "--http", "127.0.0.1:0", "--metrics-token"]);
    command.env("ADJUTANT_CLAUDE", "/no/such/claude");
    let server = crate::support::http::HttpServer::start(command);
    let health = server.send(&HttpRequest::get("/healthz"));
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));

    let ready = server.send(&HttpRequest::get("/readyz"));
    let found: Value = serde_json::from_str(&ready.body).unwrap();
    assert_eq!((ready.status, &found["checks"]["claude"]["ok"]), (503, &json!(false)));
    assert_eq!(found["checks"]["catalog"], json!({ "ok": true, "agents": 1, "broken": 0 }));
    assert_eq!(found["checks"]["store"]["ok"], true);
    assert_eq!(found["checks"]["servers"], json!({ "up": 0, "of": 1 }));

    let call = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        server.send(&stateless_post(&token, 1, "tools/call", params)).message()
    };
    call("run_subagent", json!({ "agent_name": "helper", "prompt": "Help!" }));
    call("run_subagent", json!({ "agent_name": "made-up", "prompt": "Help!" }));
    call("execute_tool", json!({ "server": "away", "tool": "t" }));
    call("execute_tool", json!({ "server": "other\"} 1\nforged 2", "tool": "t" }));
    assert_eq!(server.send(&HttpRequest::get("/metrics")).status, 401);
    let asked =
        HttpRequest::get("/metrics").with_header("Authorization", &format!("Bearer {token}"));
    let page = server.send(&asked);
    assert_eq!(page.status, 200);
    let all = format!("{}{}{}", health.body, ready.body, page.body);
    for secret in ["hunter2", "/no/such", token.as_str(), "KEY"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}
