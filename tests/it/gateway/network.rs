//! Servers on the network: headers, exact results, redirects, sessions and recovery.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::mock_http_server::{MockHttpServer, legacy_sse, respond, respond_streamable};
use super::{GatewayContext, error_code, execute};
use crate::support::http::initialize_request;
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const KEY: &str = "s3cret-key-of-the-far-server";

fn http_entry(url: &str) -> Value {
    json!({ "url": url, "headers": {
        "Authorization": "Bearer ${FAR_KEY}", "X-Team": "blue", "X-Both": "${TEAM:-green}-${FAR_KEY}",
    } })
}

/// Connects to the gateway, with the variable of the key set and the log in a file.
fn connect(fixture: &GatewayContext) -> McpClient {
    let log = File::create(fixture.root().join("log")).unwrap();
    let mut command = fixture.command();
    command.env("FAR_KEY", KEY).env("RUST_LOG", "trace");
    McpClient::connect_logging(command, log)
}

fn assert_key_not_leaked(fixture: &GatewayContext) {
    for file in ["log", "data/audit.jsonl"] {
        let said = std::fs::read_to_string(fixture.root().join(file)).unwrap();
        assert!(!said.contains(KEY), "{file}: {said}");
    }
}

#[test]
fn every_request_to_a_network_server_has_every_configured_header() {
    let far = MockHttpServer::start(respond_streamable);
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp?tenant=1")) }));
    let mut client = connect(&fixture);
    let listed =
        client.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": "far" }));
    assert_eq!(listed["structuredContent"]["tools"][0]["name"], "who");
    let result = execute(&mut client, "far", "who", json!({ "a": 1 }));
    assert_eq!(result_text(&result), r#"far {"a":1}"#);
    assert_eq!(result["structuredContent"], json!({ "n": 0.1 }));
    let metadata = json!({ "agent_id": "dev", "include_metadata": true });
    let listed = client.call_tool("list_servers", metadata).to_string();
    assert!(!listed.contains(KEY), "{listed}");
    let requests = far.requests();
    let methods = requests.iter().filter_map(|request| request.body["method"].as_str());
    assert_eq!(methods.filter(|&method| method == "initialize").count(), 1);
    for request in requests {
        assert_eq!(request.path, "/mcp?tenant=1");
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        assert_eq!(request.headers["x-team"], "blue");
        assert_eq!(request.headers["x-both"], format!("green-{KEY}"));
    }
    assert_key_not_leaked(&fixture);
}

/// Details that a typed deserialization could lose: field order, number formats, unknown fields.
const UNUSUAL_RESULT: &str = r#"{"zeta":[1,{"unknown":null}],"content":[{"type":"text","text":"ü\u0000","extra":1},{"type":"resource","resource":{"uri":"x://y","blob":"aGk=","more":true}}],"structuredContent":{"b":1,"a":{"0.1":0.1,"big":1e+300,"whole":12345678901234567}},"_meta":{"example.com/trace":"t","adjutant/packed":2,"adjutant/result":{"content":[]}},"isError":false}"#;
/// A kind of content that no revision of the protocol defines.
const HOLOGRAM: &str = r#"{"content":[{"type":"hologram","depth":3}],"isError":false}"#;

#[test_case(ResponseFormat::Json, UNUSUAL_RESULT; "in plain JSON")]
#[test_case(ResponseFormat::Json, HOLOGRAM; "of a new kind, in plain JSON")]
#[test_case(ResponseFormat::Events, UNUSUAL_RESULT; "in an event stream")]
#[test_case(ResponseFormat::Events, HOLOGRAM; "of a new kind, in an event stream")]
fn a_result_arrives_byte_for_byte(wire: ResponseFormat, result: &'static str) {
    let far = MockHttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let id = &request.body["id"];
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        wire.respond(stream, &answer);
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let mut client = connect(&fixture);
    assert_eq!(execute(&mut client, "far", "who", json!({})).to_string(), result);
}

/// Numbers whose text does not survive a parser that reads 64-bit integers and floats.
const NUMBERS: &str = r#"{"content":[],"structuredContent":{"exponent":1e2,"large":123456789012345678901234567890,"zeros":1.10}}"#;

/// The line that answers the second call of `tool`, as text: a JSON parser would hide changes of numbers.
///
/// The first call starts the server and takes another path.
fn answer_as_text(fixture: &GatewayContext, server: &str, tool: &str) -> String {
    let mut command = fixture.command();
    command.env("FAR_KEY", KEY).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut gateway = command.spawn().unwrap();
    let arguments = json!({ "agent_id": "dev", "server": server, "tool": tool, "args": {} });
    let mut stdin = gateway.stdin.take().unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut answer = |message: Value| {
        writeln!(stdin, "{message}").unwrap();
        if message.get("id").is_none() {
            return String::new();
        }
        let id = format!(r#""id":{}"#, message["id"]);
        lines.find(|line| line.contains(&id)).unwrap()
    };
    answer(initialize_request());
    answer(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let call = |id: &str| {
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    answer(call("starts"));
    let answer = answer(call("numbers"));
    drop(stdin);
    gateway.wait().unwrap();
    answer
}

#[test_case(ResponseFormat::Json; "in plain JSON")]
#[test_case(ResponseFormat::Events; "in an event stream")]
fn numbers_keep_their_text_over_http(wire: ResponseFormat) {
    let far = MockHttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let id = &request.body["id"];
        wire.respond(stream, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{NUMBERS}}}"#));
    });
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let answer = answer_as_text(&fixture, "far", "who");
    assert!(answer.contains(NUMBERS), "{answer}");
}

#[test]
fn an_event_stream_whose_lines_end_in_cr_is_read() {
    let over_lf = legacy_sse("/post");
    let far = MockHttpServer::start(move |request, stream| {
        if request.method != "GET" {
            return over_lf(request, stream);
        }
        let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        write!(stream, "{begin}event: endpoint\rdata: /post\r\r").unwrap();
        // Until the client closes the stream.
        let _ = stream.read(&mut [0]);
    });
    let entry = json!({ "url": far.url("/sse"), "transport": "sse", "startup_timeout_ms": 1_000 });
    let fixture = GatewayContext::new(&json!({ "far": entry }));
    execute(&mut fixture.connect(), "far", "who", json!({}));
    let posted = far.requests().iter().any(|request| request.path == "/post");
    assert!(posted, "the endpoint was not recognized");
}

#[derive(Clone, Copy)]
enum ResponseFormat {
    Json,
    Events,
}

impl ResponseFormat {
    fn respond(self, stream: &mut TcpStream, message: &str) {
        match self {
            Self::Json => respond(stream, "200 OK", "content-type: application/json\r\n", message),
            Self::Events => {
                let events = format!("event: message\ndata: {message}\n\n");
                respond(stream, "200 OK", "content-type: text/event-stream\r\n", &events);
            }
        }
    }
}

#[test_case("400 Bad Request"; "a bad request")]
#[test_case("500 Internal Server Error"; "a fault")]
fn a_json_rpc_error_is_kept_whatever_its_http_status(status: &'static str) {
    let far = MockHttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let error = json!({ "code": -32042, "message": "not like this", "data": { "hint": 1 } });
        let answer = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
        respond(stream, status, "content-type: application/json\r\n", &answer.to_string());
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let answer = execute(&mut connect(&fixture), "far", "who", json!({}));
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    assert_eq!(answer["error"]["data"], json!({ "hint": 1 }), "{answer}");
}

const NO_SESSION: &str = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;

#[test_case("404 Not Found", ""; "as the protocol says")]
#[test_case("400 Bad Request", NO_SESSION; "as many servers do")]
fn a_session_that_the_server_has_forgotten_is_started_again(
    status: &'static str,
    body: &'static str,
) {
    let calls = AtomicUsize::new(0);
    let far = MockHttpServer::start(move |request, stream| {
        let is_call = request.body["method"] == "tools/call";
        if is_call && calls.fetch_add(1, Ordering::SeqCst) == 1 {
            return respond(stream, status, "content-type: application/json\r\n", body);
        }
        respond_streamable(request, stream);
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let mut client = connect(&fixture);
    for _ in 0..3 {
        assert_eq!(result_text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    }
    let begun = far.requests().iter().filter(|sent| sent.body["method"] == "initialize").count();
    assert_eq!(begun, 2);
}

#[test_case("400 Bad Request"; "a bad request")]
#[test_case("500 Internal Server Error"; "a fault")]
fn an_error_without_a_request_id_ends_the_call_it_answers(status: &'static str) {
    let far = MockHttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        respond(stream, status, "content-type: application/json\r\n", NO_SESSION);
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let begun = Instant::now();
    let answer = execute(&mut connect(&fixture), "far", "who", json!({}));
    assert!(answer.to_string().to_lowercase().contains("session"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
}

#[test]
fn a_call_on_a_resumable_stream_ends_when_its_server_is_gone() {
    let far = MockHttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return respond_streamable(request, stream);
        }
        let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        write!(stream, "{begin}id: 1\ndata: \n\n").unwrap();
        // Until the server is dropped.
        let _ = stream.read(&mut [0]);
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let mut client = connect(&fixture);
    let arguments = json!({ "agent_id": "dev", "server": "far", "tool": "who", "args": {} });
    let call = client
        .send_request("tools/call", json!({ "name": "execute_tool", "arguments": arguments }));
    wait_until("the call arrives", || {
        far.requests().into_iter().find(|sent| sent.body["method"] == "tools/call")
    });
    drop(far);
    let begun = Instant::now();
    assert_eq!(error_code(&client.answer(call)), "SERVER_UNAVAILABLE");
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
}

#[test]
fn e1_a_secret_in_a_url_is_redacted_everywhere() {
    let far = MockHttpServer::start(respond_streamable);
    let url = format!("{}?key=${{FAR_KEY}}", far.url("/mcp"));
    let fixture = GatewayContext::new(&json!({ "far": { "url": url } }));
    let mut client = connect(&fixture);
    assert_eq!(result_text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    drop(far);
    for _ in 0..2 {
        let answer = execute(&mut client, "far", "who", json!({}));
        assert_eq!(error_code(&answer), "SERVER_UNAVAILABLE");
        assert!(!answer.to_string().contains(KEY), "{answer}");
    }
    drop(client);
    assert_key_not_leaked(&fixture);
}

#[test]
fn a_redirect_to_another_host_is_refused_and_nothing_is_sent_there() {
    let elsewhere = MockHttpServer::start(respond_streamable);
    let target = elsewhere.url("/mcp");
    for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {target}\r\n");
        let far = MockHttpServer::start(move |_, stream| respond(stream, status, &location, ""));
        let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
        let result = execute(&mut connect(&fixture), "far", "who", json!({}));
        assert_eq!(error_code(&result), "SERVER_UNAVAILABLE", "{status}");
        assert!(!far.requests().is_empty());
        assert_key_not_leaked(&fixture);
    }
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}

#[test]
fn a_server_that_refuses_the_key_is_unavailable_at_once() {
    let far = MockHttpServer::start(|request, stream| {
        let body = format!("no such key: {}", request.headers["authorization"]);
        respond(stream, "401 Unauthorized", "www-authenticate: Bearer\r\n", &body);
    });
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let mut client = connect(&fixture);
    let begun = Instant::now();
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(
        result_text(&result).to_lowercase(),
        "server_unavailable: server `far` is unavailable: `initialize` did not reach it: auth \
         required: authorization required: bearer. it is tried again in 1 s."
    );
    assert!(!result.to_string().contains(KEY), "{result}");
    // The back-off after a failure applies here too: the server gets at most one more request.
    let asked = far.requests().len();
    assert_eq!(error_code(&execute(&mut client, "far", "who", json!({}))), "SERVER_UNAVAILABLE");
    assert!(far.requests().len() <= asked + 1);
    assert_key_not_leaked(&fixture);
}

#[test]
fn a_server_that_was_unreachable_is_used_again_when_it_is_back() {
    let far = MockHttpServer::start(respond_streamable);
    let address = far.address();
    let fixture = GatewayContext::new(&json!({ "far": http_entry(&far.url("/mcp")) }));
    let mut client = connect(&fixture);
    assert_eq!(result_text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    drop(far);
    let gone = execute(&mut client, "far", "who", json!({}));
    assert_eq!(error_code(&gone), "SERVER_UNAVAILABLE");
    let _back = MockHttpServer::start_at(address, respond_streamable);
    wait_until("the server again", || {
        let result = execute(&mut client, "far", "who", json!({}));
        (result_text(&result) == "far {}").then_some(())
    });
    assert_key_not_leaked(&fixture);
}

fn sse_entry(url: &str) -> Value {
    let mut entry = http_entry(url);
    entry["type"] = json!("sse");
    entry
}

#[test]
fn a_server_with_only_the_sse_transport_works_and_recovers() {
    let far = MockHttpServer::start(legacy_sse("/messages?session=1"));
    let address = far.address();
    let fixture = GatewayContext::new(&json!({ "far": sse_entry(&far.url("/sse")) }));
    let mut client = connect(&fixture);
    let result = execute(&mut client, "far", "who", json!({ "a": 1 }));
    assert_eq!(result_text(&result), r#"far {"a":1}"#);
    assert_eq!(result["structuredContent"], json!({ "n": 0.1 }));
    for request in far.requests() {
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        assert_eq!(request.headers["x-both"], format!("green-{KEY}"));
        let path = if request.method == "GET" { "/sse" } else { "/messages?session=1" };
        assert_eq!(request.path, path);
    }
    drop(far);
    let gone = execute(&mut client, "far", "who", json!({}));
    assert_eq!(error_code(&gone), "SERVER_UNAVAILABLE");
    let _back = MockHttpServer::start_at(address, legacy_sse("/messages"));
    wait_until("the server again", || {
        let result = execute(&mut client, "far", "who", json!({}));
        (result_text(&result) == "far {}").then_some(())
    });
    assert_key_not_leaked(&fixture);
}

#[test]
fn an_endpoint_on_another_host_is_refused_and_nothing_is_sent_there() {
    let elsewhere = MockHttpServer::start(respond_streamable);
    let far = MockHttpServer::start(legacy_sse(&elsewhere.url("/messages")));
    let target = format!("location: {}\r\n", elsewhere.url("/sse"));
    let moved = MockHttpServer::start(move |_, stream| respond(stream, "302 Found", &target, ""));
    let servers =
        json!({ "far": sse_entry(&far.url("/sse")), "moved": sse_entry(&moved.url("/sse")) });
    let fixture = GatewayContext::new(&servers);
    let mut client = connect(&fixture);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: its endpoint is on another host, \
         which is refused. It is tried again in 1 s."
    );
    assert_eq!(error_code(&execute(&mut client, "moved", "who", json!({}))), "SERVER_UNAVAILABLE");
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    assert_key_not_leaked(&fixture);
}
