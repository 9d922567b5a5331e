//! Real clients over HTTP: the SDKs, the inspector, `claude`, and a thousand clients at once.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway_real::{
    node_packages, node_program, project_with_everything, python_program, stdout_of, test_source,
};
use crate::support::TestContext;
use crate::support::claude_context::{
    ClaudeContext, NEW, OLD, delegated_report, report, wait_for_servers_script,
};
use crate::support::http::{HttpRequest, HttpServer, initialize_request, send_to, stateless_post};
use crate::support::mcp::result_text;
use crate::support::real_claude::scripted_environment;
use crate::support::wait::wait_until;

/// `adjutant serve --http` with server-everything behind it, and a token for the agent that may use it.
fn server_with_everything() -> Option<(TestContext, HttpServer, String)> {
    let (context, _) = project_with_everything()?;
    let token = context.create_token("dev");
    let server = context.serve_http([]);
    Some((context, server, token))
}

#[test]
fn the_typescript_sdk_works_over_http() {
    let Some((context, server, token)) = server_with_everything() else { return };
    let script = node_packages().unwrap().join("client-http.mjs");
    fs::copy(test_source("client.mjs"), &script).unwrap();
    let mut client = Command::new("node");
    client.arg(&script).arg(server.url()).env("ADJUTANT_TOKEN", token);
    let said = stdout_of(&mut client, &context);
    assert_eq!(said, "2025-11-25 5 tools; Echo: hello; progress; image/png");
}

#[test]
fn the_python_sdk_works_over_http() {
    let Some((context, server, token)) = server_with_everything() else { return };
    let Some(python) = python_program("python") else { return };
    let mut client = Command::new(python);
    client.arg(test_source("client.py")).arg(server.url()).env("ADJUTANT_TOKEN", token);
    assert_eq!(stdout_of(&mut client, &context), "2026-07-28 5 tools; Echo: hello; image/png");
}

#[test]
fn the_inspector_works_over_http() {
    let Some((context, server, token)) = server_with_everything() else { return };
    let mut inspection = Command::new(node_program("mcp-inspector-cli").unwrap());
    inspection.args(["--cli", &server.url(), "--transport", "http", "--method", "tools/call"]);
    inspection.args(["--tool-name", "execute_tool", "--tool-arg", "server=everything"]);
    inspection.args(["--tool-arg", "tool=get-sum", "--tool-arg", r#"args={"a":2,"b":3}"#]);
    inspection.args(["--header", &format!("Authorization: Bearer {token}")]);
    let called: Value = serde_json::from_str(&stdout_of(&mut inspection, &context)).unwrap();
    assert_eq!(result_text(&called), "The sum of 2 and 3 is 5.", "{called}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_real_claude_delegates_over_http(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let context = &fixture.context;
    let agent = "---\nname: teller\ndescription: Tells\nallowed_callers: [editor]\n---\nTell.\n";
    context.agent("teller", agent);
    let token = context.create_token("editor");
    let mut server = HttpServer::start(fixture.adjutant(["serve", "--http", "127.0.0.1:0"]));
    let entry = json!({ "mcpServers": { "adjutant": {
        "type": "http", "url": server.url(),
        "headers": { "Authorization": "Bearer ${ADJUTANT_TOKEN}" },
    } } });
    context.write("mcp.json", entry.to_string());
    let delegated = json!({ "agent_name": "teller", "prompt": "SAY the answer is 4711" });
    let prompt =
        format!("{}CALL mcp__adjutant__run_subagent {delegated}", wait_for_servers_script(version));
    let mut child = Command::new(&fixture.claude)
        .args(["-p", "--output-format=json", "--mcp-config=mcp.json", "--strict-mcp-config"])
        .arg("--allowedTools=mcp__adjutant__run_subagent")
        .env_clear()
        .envs(scripted_environment(&fixture.model, &context.home()))
        .env("ADJUTANT_TOKEN", &token)
        .current_dir(context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = report(&output);
    let told = delegated_report(told["result"].as_str().unwrap());
    assert_eq!(told["result"], "the answer is 4711", "{told}");
    server.signal(Signal::SIGTERM);
    assert!(server.wait_for_exit().success());
    let events = fs::read_to_string(context.root().join("data/events.jsonl")).unwrap();
    let ended = context.events_named("RunEnded").pop().expect("the end of the run");
    let caller = &ended["caller"];
    assert_eq!([&caller["name"], &caller["known_by"]], ["editor", "token"], "{ended}");
    assert!(!fixture.all_requests_text().contains(&token) && !events.contains(&token));
}

#[test]
fn calls_over_http_finish_after_sigterm() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let agent = "---\nname: teller\ndescription: Tells\nallowed_callers: [bot]\n---\nTell.\n";
    fixture.agent("teller", agent);
    let token = fixture.create_token("bot");
    let mut server = HttpServer::start(fixture.adjutant(["serve", "--http", "127.0.0.1:0"]));
    let arguments = json!({ "agent_name": "teller", "prompt": "SLEEP 2\nSAY it is 4711" });
    let params = json!({ "name": "run_subagent", "arguments": arguments });
    let call = stateless_post(&token, 1, "tools/call", params);
    let address = server.address;
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(move || send_to(address, &call));
        wait_until("the start of the run", || fixture.events_named("RunStarted").pop());
        server.signal(Signal::SIGTERM);
        asking.join().unwrap()
    });
    let answer = answer.message();
    assert_eq!(answer["result"]["structuredContent"]["result"], "it is 4711", "{answer}");
    assert!(server.wait_for_exit().success());
}

#[test]
fn j3_a_thousand_clients_with_the_same_ids_get_their_own_answers() {
    load_test(Duration::ZERO);
}

#[test]
#[ignore = "takes 30 s of a whole machine"]
fn j3_a_thousand_clients_for_half_a_minute() {
    load_test(Duration::from_secs(30));
}

/// A thousand clients at once, half of them with HTTP sessions, each with at least two calls and for `lasting`.
fn load_test(lasting: Duration) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(4096), hard).unwrap();
    let context = TestContext::new();
    let token = context.create_token("bot");
    let server = context.serve_http(["--requests-per-second", "0", "--runs-at-once", "0"]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let end = Instant::now() + lasting;
    let calls: usize = runtime.unwrap().block_on(async {
        let clients: Vec<_> = (0..1_000)
            .map(|number| tokio::spawn(run_client(server.address, token.clone(), number, end)))
            .collect();
        let mut calls = 0;
        for client in clients {
            calls += client.await.unwrap();
        }
        calls
    });
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    println!("{calls} calls, most memory {peak}");
    let kibibytes: u64 = peak.trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < 400 << 10, "{peak}");
}

async fn run_client(
    address: std::net::SocketAddr,
    token: String,
    number: usize,
    end: Instant,
) -> usize {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut session = None;
    if number.is_multiple_of(2) {
        let begun = exchange(&mut stream, &HttpRequest::post(&token, &initialize_request())).await;
        let id = begun.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.unwrap_or_else(|| panic!("no session: {begun}")).trim().to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let ready = HttpRequest::post(&token, &ready).with_header("Mcp-Session-Id", &id);
        exchange(&mut stream, &ready).await;
        session = Some(id);
    }
    let mut calls = 0;
    while calls < 2 || Instant::now() < end {
        let mark = format!("nobody-{number}-{calls}-");
        let arguments = json!({ "agent_name": mark, "prompt": "?" });
        let params = json!({ "name": "run_subagent", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let request = match &session {
            Some(id) => HttpRequest::post(&token, &call).with_header("Mcp-Session-Id", id),
            None => stateless_post(&token, 7, "tools/call", params),
        };
        let answer = exchange(&mut stream, &request).await;
        let own = format!("there is no agent `{mark}`");
        assert!(answer.contains(&own) && answer.contains("\"id\":7"), "not {mark}: {answer}");
        calls += 1;
    }
    calls
}

/// Sends one request on a keep-alive connection and returns the complete response.
async fn exchange(stream: &mut TcpStream, request: &HttpRequest) -> String {
    stream.write_all(&request.clone().without_header("Connection").to_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 8 << 10];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the server hung up: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let whole = match length {
            Some(length) => body.len() >= length.trim().parse().unwrap(),
            None if head.contains("chunked") => body.ends_with("0\r\n\r\n"),
            None => true,
        };
        if whole {
            return text.into_owned();
        }
    }
}
