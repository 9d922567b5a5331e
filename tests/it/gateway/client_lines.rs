//! Answers to a corpus of client lines, compared as text, over stdio and HTTP and in both kinds of revision.
//!
//! `tests/corpus/client-lines.jsonl` has ordinary and odd messages and the recorded answers to them. A changed answer is
//! a change that clients see. `record_client_lines` records answers where there are none.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_case::test_case;

use super::GatewayContext;
use super::framing::start;
use crate::support::http::{HttpRequest, HttpServer, initialize_request, stateless_request};

/// Time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Time without output after which a line that is recorded counts as answered.
const QUIET_TIME: Duration = Duration::from_millis(600);

/// Messages that are sent one after the other, and all answers to them by transport.
#[derive(Deserialize, Serialize)]
struct Exchange {
    name: String,
    /// The transports that send it, as [`Transport::serves`] reads it.
    client: String,
    sent: Vec<String>,
    answers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Transport {
    Stdio,
    StdioStateless,
    /// Without the handshake and the first call of the others.
    StdioFresh,
    HttpSessions,
    HttpStateless,
}

impl Transport {
    const ALL: [Self; 5] = [
        Self::Stdio,
        Self::StdioStateless,
        Self::StdioFresh,
        Self::HttpSessions,
        Self::HttpStateless,
    ];

    fn name(self) -> String {
        format!("{self:?}")
    }

    fn serves(self, client: &str) -> bool {
        use Transport::{HttpSessions, HttpStateless, Stdio, StdioFresh, StdioStateless};
        match client {
            "any" => self != StdioFresh,
            "handshake" => matches!(self, Stdio | HttpSessions),
            "stateless" => matches!(self, StdioStateless | HttpStateless),
            "stateless-bare" => self == StdioStateless,
            "stdio" => matches!(self, Stdio | StdioStateless),
            "stdio-handshake" => self == Stdio,
            "fresh" => self == StdioFresh,
            "http" => matches!(self, HttpSessions | HttpStateless),
            other => panic!("no client is called {other}"),
        }
    }

    fn is_stateless(self) -> bool {
        matches!(self, Self::StdioStateless | Self::HttpStateless)
    }

    fn message(self, exchange: &Exchange, text: &str) -> String {
        if !self.is_stateless() || exchange.client == "stateless-bare" {
            return text.to_owned();
        }
        let meta = stateless_request(0, "x", json!({}))["params"]["_meta"].to_string();
        if text.contains(r#""_meta":{"#) {
            let fields = meta.strip_suffix('}').unwrap();
            return text.replacen(r#""_meta":{"#, &format!(r#""_meta":{fields},"#), 1);
        }
        let meta = format!(r#""params":{{"_meta":{meta}"#);
        match text.contains(r#""params":{}"#) {
            true => text.replacen(r#""params":{"#, &meta, 1),
            false => text.replacen(r#""params":{"#, &format!("{meta},"), 1),
        }
    }

    /// Answers to an exchange; waits for `expected` of them over stdio, or until it is quiet.
    fn run(
        self,
        server: &CorpusServer,
        exchange: &Exchange,
        expected: Option<usize>,
    ) -> Vec<String> {
        let sent: Vec<String> =
            exchange.sent.iter().map(|text| self.message(exchange, text)).collect();
        let answers = match self {
            Self::HttpSessions | Self::HttpStateless => {
                sent.iter().map(|body| server.post(self, body)).collect()
            }
            _ => StdioClient::start(&server.stage, self).exchange(&sent, expected),
        };
        answers.into_iter().map(|text| without_version(&text)).collect()
    }
}

fn without_version(text: &str) -> String {
    text.replace(&format!(r#""version":"{}""#, env!("CARGO_PKG_VERSION")), r#""version":"VERSION""#)
}

const WARM_CALL: &str = r#"{"jsonrpc":"2.0","id":"warm","method":"tools/call","params":{"name":"execute_tool","arguments":{"agent_id":"dev","server":"good","tool":"echo"}}}"#;

/// A client with its own `adjutant gateway`.
struct StdioClient {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl StdioClient {
    fn start(stage: &GatewayContext, transport: Transport) -> Self {
        let mut child = start(stage.command());
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut client = Self { child, stdin, lines };
        match transport {
            Transport::Stdio => {
                client.send(&initialize_request().to_string());
                client.lines.recv_timeout(ANSWER_TIMEOUT).unwrap();
                client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
                client.send(WARM_CALL);
                client.lines.recv_timeout(ANSWER_TIMEOUT).unwrap();
            }
            Transport::StdioStateless => {
                let warm = Exchange {
                    name: String::new(),
                    client: "any".to_owned(),
                    sent: Vec::new(),
                    answers: BTreeMap::new(),
                };
                client.send(&transport.message(&warm, WARM_CALL));
                client.lines.recv_timeout(ANSWER_TIMEOUT).unwrap();
            }
            _ => {}
        }
        client
    }

    fn send(&mut self, line: &str) {
        // A server that has ended the connection reads no more.
        let _ = writeln!(self.stdin, "{line}");
    }

    fn exchange(mut self, sent: &[String], expected: Option<usize>) -> Vec<String> {
        for line in sent {
            self.send(line);
        }
        let mut answers = Vec::new();
        match expected {
            Some(count) => {
                answers
                    .extend((0..count).map_while(|_| self.lines.recv_timeout(ANSWER_TIMEOUT).ok()));
            }
            None => answers.extend(std::iter::from_fn(|| self.lines.recv_timeout(QUIET_TIME).ok())),
        }
        // At the end of its input the server answers what is left and ends: nothing may be too much.
        drop(self.stdin);
        answers.extend(self.lines.iter());
        self.child.wait().unwrap();
        answers
    }
}

/// A project with a server, and an HTTP server for it.
struct CorpusServer {
    stage: GatewayContext,
    http: HttpServer,
    token: String,
    session: String,
}

impl CorpusServer {
    fn start() -> Self {
        let stage = GatewayContext::with(&["good"]);
        let token = stage.context.create_token("dev");
        let mut gateway = stage.context.adjutant(["gateway", "--http", "127.0.0.1:0"]);
        gateway.args(["--requests-per-second", "0"]);
        let http = HttpServer::start(gateway);
        let answer = http.post(&token, &initialize_request());
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let server = Self { stage, http, token, session };
        server.post(Transport::HttpSessions, &WARM_CALL.replace(r#""agent_id":"dev","#, ""));
        server
    }

    /// Status, content type and messages of the response.
    fn post(&self, transport: Transport, body: &str) -> String {
        let mut request = HttpRequest::post(&self.token, &json!({}));
        request.body = body.as_bytes().to_vec();
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if transport == Transport::HttpSessions {
            request = request
                .with_header("MCP-Protocol-Version", "2025-11-25")
                .with_header("Mcp-Session-Id", &self.session);
        } else {
            let method = text(&message["method"]).unwrap_or_else(|| "tools/call".to_owned());
            request = request
                .with_header("MCP-Protocol-Version", "2026-07-28")
                .with_header("Mcp-Method", &method);
            let params = &message["params"];
            if let Some(name) = text(&params["name"]).or_else(|| text(&params["uri"])) {
                request = request.with_header("Mcp-Name", &name);
            }
        }
        let answer = self.http.send(&request);
        let kind = answer.header("content-type").unwrap_or_default();
        let events = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let text = match kind.starts_with("text/event-stream") {
            true => events.filter(|data| !data.is_empty()).collect::<Vec<_>>().join("\n"),
            false => answer.body.clone(),
        };
        format!("{} {kind} {text}", answer.status)
    }
}

fn corpus_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/client-lines.jsonl")
}

fn read_corpus() -> Vec<Exchange> {
    let text = std::fs::read_to_string(corpus_file()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test_case(Transport::Stdio)]
#[test_case(Transport::StdioStateless)]
#[test_case(Transport::StdioFresh)]
#[test_case(Transport::HttpSessions)]
#[test_case(Transport::HttpStateless)]
fn client_lines_are_answered_as_recorded(transport: Transport) {
    let server = CorpusServer::start();
    let mut differ = Vec::new();
    for exchange in read_corpus().iter().filter(|exchange| transport.serves(&exchange.client)) {
        let expected = &exchange.answers[&transport.name()];
        let answers = transport.run(&server, exchange, Some(expected.len()));
        if answers != *expected {
            differ.push(format!("{}:\n  {answers:?}\n  {expected:?}", exchange.name));
        }
    }
    assert!(differ.is_empty(), "answers and recorded answers:\n{}", differ.join("\n"));
}

#[test]
#[ignore = "writes the corpus"]
fn record_client_lines() {
    let server = CorpusServer::start();
    let mut text = String::new();
    for mut exchange in read_corpus() {
        for transport in Transport::ALL.into_iter().filter(|t| t.serves(&exchange.client)) {
            if !exchange.answers.contains_key(&transport.name()) {
                let answers = transport.run(&server, &exchange, None);
                exchange.answers.insert(transport.name(), answers);
            }
        }
        text.push_str(&serde_json::to_string(&exchange).unwrap());
        text.push('\n');
    }
    std::fs::write(corpus_file(), text).unwrap();
}

/// Arguments with whitespace between all tokens, number text and escapes.
const ODD_ARGUMENTS: &str = "{\r\n \"z\" :\t1e2,\n\"a\":[ 123456789012345678901234567890 , -0.0,1.10 ],\r\"\\u00e9\":\"\\/\"\n}";
const ODD_RESULT: &str = "{ \"zeta\" :\t[ 1E+2 , 123456789012345678901234567890, null ],\"content\":[ {\"type\":\"hologram\",\"x\":1.10} ],\"_meta\":{\"adjutant/result\":\"{}\"},\"structuredContent\":{\"b\":1,\"a\":\"\\u00e9\"},\"isError\":false }";

/// A tool, its arguments, and the fields of the response after the id.
fn calls_with_text() -> Vec<(&'static str, String, String)> {
    let result = |text: &str| format!(r#""result":{text}"#);
    let content = |text: &str| {
        let text = Value::from(text);
        result(&format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#))
    };
    let failure = |text: &str| {
        let text = Value::from(text);
        result(&format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#))
    };
    let writes = |text: &str| json!({ "result": text }).to_string();
    let not_there = "TOOL_NOT_FOUND: server `good` has no tool `ecoh`; is `echo` meant? Call get_server_tools to see its tools.";
    let error = r#""error":{"code":-32042,"message":"not like this","data":{"hint":1}}"#.to_owned();
    vec![
        ("verbatim", ODD_ARGUMENTS.to_owned(), content(&ODD_ARGUMENTS.replace(['\r', '\n'], " "))),
        ("writes", writes(ODD_RESULT), result(ODD_RESULT)),
        ("writes", writes("{\r}"), result("{ }")),
        ("says_complete", "{}".to_owned(), result(r#"{"content":[],"resultType":"complete"}"#)),
        ("fail", "{}".to_owned(), failure("no")),
        ("protocol_error", "{}".to_owned(), error),
        ("ecoh", "{}".to_owned(), failure(not_there)),
    ]
}

/// The response in revision 2026-07-28, which requires `resultType`.
fn with_result_type(fields: &str) -> String {
    match fields.strip_prefix(r#""result":"#).and_then(|result| result.strip_suffix('}')) {
        Some("{ ") => r#""result":{ "resultType":"complete"}"#.to_owned(),
        Some(result) if !result.contains("resultType") => {
            format!(r#""result":{result},"resultType":"complete"}}"#)
        }
        _ => fields.to_owned(),
    }
}

/// Unknown `_meta` sends a request through rmcp; without it, only those of HTTP sessions go there.
#[test_case("" ; "directly")]
#[test_case(r#","_meta":{"x":1}"#; "with unknown meta")]
fn every_transport_keeps_the_text_of_arguments_and_results(meta: &str) {
    let server = CorpusServer::start();
    for transport in Transport::ALL.into_iter().filter(|t| *t != Transport::StdioFresh) {
        for (tool, args, fields) in calls_with_text() {
            // A line has no LF.
            let is_http = matches!(transport, Transport::HttpSessions | Transport::HttpStateless);
            let args = if is_http { args } else { args.replace('\n', "\r") };
            let arguments =
                format!(r#"{{"agent_id":"dev","server":"good","tool":"{tool}","args":{args}}}"#);
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"execute_tool","arguments":{arguments}{meta}}}}}"#
            );
            let exchange = Exchange {
                name: String::new(),
                client: "any".to_owned(),
                sent: vec![call],
                answers: BTreeMap::new(),
            };
            let answers = transport.run(&server, &exchange, Some(1));
            let fields = if transport.is_stateless() { with_result_type(&fields) } else { fields };
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,{fields}}}"#);
            let texts: Vec<&str> = answers
                .iter()
                .map(|text| text.find('{').map_or("", |start| text[start..].trim_end()))
                .collect();
            assert_eq!(texts, [expected], "{transport:?} {tool}");
        }
    }
    assert_equal_audit_entries(&server.stage);
}

/// Asserts that the entries of one call are equal on all transports except for the time, the id and the caller's proof.
fn assert_equal_audit_entries(stage: &GatewayContext) {
    let mut by_tool: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut entry in stage.context.audit_entries() {
        if entry["operation"] != "execute_tool" || entry["call_id"] != "7" {
            continue;
        }
        for differs in ["seq", "time", "prev", "duration_ms"] {
            entry.as_object_mut().unwrap().remove(differs);
        }
        entry["caller"].as_object_mut().unwrap().remove("known_by");
        let key = format!("{} {}", entry["tool"], entry["request_bytes"]);
        by_tool.entry(key).or_default().push(entry);
    }
    assert_eq!(by_tool.len(), calls_with_text().len(), "{by_tool:?}");
    for (tool, entries) in by_tool {
        assert_eq!(entries.len(), 4, "{tool}: {entries:?}");
        assert!(entries.windows(2).all(|pair| pair[0] == pair[1]), "{tool}: {entries:?}");
    }
}
