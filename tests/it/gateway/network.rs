//! Servers on the network: every header there, none anywhere else, and back when they are back.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::http_server::{HttpServer, events, respond, streamable};
use super::{Stage, code, execute, until};
use crate::support::mcp::{McpClient, text};

const KEY: &str = "s3cret-key-of-the-far-server";

fn entry(url: &str) -> Value {
    json!({ "url": url, "headers": {
        "Authorization": "Bearer ${FAR_KEY}", "X-Team": "blue", "X-Both": "${TEAM:-green}-${FAR_KEY}",
    } })
}

/// The gateway with the variable set and everything it logs in a file.
fn connect(stage: &Stage) -> McpClient {
    let log = File::create(stage.context.root().join("log")).unwrap();
    let mut command = stage.command();
    command.env("FAR_KEY", KEY).env("RUST_LOG", "trace");
    McpClient::connect_logging(command, log)
}

fn nothing_told(stage: &Stage) {
    for file in ["log", "data/audit.jsonl"] {
        let said = std::fs::read_to_string(stage.context.root().join(file)).unwrap();
        assert!(!said.contains(KEY), "{file}: {said}");
    }
}

#[test]
fn a_server_on_the_network_gets_every_header_with_every_request() {
    let far = HttpServer::start(streamable);
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp?tenant=1")) }));
    let mut client = connect(&stage);
    let listed = client.call("get_server_tools", json!({ "agent_id": "dev", "server": "far" }));
    assert_eq!(listed["structuredContent"]["tools"][0]["name"], "who");
    let result = execute(&mut client, "far", "who", json!({ "a": 1 }));
    assert_eq!(text(&result), r#"far {"a":1}"#);
    assert_eq!(result["structuredContent"], json!({ "n": 0.1 }));
    let metadata = json!({ "agent_id": "dev", "include_metadata": true });
    let listed = client.call("list_servers", metadata).to_string();
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
    nothing_told(&stage);
}

/// With everything that a type could lose: order, forms of numbers, fields that no revision knows.
const ODD: &str = r#"{"zeta":[1,{"unknown":null}],"content":[{"type":"text","text":"ü\u0000","extra":1},{"type":"resource","resource":{"uri":"x://y","blob":"aGk=","more":true}}],"structuredContent":{"b":1,"a":{"0.1":0.1,"big":1e+300,"whole":12345678901234567}},"_meta":{"example.com/trace":"t","adjutant/packed":2,"adjutant/result":{"content":[]}},"isError":false}"#;
/// A kind of content that no revision knows.
const HOLOGRAM: &str = r#"{"content":[{"type":"hologram","depth":3}],"isError":false}"#;

#[test_case(Wire::Json, ODD; "in plain JSON")]
#[test_case(Wire::Json, HOLOGRAM; "of a new kind, in plain JSON")]
#[test_case(Wire::Events, ODD; "in an event stream")]
#[test_case(Wire::Events, HOLOGRAM; "of a new kind, in an event stream")]
fn a_result_arrives_byte_for_byte(wire: Wire, result: &'static str) {
    let far = HttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let id = &request.body["id"];
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        wire.respond(stream, &answer);
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let mut client = connect(&stage);
    assert_eq!(execute(&mut client, "far", "who", json!({})).to_string(), result);
}

#[derive(Clone, Copy)]
enum Wire {
    Json,
    Events,
}

impl Wire {
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
fn an_error_in_the_protocols_words_stays_one_whatever_its_status(status: &'static str) {
    let far = HttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let error = json!({ "code": -32042, "message": "not like this", "data": { "hint": 1 } });
        let answer = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
        respond(stream, status, "content-type: application/json\r\n", &answer.to_string());
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let answer = execute(&mut connect(&stage), "far", "who", json!({}));
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    assert_eq!(answer["error"]["data"], json!({ "hint": 1 }), "{answer}");
}

const NO_SESSION: &str = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;

#[test_case("404 Not Found", ""; "as the protocol says")]
#[test_case("400 Bad Request", NO_SESSION; "as many servers do")]
fn a_session_that_the_server_has_forgotten_is_begun_again(
    status: &'static str,
    body: &'static str,
) {
    let calls = AtomicUsize::new(0);
    let far = HttpServer::start(move |request, stream| {
        let is_call = request.body["method"] == "tools/call";
        if is_call && calls.fetch_add(1, Ordering::SeqCst) == 1 {
            return respond(stream, status, "content-type: application/json\r\n", body);
        }
        streamable(request, stream);
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let mut client = connect(&stage);
    for _ in 0..3 {
        assert_eq!(text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    }
    let begun = far.requests().iter().filter(|sent| sent.body["method"] == "initialize").count();
    assert_eq!(begun, 2);
}

#[test_case("400 Bad Request"; "a bad request")]
#[test_case("500 Internal Server Error"; "a fault")]
fn an_error_that_names_no_request_ends_the_call_it_answers(status: &'static str) {
    let far = HttpServer::start(move |request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        respond(stream, status, "content-type: application/json\r\n", NO_SESSION);
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let begun = Instant::now();
    let answer = execute(&mut connect(&stage), "far", "who", json!({}));
    assert!(answer.to_string().to_lowercase().contains("session"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
}

#[test]
fn a_call_ends_soon_after_its_server_is_gone_also_where_its_stream_could_be_resumed() {
    let far = HttpServer::start(|request, stream| {
        if request.body["method"] != "tools/call" {
            return streamable(request, stream);
        }
        let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        write!(stream, "{begin}id: 1\ndata: \n\n").unwrap();
        // Until the server is gone.
        let _ = stream.read(&mut [0]);
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let mut client = connect(&stage);
    let arguments = json!({ "agent_id": "dev", "server": "far", "tool": "who", "args": {} });
    let call =
        client.begin("tools/call", json!({ "name": "execute_tool", "arguments": arguments }));
    until("the call arrives", || {
        far.requests().into_iter().find(|sent| sent.body["method"] == "tools/call")
    });
    drop(far);
    let begun = Instant::now();
    assert_eq!(code(&client.answer(call)), "SERVER_UNAVAILABLE");
    assert!(begun.elapsed() < Duration::from_secs(30), "not at the deadline");
}

#[test]
fn e1_a_secret_in_an_address_is_told_nobody() {
    let far = HttpServer::start(streamable);
    let url = format!("{}?key=${{FAR_KEY}}", far.url("/mcp"));
    let stage = Stage::new(&json!({ "far": { "url": url } }));
    let mut client = connect(&stage);
    assert_eq!(text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    drop(far);
    for _ in 0..2 {
        let answer = execute(&mut client, "far", "who", json!({}));
        assert_eq!(code(&answer), "SERVER_UNAVAILABLE");
        assert!(!answer.to_string().contains(KEY), "{answer}");
    }
    drop(client);
    nothing_told(&stage);
}

#[test]
fn a_redirect_to_another_host_is_refused_and_nothing_is_sent_there() {
    let elsewhere = HttpServer::start(streamable);
    let target = elsewhere.url("/mcp");
    for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {target}\r\n");
        let far = HttpServer::start(move |_, stream| respond(stream, status, &location, ""));
        let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
        let result = execute(&mut connect(&stage), "far", "who", json!({}));
        assert_eq!(code(&result), "SERVER_UNAVAILABLE", "{status}");
        assert!(!far.requests().is_empty());
        nothing_told(&stage);
    }
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}

#[test]
fn a_server_that_refuses_the_key_is_unavailable_at_once() {
    let far = HttpServer::start(|request, stream| {
        let body = format!("no such key: {}", request.headers["authorization"]);
        respond(stream, "401 Unauthorized", "www-authenticate: Bearer\r\n", &body);
    });
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let mut client = connect(&stage);
    let begun = Instant::now();
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(text(&result).to_lowercase().contains("auth"), "{result}");
    assert!(!result.to_string().contains(KEY), "{result}");
    // Asked again, it is not asked again: the pause after a failure holds here too.
    let asked = far.requests().len();
    assert_eq!(code(&execute(&mut client, "far", "who", json!({}))), "SERVER_UNAVAILABLE");
    assert!(far.requests().len() <= asked + 1);
    nothing_told(&stage);
}

#[test]
fn a_server_that_went_away_is_used_again_when_it_is_back() {
    let far = HttpServer::start(streamable);
    let address = far.address();
    let stage = Stage::new(&json!({ "far": entry(&far.url("/mcp")) }));
    let mut client = connect(&stage);
    assert_eq!(text(&execute(&mut client, "far", "who", json!({}))), "far {}");
    drop(far);
    let gone = execute(&mut client, "far", "who", json!({}));
    assert_eq!(code(&gone), "SERVER_UNAVAILABLE");
    let _back = HttpServer::start_at(address, streamable);
    until("the server again", || {
        let result = execute(&mut client, "far", "who", json!({}));
        (text(&result) == "far {}").then_some(())
    });
    nothing_told(&stage);
}

fn old(url: &str) -> Value {
    let mut entry = entry(url);
    entry["type"] = json!("sse");
    entry
}

#[test]
fn a_server_with_the_older_transport_alone_works_too_and_comes_back() {
    let far = HttpServer::start(events("/messages?session=1"));
    let address = far.address();
    let stage = Stage::new(&json!({ "far": old(&far.url("/sse")) }));
    let mut client = connect(&stage);
    let result = execute(&mut client, "far", "who", json!({ "a": 1 }));
    assert_eq!(text(&result), r#"far {"a":1}"#);
    assert_eq!(result["structuredContent"], json!({ "n": 0.1 }));
    for request in far.requests() {
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        assert_eq!(request.headers["x-both"], format!("green-{KEY}"));
        let path = if request.method == "GET" { "/sse" } else { "/messages?session=1" };
        assert_eq!(request.path, path);
    }
    drop(far);
    let gone = execute(&mut client, "far", "who", json!({}));
    assert_eq!(code(&gone), "SERVER_UNAVAILABLE");
    let _back = HttpServer::start_at(address, events("/messages"));
    until("the server again", || {
        let result = execute(&mut client, "far", "who", json!({}));
        (text(&result) == "far {}").then_some(())
    });
    nothing_told(&stage);
}

#[test]
fn an_endpoint_on_another_host_is_refused_and_nothing_is_sent_there() {
    let elsewhere = HttpServer::start(streamable);
    let far = HttpServer::start(events(&elsewhere.url("/messages")));
    let target = format!("location: {}\r\n", elsewhere.url("/sse"));
    let moved = HttpServer::start(move |_, stream| respond(stream, "302 Found", &target, ""));
    let servers = json!({ "far": old(&far.url("/sse")), "moved": old(&moved.url("/sse")) });
    let stage = Stage::new(&servers);
    let mut client = connect(&stage);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(text(&result).contains("another host"), "{result}");
    assert_eq!(code(&execute(&mut client, "moved", "who", json!({}))), "SERVER_UNAVAILABLE");
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    nothing_told(&stage);
}
