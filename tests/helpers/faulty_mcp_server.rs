//! An MCP server over stdio that misbehaves on purpose: its first argument says how.

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

use serde_json::{Value, json};

static CALLS: AtomicU64 = AtomicU64::new(0);
/// Whether mode `grows` has one tool more by now.
static GROWN: AtomicBool = AtomicBool::new(false);
static CANCELLED: AtomicU64 = AtomicU64::new(0);
/// What was last said with `logging/setLevel`.
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
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        if mode == "chatty" {
            raw(format!("DEBUG received {message}\n").as_bytes());
            send(&json!({ "level": "debug", "received": message, "id": message["id"] }));
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
            Some("notifications/initialized") if mode == "talkative" => log(&json!({})),
            Some("logging/setLevel") => {
                *LEVEL.lock().unwrap() = message["params"]["level"].clone();
                answer(&message, json!({}));
            }
            Some("notifications/cancelled") => {
                CANCELLED.fetch_add(1, Ordering::SeqCst);
            }
            Some("tools/list") => answer(&message, tools(mode, &message)),
            Some("tools/call") => {
                let to_ask = to_ask.clone();
                thread::spawn(move || call(&message, &to_ask));
            }
            Some("resources/list") => answer(
                &message,
                json!({ "resources": [
                    { "uri": "faulty://one", "name": "one", "mimeType": "text/plain" },
                ]}),
            ),
            Some("resources/read") => answer(
                &message,
                json!({ "contents": [
                    { "uri": message["params"]["uri"], "text": "the content", "extra": 1 },
                ]}),
            ),
            Some("prompts/list") => answer(&message, json!({ "prompts": [{ "name": "greet" }] })),
            Some("prompts/get") => answer(
                &message,
                json!({ "messages": [
                    { "role": "user", "content": { "type": "text", "text": message["params"]["name"] } },
                ]}),
            ),
            Some(_) => {}
            None => drop(answers.send(message)),
        }
    }
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
        "grows" if GROWN.load(Ordering::SeqCst) => {
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
        "asks_for_ever",
        "run_subagent",
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

fn call(message: &Value, to_ask: &Mutex<Receiver<Value>>) {
    if answers_oddly(message) {
        return;
    }
    let arguments = &message["params"]["arguments"];
    let count = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    let said = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let result = match message["params"]["name"].as_str().unwrap() {
        "echo" => said(arguments.to_string()),
        "sleep" => {
            send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": message["params"]["_meta"]["progressToken"],
                "progress": 1, "message": "asleep",
            }}));
            thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap()));
            said("slept".to_owned())
        }
        "die" => {
            eprintln!("out of cheese");
            process::exit(7);
        }
        "pid" => said(process::id().to_string()),
        "env" => said(json!(env::vars().collect::<Vec<_>>()).to_string()),
        "odd" => odd(),
        "fail" => json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }),
        "progress" => {
            for step in 1..=5 {
                send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": message["params"]["_meta"]["progressToken"],
                    "progress": step, "total": 5, "message": format!("step {step}"),
                }}));
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
            raw(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"resu\n\x00\x01\nnull\n[[[[\n");
            said("after".to_owned())
        }
        "cancelled" => said(CANCELLED.load(Ordering::SeqCst).to_string()),
        "count" => said(count.to_string()),
        "huge" => said("x".repeat(17 << 20)),
        "text_result" => json!("hello"),
        "asks_for_ever" => {
            thread::spawn(|| {
                for id in 0.. {
                    send(&json!({ "jsonrpc": "2.0", "id": id, "method": "sampling/createMessage",
                        "params": { "messages": [], "maxTokens": 1 } }));
                }
            });
            said("begun".to_owned())
        }
        "announce" => {
            GROWN.store(true, Ordering::SeqCst);
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
                log(arguments);
            }
            said("logged".to_owned())
        }
        "late_log" => {
            while !Path::new("log-now").exists() {
                thread::sleep(Duration::from_millis(10));
            }
            log(arguments);
            said("logged late".to_owned())
        }
        "level" => said(LEVEL.lock().unwrap().to_string()),
        other => said(other.to_owned()),
    };
    answer(message, result);
}

/// Calls that are answered with something that is no result.
fn answers_oddly(message: &Value) -> bool {
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
        "invalid_utf8" => raw(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"x\":\"\xff\"}}\n"),
        "nothing" => send(&json!({ "jsonrpc": "2.0", "id": id })),
        "half_a_character" => {
            let begin = format!("{{\"id\":{id},\"result\":{{\"x\":\"");
            raw(&[begin.as_bytes(), b"\xff\"}}\n"].concat());
        }
        _ => return false,
    }
    true
}

/// A log message, with what `told` says of it.
fn log(told: &Value) {
    let mut params = json!({ "level": "info", "data": "words in a notification" });
    for field in ["level", "logger", "data"] {
        if let Some(value) = told.get(field) {
            params[field] = value.clone();
        }
    }
    send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }));
}

/// Every kind of content, and fields that no version of the protocol knows.
fn odd() -> Value {
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
    raw(format!("{message}\n").as_bytes());
}

fn raw(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).unwrap();
    stdout.flush().unwrap();
}
