//! Tool calls of an agent's private server against a direct stdio connection of `claude` to the same server, and the
//! time to the first turn of an agent whose leased server starts slowly.
//!
//! `cargo bench --bench sdk_servers` prints both. The model is scripted, on loopback, and answers without delay, so the
//! time between two of its requests is the cost of a tool call. The direct connection is measured twice: over the
//! control protocol with the same hooks as an agent, each answered immediately, so that only the path to the server
//! differs; and as `claude -p` without hooks.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "a measurement that fails says so by panicking"
)]

#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs};

use adjutant::claude::HookEvent;
use serde_json::{Value, json};

use support::claude_context::{ClaudeContext, NEW, OLD};
use support::real_claude::scripted_environment;

const ROUNDS: usize = 5;
const CALLS: usize = 30;

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let server = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/mcp-servers/node/node_modules/.bin/mcp-server-everything");
    if !server.exists() {
        println!(
            "server-everything is not installed; run `cargo test --test it gateway_real` first"
        );
        return;
    }
    for version in [NEW, OLD] {
        compare_tool_call(version, &server);
        compare_first_turn(version, &server);
    }
}

/// Times of the requests to the model, in order.
#[derive(Clone, Default)]
struct RequestTimes(Arc<Mutex<Vec<Instant>>>);

impl RequestTimes {
    fn observe(fixture: &ClaudeContext) -> Self {
        let clock = Self::default();
        let ticks = Arc::clone(&clock.0);
        fixture.model.set_handler(move |_| {
            ticks.lock().unwrap().push(Instant::now());
            None
        });
        clock
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn agent(name: &str, server: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         tools: [\"mcp:own:echo\"]\nmcp_servers:\n  own: {server}\n---\nYou use it.\n"
    )
}

/// Time between two requests to the model: one tool call and the turn around it.
fn compare_tool_call(version: &str, server: &PathBuf) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let clock = RequestTimes::observe(&fixture);
    let entry = json!({ "command": server, "args": ["stdio"] });
    fixture.context.agent("worker", &agent("worker", &entry.to_string()));
    let mut client = fixture.serve();
    let prompt = "CALL mcp__own__echo {\"message\": \"hello\"}\n".repeat(CALLS);
    let (mut through_pipe, mut direct, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        clock.take();
        let call = json!({ "agent_name": "worker", "prompt": prompt });
        let answer = client.call_tool("run_subagent", call);
        assert!(answer.to_string().contains("Echo: hello"), "{answer}");
        through_pipe.push(time_per_call(&clock));
        run_direct(&fixture, &entry, &prompt, DirectHooks::Same);
        direct.push(time_per_call(&clock));
        run_direct(&fixture, &entry, &prompt, DirectHooks::None);
        alone.push(time_per_call(&clock));
    }
    let through_pipe = median(through_pipe);
    for (against, time, goal) in [
        ("a direct one with the same hooks", median(direct), "; goal 1"),
        ("a direct one that nobody watches", median(alone), ""),
    ] {
        let ratio = through_pipe.as_secs_f64() / time.as_secs_f64();
        println!(
            "{version}: a call through the pipe / {against}: {ratio:.3} ({through_pipe:.1?} / {time:.1?}{goal})"
        );
    }
}

/// Hooks of the direct connection.
#[derive(Clone, Copy, PartialEq)]
enum DirectHooks {
    /// The hooks of an agent, each answered immediately.
    Same,
    None,
}

/// Runs `claude` with the server as its own child, otherwise as the launch plan has it.
fn run_direct(fixture: &ClaudeContext, entry: &Value, prompt: &str, hooks: DirectHooks) {
    let home = fixture.context.home();
    fs::write(home.join("prompt.md"), "You use it.\n").unwrap();
    let settings = r#"{"permissions":{"allow":["mcp__own__echo"]}}"#;
    fs::write(home.join("settings.json"), settings).unwrap();
    let servers = json!({ "mcpServers": { "own": entry } }).to_string();
    fs::write(home.join("servers.json"), servers).unwrap();
    let input = if hooks == DirectHooks::Same {
        "--input-format=stream-json"
    } else {
        "--input-format=text"
    };
    let mut child = Command::new(&fixture.claude)
        .args(["-p", "--output-format=stream-json", "--verbose", "--setting-sources=", input])
        .args(["--strict-mcp-config", "--disable-slash-commands", "--tools="])
        .args(["--permission-mode=default", "--no-session-persistence"])
        .arg(format!("--mcp-config={}", home.join("servers.json").display()))
        .arg(format!("--settings={}", home.join("settings.json").display()))
        .arg(format!("--system-prompt-file={}", home.join("prompt.md").display()))
        .env_clear()
        .envs(scripted_environment(&fixture.model, &home))
        .env("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1")
        .current_dir(fixture.context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("claude starts");
    let mut stdin = child.stdin.take().unwrap();
    let said = if hooks == DirectHooks::Same {
        answer_control_requests(&mut stdin, BufReader::new(child.stdout.take().unwrap()), prompt)
    } else {
        stdin.write_all(prompt.as_bytes()).unwrap();
        drop(stdin);
        std::io::read_to_string(child.stdout.take().unwrap()).unwrap()
    };
    assert!(said.contains("Echo: hello"), "{said}");
    let _ = child.kill();
    child.wait().unwrap();
}

/// Speaks the control protocol until the result; every hook gets an empty answer immediately.
fn answer_control_requests(stdin: &mut impl Write, stdout: impl BufRead, prompt: &str) -> String {
    let mut send = |message: Value| writeln!(stdin, "{message}").unwrap();
    let registered: serde_json::Map<String, Value> = HookEvent::ALL
        .iter()
        .map(|event| {
            let entry = json!([{ "matcher": null, "hookCallbackIds": [event.name()] }]);
            (event.name().to_owned(), entry)
        })
        .collect();
    let request = json!({ "subtype": "initialize", "hooks": registered });
    send(json!({ "type": "control_request", "request_id": "1", "request": request }));
    send(json!({ "type": "user", "message": { "role": "user", "content": prompt } }));
    let mut said = String::new();
    for line in stdout.lines() {
        let line = line.unwrap();
        let frame: Value = serde_json::from_str(&line).unwrap_or_default();
        match frame["type"].as_str() {
            Some("control_request") => {
                let answer = json!({ "subtype": "success", "request_id": frame["request_id"], "response": {} });
                send(json!({ "type": "control_response", "response": answer }));
            }
            Some("result") => return said + &line,
            _ => said.push_str(&line),
        }
    }
    said
}

fn time_per_call(clock: &RequestTimes) -> Duration {
    let ticks = clock.take();
    assert!(ticks.len() > CALLS, "{} requests", ticks.len());
    median(ticks.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// Time from the call to the model's first request, with a leased server that takes 3 s to start, and without a server.
fn compare_first_turn(version: &str, server: &Path) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let clock = RequestTimes::observe(&fixture);
    let slow = format!("sleep 3; exec {} stdio", server.display());
    let entry = json!({ "command": "sh", "args": ["-c", slow], "eager": true });
    fixture.context.agent("slow", &agent("slow", &entry.to_string()));
    fixture.context.agent("plain", "---\nname: plain\ndescription: Has none\n---\nYou talk.\n");
    let mut client = fixture.serve();
    let mut first = |name: &str| {
        clock.take();
        let begun = Instant::now();
        client.call_tool("run_subagent", json!({ "agent_name": name, "prompt": "SAY done" }));
        clock.take()[0] - begun
    };
    // The first call waits until the server is ready.
    first("slow");
    first("plain");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with.push(first("slow"));
        without.push(first("plain"));
    }
    let (with, without) = (median(with), median(without));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "{version}: first turn with a slow server, leased / without one: {ratio:.3} ({with:.0?} / {without:.0?}; goal 1)"
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
