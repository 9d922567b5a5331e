//! Servers on the network that mean harm: where they send us, and how long they keep us.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::http_server::{HttpServer, respond, streamable};
use super::{Stage, code, execute};
use crate::support::mcp::text;

#[test_case("file:///etc/passwd"; "a file")]
#[test_case("http://169.254.169.254/latest/meta-data"; "the link")]
#[test_case("http://127.0.0.1:1/mcp"; "another port")]
#[test_case("https://mcp.example.com/mcp"; "another host")]
fn g3_a_redirect_elsewhere_is_not_followed(target: &str) {
    let location = format!("location: {target}\r\n");
    let far = HttpServer::start(move |_, stream| {
        respond(stream, "307 Temporary Redirect", &location, "");
    });
    let stage = Stage::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let begun = Instant::now();
    let result = execute(&mut stage.connect(), "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(text(&result).contains("307"), "{result}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!far.requests().is_empty());
}

#[test]
fn g3_a_redirect_within_the_server_is_followed() {
    let far = HttpServer::start(|request, stream| match request.path.as_str() {
        "/old" => respond(stream, "308 Permanent Redirect", "location: /new\r\n", ""),
        _ => streamable(request, stream),
    });
    let stage = Stage::new(&json!({ "far": { "url": far.url("/old") } }));
    assert_eq!(text(&execute(&mut stage.connect(), "far", "who", json!({}))), "far {}");
}

#[test]
fn g3_a_stream_that_never_ends_is_ended_by_the_deadline() {
    let far = HttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        // Until the other side has had enough.
        while stream.write_all(b": still thinking\n\n").and_then(|()| stream.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let stage = Stage::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let mut client = stage.connect();
    let call =
        json!({ "agent_id": "dev", "server": "far", "tool": "who", "args": {}, "timeout_ms": 700 });
    let begun = Instant::now();
    let result = client.call("execute_tool", call);
    assert_eq!(code(&result), "TIMEOUT", "{result}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn g3_an_answer_without_an_end_is_not_taken() {
    let far = HttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n\"");
        while stream.write_all(&[b'x'; 16 << 10]).is_ok() {}
    });
    let stage = Stage::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let result = execute(&mut stage.connect(), "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert!(text(&result).contains("larger than 16777216 bytes"), "{result}");
}

#[test]
fn e4_a_password_in_an_address_reaches_its_host_alone() {
    let elsewhere = HttpServer::start(streamable);
    let location = format!("location: {}\r\n", elsewhere.url("/mcp"));
    let far = HttpServer::start(move |_, stream| {
        respond(stream, "307 Temporary Redirect", &location, "");
    });
    let url = far.url("/mcp").replace("http://", "http://me:${FAR_PASSWORD}@");
    let stage = Stage::new(&json!({ "far": { "url": url } }));
    let mut command = stage.command();
    command.env("FAR_PASSWORD", "s3cret-password");
    let mut client = crate::support::mcp::McpClient::connect(command);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(far.requests()[0].headers["authorization"].starts_with("Basic "));
    assert!(elsewhere.requests().is_empty());
    let metadata = json!({ "agent_id": "dev", "include_metadata": true });
    let listed: Value = client.call("list_servers", metadata);
    for shown in [result, listed] {
        assert!(!shown.to_string().contains("s3cret-password"), "{shown}");
    }
}

#[test]
fn g4_a_link_to_another_place_is_passed_on_and_fetched_by_nobody() {
    let elsewhere = HttpServer::start(streamable);
    let link = elsewhere.url("/secrets");
    let content = json!([
        { "type": "resource_link", "uri": link, "name": "a link" },
        { "type": "resource", "resource": { "uri": link, "text": "what it claims to be" } },
    ]);
    let told = content.clone();
    let far = HttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let result = json!({ "content": told });
        let answer = json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result });
        respond(stream, "200 OK", "content-type: application/json\r\n", &answer.to_string());
    });
    let stage = Stage::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let result = execute(&mut stage.connect(), "far", "who", json!({}));
    assert_eq!(result["content"], content, "as it came");
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}
