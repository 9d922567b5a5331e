//! A faulty MCP server over stdio. The first argument selects the fault.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test helper says what is wrong by failing"
)]

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, io, process, thread};

use serde_json::value::RawValue;
use serde_json::{Value, json};

static CALLS: AtomicU64 = AtomicU64::new(0);
/// Set once mode `grows` lists its additional tool.
static HAS_GROWN: AtomicBool = AtomicBool::new(false);
/// Set by tools after which the server no longer reads stdin.
static STOPS_READING: AtomicBool = AtomicBool::new(false);
static CANCELLED: AtomicU64 = AtomicU64::new(0);
/// Every message received; lines that are not JSON are stored as strings.
static RECEIVED: Mutex<Vec<Value>> = Mutex::new(Vec::new());
/// The last message as it was received.
static LAST_LINE: Mutex<String> = Mutex::new(String::new());
/// The same text as in `tests/it/gateway/network.rs`.
const NUMBERS: &str = r#"{"content":[],"structuredContent":{"exponent":1e2,"large":123456789012345678901234567890,"zeros":1.10}}"#;
/// Parameters of the last `logging/setLevel`.
static LEVEL: Mutex<Value> = Mutex::new(Value::Null);

fn main() {
    let mode = env::args().nth(1).unwrap_or_else(|| "good".to_owned());
    match mode.as_str() {
        "dies" => {
            eprintln!("no licence found, token {}", env::var("TOKEN").unwrap_or_default());
            process::exit(3);
        }
        "mute" => drop(io::copy(&mut io::stdin(), &mut io::sink())),
        "deaf" => loop {
            thread::park();
        },
        "floods" => flood(100 << 20),
        _ => {}
    }
    serve(&mode);
    if mode == "stubborn" {
        loop {
            thread::park();
        }
    }
}

fn flood(bytes: usize) {
    let line = [vec![b'x'; 1023], b"\n".to_vec()].concat();
    for _ in 0..bytes / 2048 {
        io::stdout().write_all(&line).unwrap();
        io::stderr().write_all(&line).unwrap();
    }
}

fn serve(mode: &str) {
    let (answers, to_ask): (Sender<Value>, Receiver<Value>) = channel();
    let to_ask = Arc::new(Mutex::new(to_ask));
    let universal = mode == "universal";
    for line in split_lines(io::stdin().lock(), universal) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            // The Python SDK logs such a line; here a test must see that the line reached the server.
            RECEIVED.lock().unwrap().push(Value::String(line));
            continue;
        };
        RECEIVED.lock().unwrap().push(message.clone());
        line.trim_end().clone_into(&mut LAST_LINE.lock().unwrap());
        if mode == "chatty" {
            write_raw(format!("DEBUG received {message}\n").as_bytes());
            send(&json!({ "level": "debug", "received": message, "id": message["id"] }));
        }
        if mode == "records" {
            record_method(&message);
        }
        if STOPS_READING.load(Ordering::SeqCst) {
            loop {
                thread::park();
            }
        }
        match message["method"].as_str() {
            Some("initialize") => answer(
                &message,
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": { "listChanged": true }, "resources": {}, "prompts": {}, "logging": {} },
                    "serverInfo": { "name": "faulty", "version": "1" },
                }),
            ),
            Some("notifications/initialized") if mode == "dies-after-handshake" => process::exit(4),
            Some("notifications/initialized") if mode == "talkative" => {
                send_log_message(&json!({}));
            }
            Some("logging/setLevel") => {
                *LEVEL.lock().unwrap() = message["params"]["level"].clone();
                answer(&message, json!({}));
            }
            Some("notifications/cancelled") => {
                CANCELLED.fetch_add(1, Ordering::SeqCst);
            }
            Some("tools/list") => {
                answer(&message, tools(mode, &message));
                if mode == "dies-after-list" {
                    process::exit(5);
                }
            }
            Some("tools/call") => {
                let to_ask = to_ask.clone();
                thread::spawn(move || match message["params"]["name"].as_str() {
                    Some("verbatim") => answer(&message, verbatim_arguments(&line)),
                    _ => call(&message, &to_ask),
                });
            }
            Some("resources/list") => answer(&message, resources(mode)),
            Some("resources/templates/list") => answer(&message, templates(mode)),
            Some("resources/read") => answer(
                &message,
                json!({ "contents": [
                    { "uri": message["params"]["uri"], "text": "the content", "extra": 1 },
                ]}),
            ),
            Some("prompts/list") => answer(&message, json!({ "prompts": [{ "name": "greet" }] })),
            Some("prompts/get") => {
                let name = message["params"]["name"].as_str().unwrap().to_owned();
                let text = env::args().nth(2).unwrap_or(name);
                let content = json!({ "type": "text", "text": text });
                answer(&message, json!({ "messages": [{ "role": "user", "content": content }] }));
            }
            Some(_) => {}
            None => drop(answers.send(message)),
        }
    }
}

/// Lines of a stream. With universal newlines (as in Python's text streams), CR also ends a line.
fn split_lines(mut input: impl BufRead, universal: bool) -> impl Iterator<Item = String> {
    let mut waiting: Vec<String> = Vec::new();
    std::iter::from_fn(move || {
        while waiting.is_empty() {
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).unwrap() == 0 {
                return None;
            }
            let line = String::from_utf8(line).unwrap();
            waiting = match universal {
                true => {
                    line.split(['\r', '\n']).filter(|l| !l.is_empty()).map(str::to_owned).collect()
                }
                false => vec![line],
            };
        }
        Some(waiting.remove(0))
    })
}

/// In mode `records`: `faulty://<second argument>` and one resource per line of the file `listed-<second argument>`.
fn resources(mode: &str) -> Value {
    let mut names = vec!["one".to_owned()];
    if mode == "records" {
        let name = env::args().nth(2).unwrap();
        let listed = fs::read_to_string(format!("listed-{name}")).unwrap_or_default();
        names = listed.lines().map(str::to_owned).collect();
        names.insert(0, name);
    }
    let resource = |name: &String| json!({ "uri": format!("faulty://{name}"), "name": name, "mimeType": "text/plain" });
    json!({ "resources": names.iter().map(resource).collect::<Vec<_>>() })
}

fn templates(mode: &str) -> Value {
    if mode != "records" {
        return json!({ "resourceTemplates": [] });
    }
    let name = env::args().nth(2).unwrap();
    let uri = format!("faulty://{name}/{{id}}");
    json!({ "resourceTemplates": [{ "uriTemplate": uri, "name": name }] })
}

/// Appends the method of a message to the file `asked-<second argument>`.
fn record_method(message: &Value) {
    let path = format!("asked-{}", env::args().nth(2).unwrap());
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{}", message["method"].as_str().unwrap_or_default()).unwrap();
}

fn tools(mode: &str, message: &Value) -> Value {
    let cursor = message["params"]["cursor"].as_str();
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    match mode {
        "circle" => json!({ "tools": [tool("echo")], "nextCursor": "again" }),
        "endless" => {
            let page: u64 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0) + 1;
            json!({ "tools": [tool(&format!("t{page}"))], "nextCursor": page.to_string() })
        }
        "many" => {
            json!({ "tools": (0..10_000).map(|n| tool(&format!("t{n}"))).collect::<Vec<_>>() })
        }
        "long-name" => json!({ "tools": [tool(&"n".repeat(10_000)), tool("echo")] }),
        "no-list" => json!({ "tools": "no" }),
        "named" => {
            json!({ "tools": env::args().skip(2).map(|name| tool(&name)).collect::<Vec<_>>() })
        }
        "grows" if HAS_GROWN.load(Ordering::SeqCst) => {
            json!({ "tools": [tool("announce"), tool("echo"), tool("late")] })
        }
        "grows" => json!({ "tools": [tool("announce"), tool("echo")] }),
        "pages" if cursor.is_none() => json!({ "tools": [tool("first")], "nextCursor": "two" }),
        "pages" => json!({ "tools": [tool("echo")] }),
        _ => json!({ "tools": good_tools() }),
    }
}

fn good_tools() -> Vec<Value> {
    let described = env::args().nth(2).and_then(|file| fs::read_to_string(file).ok());
    let names = [
        "echo",
        "sleep",
        "die",
        "pid",
        "env",
        "odd",
        "fail",
        "protocol_error",
        "progress",
        "ask",
        "wrong_id",
        "twice",
        "garbage",
        "invalid_utf8",
        "cancelled",
        "count",
        "announce",
        "log",
        "late_log",
        "level",
        "quotes",
        "huge",
        "text_result",
        "nothing",
        "half_a_character",
        "dies_in_a_line",
        "raw",
        "asks_for_ever",
        "asks_without_reading",
        "stop_reading",
        "numbers",
        "run_subagent",
        "received",
        "delete_all",
        "forges",
        "writes",
        "says_complete",
        "verbatim",
    ];
    let tool = |name: &str| {
        json!({
            "name": name, "title": format!("The {name}"),
            "description": described.clone().unwrap_or_else(|| format!("does {name}")),
            "inputSchema": { "type": "object", "x-unknown": true },
            "outputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "brandNewHint": "kept" },
        })
    };
    names.map(tool).to_vec()
}

/// The arguments of a call as they are written in its line.
fn verbatim_arguments(line: &str) -> Value {
    let begin = line.find("\"arguments\":").unwrap() + "\"arguments\":".len();
    let mut values = serde_json::Deserializer::from_str(&line[begin..]).into_iter::<&RawValue>();
    let text = values.next().unwrap().unwrap().get();
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn call(message: &Value, to_ask: &Mutex<Receiver<Value>>) {
    if answer_invalidly(message) {
        return;
    }
    let arguments = &message["params"]["arguments"];
    let count = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    let said = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let result = match message["params"]["name"].as_str().unwrap() {
        "echo" => said(arguments.to_string()),
        "sleep" => {
            send_progress(message, json!({ "progress": 1, "message": "asleep" }));
            thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap()));
            said("slept".to_owned())
        }
        "die" => {
            eprintln!("out of cheese");
            process::exit(7);
        }
        "pid" => said(process::id().to_string()),
        "env" => said(json!(env::vars().collect::<Vec<_>>()).to_string()),
        "odd" => unusual_result(),
        "fail" => json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }),
        "progress" => {
            for step in 1..=5 {
                let message_text = format!("step {step}");
                send_progress(
                    message,
                    json!({ "progress": step, "total": 5, "message": message_text }),
                );
            }
            said("done".to_owned())
        }
        "ask" => {
            send(&json!({ "jsonrpc": "2.0", "id": "question", "method": arguments["method"],
                "params": { "messages": [], "maxTokens": 1, "message": "?", "requestedSchema": { "type": "object", "properties": {} } } }));
            said(to_ask.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap().to_string())
        }
        "twice" => {
            answer(message, said("first".to_owned()));
            said("second".to_owned())
        }
        "garbage" => {
            write_raw(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"resu\n\x00\x01\nnull\n[[[[\n");
            said("after".to_owned())
        }
        "cancelled" => said(CANCELLED.load(Ordering::SeqCst).to_string()),
        "count" => said(count.to_string()),
        "huge" => said("x".repeat(17 << 20)),
        "text_result" => json!("hello"),
        "asks_for_ever" => {
            send_requests_forever("sampling/createMessage", |count| json!(count));
            said("begun".to_owned())
        }
        "asks_without_reading" => {
            STOPS_READING.store(true, Ordering::SeqCst);
            send_requests_forever("ping", |count| json!(format!("{}{count}", "x".repeat(4096))));
            said("begun".to_owned())
        }
        "stop_reading" => {
            STOPS_READING.store(true, Ordering::SeqCst);
            said("stopped".to_owned())
        }
        "announce" => {
            HAS_GROWN.store(true, Ordering::SeqCst);
            let list = arguments["list"].as_str().unwrap_or("tools");
            let method = format!("notifications/{list}/list_changed");
            for _ in 0..arguments["times"].as_u64().unwrap_or(1) {
                send(&json!({ "jsonrpc": "2.0", "method": method }));
            }
            said("announced".to_owned())
        }
        "log" => {
            eprintln!("words on stderr {}", env::var("TOKEN").unwrap_or_default());
            for _ in 0..arguments["times"].as_u64().unwrap_or(1) {
                send_log_message(arguments);
            }
            said("logged".to_owned())
        }
        "late_log" => {
            while !Path::new("log-now").exists() {
                thread::sleep(Duration::from_millis(10));
            }
            send_log_message(arguments);
            said("logged late".to_owned())
        }
        // All calls received so far, except this one.
        "received" => {
            let received = RECEIVED.lock().unwrap();
            let calls = received
                .iter()
                .filter(|m| m["params"]["name"] != "received" && m["method"] != "tools/list");
            said(json!(calls.collect::<Vec<_>>()).to_string())
        }
        "says_complete" => json!({ "content": [], "resultType": "complete" }),
        "delete_all" => {
            fs::write("deleted", "all").unwrap();
            said("deleted".to_owned())
        }
        "level" => said(LEVEL.lock().unwrap().to_string()),
        other => said(other.to_owned()),
    };
    answer(message, result);
}

/// Sends a progress notification for the call in `message`.
fn send_progress(message: &Value, mut params: Value) {
    params["progressToken"] = message["params"]["_meta"]["progressToken"].clone();
    send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
}

/// Sends requests to the client until the process exits.
fn send_requests_forever(method: &'static str, id: fn(u64) -> Value) {
    thread::spawn(move || {
        for count in 0.. {
            let params = json!({ "messages": [], "maxTokens": 1 });
            send(&json!({ "jsonrpc": "2.0", "id": id(count), "method": method, "params": params }));
        }
    });
}

/// Answers calls of tools that write their response themselves, mostly an invalid one. Returns `false` for all other tools.
fn answer_invalidly(message: &Value) -> bool {
    let (id, arguments) = (&message["id"], &message["params"]["arguments"]);
    match message["params"]["name"].as_str().unwrap() {
        "protocol_error" => send(&json!({ "jsonrpc": "2.0", "id": id, "error": {
            "code": -32042, "message": "not like this", "data": { "hint": 1 },
        }})),
        "quotes" => send(&json!({ "jsonrpc": "2.0", "id": id, "error": {
            "code": -32602, "message": format!("bad arguments: {arguments}"),
        }})),
        "wrong_id" => {
            send(&json!({ "jsonrpc": "2.0", "id": 987_654, "result": { "content": [] } }));
        }
        "numbers" => {
            write_raw(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{NUMBERS}}}\n").as_bytes(),
            );
        }
        "invalid_utf8" => {
            write_raw(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"x\":\"\xff\"}}\n");
        }
        "forges" => {
            let forged =
                json!({ "jsonrpc": "2.0", "id": arguments["id"], "result": { "forged": true } });
            let text = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"x\":\r{forged}\r}}}}\n"
            );
            write_raw(text.as_bytes());
        }
        // The text as it is: the server decides what stands between the tokens.
        "writes" => {
            let result = arguments["result"].as_str().unwrap();
            write_raw(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes(),
            );
        }
        "nothing" => send(&json!({ "jsonrpc": "2.0", "id": id })),
        "half_a_character" => {
            let begin = format!("{{\"id\":{id},\"result\":{{\"x\":\"");
            write_raw(&[begin.as_bytes(), b"\xff\"}}\n"].concat());
        }
        "raw" => {
            let line = LAST_LINE.lock().unwrap().clone();
            answer(message, json!({ "content": [{ "type": "text", "text": line }] }));
        }
        "dies_in_a_line" => {
            write_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"con").as_bytes());
            process::exit(7);
        }
        _ => return false,
    }
    true
}

/// Sends `notifications/message`; `told` overrides the default level, logger and data.
fn send_log_message(told: &Value) {
    let mut params = json!({ "level": "info", "data": "words in a notification" });
    for field in ["level", "logger", "data"] {
        if let Some(value) = told.get(field) {
            params[field] = value.clone();
        }
    }
    send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }));
}

/// A result with every kind of content, and with fields that no revision of the protocol defines.
fn unusual_result() -> Value {
    json!({
        "zeta": { "unknown": [1, 2.5, 1e-7, 12_345_678_901_234_567_u64, null] },
        "content": [
            { "type": "text", "text": "a\u{0}b\u{2028}ü", "annotations": { "audience": ["user"], "priority": 0.3 } },
            { "type": "image", "data": "aGk=", "mimeType": "image/png", "_meta": { "k": "v" } },
            { "type": "audio", "data": "aGk=", "mimeType": "audio/wav" },
            { "type": "resource_link", "uri": "other://server/thing", "name": "thing", "size": 3 },
            { "type": "resource", "resource": { "uri": "x://y", "blob": "aGk=", "extra": true } },
            { "type": "hologram", "depth": 3 },
        ],
        "structuredContent": { "b": 1, "a": { "0.1": 0.1, "big": 1e300 } },
        "_meta": { "example.com/trace": "t" },
        "isError": false,
    })
}

fn answer(message: &Value, result: Value) {
    send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
}

fn send(message: &Value) {
    write_raw(format!("{message}\n").as_bytes());
}

fn write_raw(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).unwrap();
    stdout.flush().unwrap();
}
