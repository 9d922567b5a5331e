//! Property tests of message framing: on every transport, any content is one message in both directions.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};
use std::sync::Mutex;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use test_case::test_case;

use super::framing::{
    HttpGatewayClient, HttpRevision, execute_tool_line, json_values, lenient_server_project,
    serialize_with_whitespace, start, whitespace_between_tokens,
};
use super::mock_http_server::{MockHttpServer, ReceivedRequest, mcp_response, respond};
use super::{GatewayContext, faulty};
use crate::support::claude_context::{ClaudeContext, NEW, report};
use crate::support::http::initialize_request;

/// A transport between the gateway and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Stdio,
    StreamableHttp,
    Sse,
}

/// A gateway project with a server that returns the result given in the arguments.
struct TransportProject {
    fixture: GatewayContext,
    server: Option<MockHttpServer>,
    tool: &'static str,
}

impl TransportProject {
    fn new(transport: Transport) -> Self {
        if transport == Transport::Stdio {
            let entry = json!({ "command": faulty(), "args": ["universal"] });
            return Self {
                fixture: GatewayContext::new(&json!({ "far": entry })),
                server: None,
                tool: "writes",
            };
        }
        let stream: Mutex<Option<TcpStream>> = Mutex::new(None);
        let far = MockHttpServer::start(move |request, connection| match transport {
            Transport::Sse => answer_on_stream(request, connection, &stream),
            Transport::Stdio | Transport::StreamableHttp => answer_in_body(request, connection),
        });
        let entry = match transport {
            Transport::Sse => json!({ "type": "sse", "url": far.url("/sse") }),
            Transport::Stdio | Transport::StreamableHttp => json!({ "url": far.url("/mcp") }),
        };
        Self {
            fixture: GatewayContext::new(&json!({ "far": entry })),
            server: Some(far),
            tool: "who",
        }
    }
}

/// The server's response: the text of the argument `result` verbatim, or the default answer without that argument.
fn response_to(request: &ReceivedRequest) -> Option<String> {
    let arguments = &request.body["params"]["arguments"];
    match arguments["result"].as_str() {
        Some(result) => {
            Some(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.body["id"]))
        }
        None => mcp_response(&request.body).map(|answer| answer.to_string()),
    }
}

fn answer_in_body(request: &ReceivedRequest, connection: &mut TcpStream) {
    match response_to(request) {
        _ if request.method != "POST" => respond(connection, "405 Method Not Allowed", "", ""),
        Some(text) => respond(connection, "200 OK", "content-type: application/json\r\n", &text),
        None => respond(connection, "202 Accepted", "", ""),
    }
}

fn answer_on_stream(
    request: &ReceivedRequest,
    connection: &mut TcpStream,
    stream: &Mutex<Option<TcpStream>>,
) {
    if request.method == "GET" {
        let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        *stream.lock().unwrap() = Some(connection.try_clone().unwrap());
        write!(connection, "{begin}event: endpoint\ndata: /messages\n\n").unwrap();
        // Blocks until the gateway closes the stream.
        let _ = std::io::Read::read(connection, &mut [0]);
        return;
    }
    respond(connection, "202 Accepted", "", "");
    if let (Some(text), Some(stream)) = (response_to(request), &mut *stream.lock().unwrap()) {
        // A line break in the message becomes a break between two `data` lines.
        let data = text.replace("\r\n", "\n").replace(['\r', '\n'], "\ndata: ");
        let _ = write!(stream, "event: message\ndata: {data}\n\n");
    }
}

/// A client that checks the bytes of every line.
struct RawClient {
    gateway: Child,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl RawClient {
    fn connect(fixture: &GatewayContext) -> Self {
        let mut gateway = start(fixture.command());
        let stdout = BufReader::new(gateway.stdout.take().unwrap());
        let mut client = Self { gateway, stdout, next_id: 1 };
        client.send(&initialize_request().to_string());
        assert_eq!(client.next_message()["id"], 1);
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.gateway.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns the next message; its line must contain no CR.
    fn next_message(&mut self) -> Value {
        let mut raw = Vec::new();
        assert_ne!(self.stdout.read_until(b'\n', &mut raw).unwrap(), 0, "it hung up");
        assert!(!raw.contains(&b'\r'), "{}", String::from_utf8_lossy(&raw));
        serde_json::from_slice(&raw).unwrap()
    }

    /// Calls a tool and returns its response, which must be the next message that is not a notification.
    fn call(&mut self, tool: &str, args: &str) -> Value {
        self.next_id += 1;
        let line = execute_tool_line(self.next_id, tool, args);
        let line = line.replacen(r#""main""#, r#""dev""#, 1).replacen(r#""good""#, r#""far""#, 1);
        self.send(&line);
        loop {
            let message = self.next_message();
            if message.get("method").is_none() {
                assert_eq!(message["id"], self.next_id, "{message}");
                return message;
            }
        }
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        drop(self.gateway.stdin.take());
        let _ = self.gateway.wait();
    }
}

fn runner_with_cases(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

#[test_case(Transport::StreamableHttp)]
#[test_case(Transport::Sse)]
fn any_arguments_are_posted_as_one_message_with_equal_content(transport: Transport) {
    let wire = TransportProject::new(transport);
    let client = Mutex::new(RawClient::connect(&wire.fixture));
    let sent = Mutex::new(Vec::new());
    let strategy =
        (json_values(), whitespace_between_tokens(&["", " ", "\t", "\r", "\r\r", " \r\t"]));
    runner_with_cases(40)
        .run(&strategy, |(value, spaces)| {
            let args = json!({ "v": value });
            client.lock().unwrap().call(wire.tool, &serialize_with_whitespace(&args, &spaces));
            sent.lock().unwrap().push(args);
            Ok(())
        })
        .unwrap();
    let posted = wire.server.as_ref().unwrap().requests();
    let posted: Vec<&ReceivedRequest> =
        posted.iter().filter(|request| request.method == "POST").collect();
    for ReceivedRequest { text, .. } in &posted {
        let line = match transport {
            // Posted without LF.
            Transport::Sse => Some(text.as_str()),
            Transport::Stdio | Transport::StreamableHttp => text.strip_suffix('\n'),
        };
        assert!(line.is_some_and(|line| !line.contains(['\r', '\n'])), "not one line: {text:?}");
    }
    let calls = posted.iter().filter(|request| request.body["method"] == "tools/call");
    let arrived: Vec<Value> = calls.map(|call| call.body["params"]["arguments"].clone()).collect();
    assert_eq!(arrived, sent.into_inner().unwrap());
}

#[test_case(Transport::Stdio)]
#[test_case(Transport::StreamableHttp)]
#[test_case(Transport::Sse)]
fn any_result_comes_back_as_one_message_with_equal_content(transport: Transport) {
    let wire = TransportProject::new(transport);
    let client = Mutex::new(RawClient::connect(&wire.fixture));
    // Over stdio LF ends the server's line; on other transports LF may occur between tokens.
    let between: &'static [&'static str] = match transport {
        Transport::Stdio => &["", " ", "\t", "\r", "\r\r", " \r\t"],
        Transport::StreamableHttp | Transport::Sse => &["", " ", "\t", "\r", "\n", "\r\n", "\n\n"],
    };
    runner_with_cases(60)
        .run(&(json_values(), whitespace_between_tokens(between)), |(value, spaces)| {
            let result = json!({ "content": [{ "type": "text", "text": "t" }], "x": value });
            let args = json!({ "result": serialize_with_whitespace(&result, &spaces) }).to_string();
            let answer = client.lock().unwrap().call(wire.tool, &args);
            prop_assert_eq!(&answer["result"]["x"], &value, "{}", answer);
            prop_assert_eq!(&answer["result"]["content"], &result["content"]);
            Ok(())
        })
        .unwrap();
}

/// Over HTTP a line break in an event would begin another event.
#[test_case(HttpRevision::Sessions)]
#[test_case(HttpRevision::Stateless)]
fn any_result_reaches_an_http_client_as_one_message(revision: HttpRevision) {
    let project = lenient_server_project();
    let http = HttpGatewayClient::spawn_piped(&project, revision);
    let between: &'static [&'static str] = &["", " ", "\t", "\r", "\r\r", " \r\t"];
    runner_with_cases(40)
        .run(&(json_values(), whitespace_between_tokens(between)), |(value, spaces)| {
            let result = json!({ "content": [{ "type": "text", "text": "t" }], "x": value });
            let args = json!({ "result": serialize_with_whitespace(&result, &spaces) }).to_string();
            let response = http.server.send(&http.request(&http.body("writes", &args)));
            prop_assert!(!response.body.contains('\r'), "{:?}", response.body);
            let messages = response.body.lines().filter(|line| line.contains("jsonrpc"));
            prop_assert_eq!(messages.count(), 1, "{}", response.body);
            prop_assert_eq!(&response.message()["result"]["x"], &value);
            Ok(())
        })
        .unwrap();
}

/// Characters that are no whitespace in JSON, but that some programs take for the end of a line.
const OTHER_LINE_BREAKS: &[&str] = &["\u{b}", "\u{c}", "\u{1c}", "\u{85}", "\u{2028}", "\u{2029}"];

/// A message with one of these characters between two tokens, and the whitespace that JSON allows between the others.
fn message_with_other_line_break(message: &Value, spaces: &[&str], line_break: &str) -> String {
    serialize_with_whitespace(message, &[spaces, &[line_break]].concat())
}

#[test]
fn another_line_break_between_any_two_tokens_is_one_parse_error_over_stdio() {
    // At most ten parse errors are answered per second and connection.
    for _ in 0..4 {
        let project = lenient_server_project();
        let client = Mutex::new(RawClient::connect(&project));
        let spaces = whitespace_between_tokens(&["", " ", "\t", "\r"]);
        let line_breaks = proptest::sample::select(OTHER_LINE_BREAKS);
        runner_with_cases(9)
            .run(&(json_values(), spaces, line_breaks), |(value, spaces, line_break)| {
                let mut client = client.lock().unwrap();
                client.next_id += 1;
                let args = json!({ "v": value }).to_string();
                let line = execute_tool_line(client.next_id, "delete_all", &args);
                let message = serde_json::from_str(&line).unwrap();
                client.send(&message_with_other_line_break(&message, &spaces, line_break));
                let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
                client.send(&ping.to_string());
                let (error, pong) = (client.next_message(), client.next_message());
                prop_assert_eq!(&error["error"]["code"], -32700, "{}", error);
                prop_assert_eq!(&error["id"], client.next_id, "{}", error);
                prop_assert_eq!(&pong["id"], "p", "one answer: {}", pong);
                Ok(())
            })
            .unwrap();
        assert_nothing_ran(&project, 9);
    }
}

#[test_case(HttpRevision::Sessions)]
#[test_case(HttpRevision::Stateless)]
fn another_line_break_between_any_two_tokens_is_one_parse_error_over_http(revision: HttpRevision) {
    let project = lenient_server_project();
    let http = HttpGatewayClient::spawn_piped(&project, revision);
    let spaces = whitespace_between_tokens(&["", " ", "\t", "\r", "\n", "\r\n"]);
    let line_breaks = proptest::sample::select(OTHER_LINE_BREAKS);
    runner_with_cases(60)
        .run(&(json_values(), spaces, line_breaks), |(value, spaces, line_break)| {
            let body = http.body("delete_all", &json!({ "v": value }).to_string());
            let message = serde_json::from_str(&body).unwrap();
            let body = message_with_other_line_break(&message, &spaces, line_break);
            let response = http.server.send(&http.request(&body));
            let error = response.message();
            prop_assert_eq!((response.status, &error["error"]["code"]), (400, &json!(-32700)));
            prop_assert_eq!(&error["id"], 7, "{}", error);
            Ok(())
        })
        .unwrap();
    assert_nothing_ran(&project, 60);
}

/// Asserts that no call was allowed, and that each of the messages has one audit entry.
fn assert_nothing_ran(project: &GatewayContext, messages: usize) {
    assert!(!project.context.root().join("deleted").exists(), "the denied tool ran");
    let entries = project.context.audit_entries();
    let refused = entries.iter().filter(|entry| {
        (&entry["code"], &entry["tool"]) == (&json!("PARSE_ERROR"), &json!("delete_all"))
    });
    assert_eq!(refused.count(), messages);
    assert!(!entries.iter().any(|entry| entry["decision"] == "allow"), "{entries:?}");
}

/// In both directions between the real `claude` and a private server of its agent.
#[test]
fn any_content_passes_between_an_agent_and_its_private_server() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let agent = format!(
        "---\nname: worker\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         mcp_servers:\n  own: {{ command: {}, args: [universal] }}\n---\nYou use it.\n",
        faulty()
    );
    fixture.agent("worker", &agent);
    let mut runner = runner_with_cases(1);
    let mut sample = || {
        let strategy = (json_values(), whitespace_between_tokens(&["", " ", "\t", "\r", "\r\r"]));
        strategy.new_tree(&mut runner).unwrap().current()
    };
    let (mut script, mut expected) = (String::new(), Vec::new());
    for _ in 0..10 {
        let (value, spaces) = sample();
        let args = json!({ "v": value });
        script.push_str(&format!("CALL mcp__own__echo {args}\n"));
        expected.push(args);
        let text = json!({ "v": value }).to_string();
        let result = json!({ "content": [{ "type": "text", "text": text }], "x": value });
        let args = json!({ "result": serialize_with_whitespace(&result, &spaces) });
        script.push_str(&format!("CALL mcp__own__writes {args}\n"));
        expected.push(json!({ "v": value }));
    }
    script.push_str("CALL mcp__own__received {}\n");
    let output = fixture.adjutant(["run", "worker", &script, "--json"]).output().unwrap();
    let report = report(&output);
    let requests = fixture.model.requests();
    let told = tool_results(&requests.last().unwrap().body);
    let (received, told) = told.split_last().unwrap_or_else(|| panic!("{report}"));
    let told: Vec<Value> = told.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(told, expected, "{report}");
    let received: Vec<Value> = serde_json::from_str(received).unwrap();
    let calls = received.iter().filter(|call| call["method"] == "tools/call" || call.is_string());
    assert_eq!(calls.count(), expected.len(), "{received:?}");
}

/// Returns the texts of the tool results in a request to the model, in order.
fn tool_results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    let text = |block: &Value| match &block["content"] {
        Value::String(text) => text.clone(),
        content => content[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    results.map(text).collect()
}
