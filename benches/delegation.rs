//! Overhead of a delegation over a bare `claude -p`, as ratios within one run.
//!
//! `cargo bench --bench delegation` prints a table. The model is scripted, on loopback, and answers without delay, so
//! only the overhead of the programs is measured. Rounds alternate between both sides; medians are compared.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a measurement that fails says so by panicking"
)]

#[path = "common/mod.rs"]
mod common;
#[allow(dead_code, reason = "other benchmarks use the rest of it")]
#[path = "common/delegation.rs"]
mod delegation;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use common::statistics::timed;
use delegation::{AGENT, delegate};
use support::claude_context::{ClaudeContext, NEW, OLD};
use support::mcp::McpClient;
use support::real_claude::scripted_environment;

const ROUNDS: usize = 9;

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    cold_call();
    server_start();
    server_memory();
    for version in [NEW, OLD] {
        first_request(version);
    }
}

/// A cold `run_subagent` against `claude -p` with the same flags.
fn cold_call() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    fixture.context.agent("fetcher", AGENT);
    let mut client = fixture.serve();
    delegate(&mut client, "SAY done", "done");
    run_bare_claude(&fixture);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(timed(|| run_bare_claude(&fixture)));
        ours.push(timed(|| delegate(&mut client, "SAY done", "done")));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!(
        "run_subagent, cold / bare claude -p: {ratio:.3} ({ours:.0?} / {theirs:.0?}; goal 1.05)"
    );
}

/// `claude -p` with the flags of the launch plan and the prompt on stdin, without the control protocol.
fn run_bare_claude(fixture: &ClaudeContext) {
    let home = fixture.context.home();
    fs::write(home.join("prompt.md"), "You fetch pages.\n").unwrap();
    fs::write(home.join("settings.json"), r#"{"permissions":{"allow":["Bash(curl:*)"]}}"#).unwrap();
    let mut child = Command::new(&fixture.claude)
        .args([
            "-p",
            "--output-format=stream-json",
            "--verbose",
            "--setting-sources=",
            "--strict-mcp-config",
        ])
        .args([
            "--disable-slash-commands",
            "--tools=Bash",
            "--permission-mode=default",
            "--no-session-persistence",
        ])
        .arg("--mcp-config={\"mcpServers\":{}}")
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
    child.stdin.take().unwrap().write_all(b"SAY done").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"result\":\"done\""), "{output:?}");
}

/// Time from the start of `adjutant serve` to its response to `tools/list`.
fn server_start() {
    let context = support::TestContext::new();
    context.agent("fetcher", AGENT);
    let times = (0..ROUNDS)
        .map(|_| {
            timed(|| {
                let mut client = McpClient::connect(context.adjutant(["serve"]));
                client.request("tools/list", json!({}));
                client.disconnect();
            })
        })
        .collect();
    println!("start of serve to tools/list: {:.1?} (goal 30 ms)", median(times));
}

/// Memory of `adjutant serve` with one agent and with a hundred.
fn server_memory() {
    let held = |agents: usize| {
        let context = support::TestContext::new();
        for number in 0..agents {
            let name = format!("agent-{number}");
            context.agent(&name, &AGENT.replace("name: fetcher", &format!("name: {name}")));
        }
        let mut client = McpClient::connect(context.adjutant(["serve"]));
        client.request("tools/list", json!({}));
        let status = fs::read_to_string(format!("/proc/{}/status", client.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    };
    let (one, hundred) = (held(1), held(100));
    println!("memory of serve: {one:.1} MB with 1 agent, {hundred:.1} MB with 100 (goal 20 MB)");
}

/// Size in bytes of the first request of a one-tool agent, against `claude -p` without flags.
fn first_request(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.context.agent("fetcher", AGENT);
    fixture.run("fetcher", "SAY done");
    let ours = fixture.model.requests()[0].bytes;
    let before = fixture.model.requests().len();
    let mut plain = Command::new(&fixture.claude);
    plain
        .args(["-p", "SAY done"])
        .env_clear()
        .envs(scripted_environment(&fixture.model, &fixture.context.home()));
    plain.current_dir(fixture.context.root()).stdin(Stdio::null()).output().expect("claude runs");
    let theirs =
        fixture.model.requests()[before..].iter().map(|request| request.bytes).max().unwrap();
    println!(
        "first request with {version}: {ours} bytes, a bare claude -p {theirs}: {:.3}",
        ours as f64 / theirs as f64
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
