//! Hostile servers on the network: redirects, endless answers, credentials and links.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::mock_http_server::{MockHttpServer, respond, respond_streamable};
use super::{GatewayContext, error_code, execute};
use crate::support::mcp::result_text;

#[test_case("file:///etc/passwd"; "a file")]
#[test_case("http://169.254.169.254/latest/meta-data"; "link local")]
#[test_case("http://127.0.0.1:1/mcp"; "another port")]
#[test_case("https://mcp.example.com/mcp"; "another host")]
fn g3_a_redirect_elsewhere_is_not_followed(target: &str) {
    let location = format!("location: {target}\r\n");
    let far = MockHttpServer::start(move |_, stream| {
        respond(stream, "307 Temporary Redirect", &location, "");
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let begun = Instant::now();
    let result = execute(&mut fixture.connect(), "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: `initialize` did not reach it: \
         unexpected server response: HTTP 307 Temporary Redirect:. It is tried again in 1 s."
    );
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!far.requests().is_empty());
}

#[test]
fn g3_a_redirect_within_the_server_is_followed() {
    let far = MockHttpServer::start(|request, stream| match request.path.as_str() {
        "/old" => respond(stream, "308 Permanent Redirect", "location: /new\r\n", ""),
        _ => respond_streamable(request, stream),
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/old") } }));
    assert_eq!(result_text(&execute(&mut fixture.connect(), "far", "who", json!({}))), "far {}");
}

#[test]
fn g3_an_endless_stream_is_ended_by_the_deadline() {
    let far = MockHttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        // Until the gateway closes the connection.
        while stream.write_all(b": still thinking\n\n").and_then(|()| stream.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let mut client = fixture.connect();
    let call =
        json!({ "agent_id": "dev", "server": "far", "tool": "who", "args": {}, "timeout_ms": 700 });
    let begun = Instant::now();
    let result = client.call_tool("execute_tool", call);
    assert_eq!(error_code(&result), "TIMEOUT", "{result}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn g3_an_endless_answer_is_rejected_at_the_size_limit() {
    let far = MockHttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n\"");
        while stream.write_all(&[b'x'; 16 << 10]).is_ok() {}
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let result = execute(&mut fixture.connect(), "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE", "{result}");
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: unexpected server response: its \
         answer is larger than 16777216 bytes. Call again later; `adjutant doctor` says more."
    );
}

#[test]
fn e4_a_password_in_a_url_is_sent_only_to_its_host() {
    let elsewhere = MockHttpServer::start(respond_streamable);
    let location = format!("location: {}\r\n", elsewhere.url("/mcp"));
    let far = MockHttpServer::start(move |_, stream| {
        respond(stream, "307 Temporary Redirect", &location, "");
    });
    let url = far.url("/mcp").replace("http://", "http://me:${FAR_PASSWORD}@");
    let fixture = GatewayContext::new(&json!({ "far": { "url": url } }));
    let mut command = fixture.command();
    command.env("FAR_PASSWORD", "s3cret-password");
    let mut client = crate::support::mcp::McpClient::connect(command);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
    assert!(far.requests()[0].headers["authorization"].starts_with("Basic "));
    assert!(elsewhere.requests().is_empty());
    let metadata = json!({ "agent_id": "dev", "include_metadata": true });
    let listed: Value = client.call_tool("list_servers", metadata);
    for shown in [result, listed] {
        assert!(!shown.to_string().contains("s3cret-password"), "{shown}");
    }
}

#[test]
fn g4_a_resource_link_is_forwarded_and_not_fetched() {
    let elsewhere = MockHttpServer::start(respond_streamable);
    let link = elsewhere.url("/secrets");
    let content = json!([
        { "type": "resource_link", "uri": link, "name": "a link" },
        { "type": "resource", "resource": { "uri": link, "text": "what it claims to be" } },
    ]);
    let told = content.clone();
    let far = MockHttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let result = json!({ "content": told });
        let answer = json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result });
        respond(stream, "200 OK", "content-type: application/json\r\n", &answer.to_string());
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let result = execute(&mut fixture.connect(), "far", "who", json!({}));
    assert_eq!(result["content"], content, "as it came");
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}
