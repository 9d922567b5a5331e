//! Time that `adjutant hook` adds to a tool call of Claude Code, from its start to its exit.
//!
//! `cargo bench --bench hook`; the figures are in `docs/identity.md`.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a measurement prints what it found"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::{Value, json};

const ROUNDS: usize = 100;

fn main() {
    let project = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(project.path().join("agents")).expect("a folder");
    let mut server = serve(project.path());
    let small = payload(100);
    let large = payload(1_000_000);
    let plain = measure(|_| run_to_success(Command::new("true").stdin(Stdio::null())));
    show("`true`, to compare with", &plain);
    let other = json!({"hook_event_name": "Stop", "session_id": "s"}).to_string();
    show("an event that is only recorded", &measure(|_| hook(project.path(), &other)));
    show(
        "a call that is attested",
        &measure(|n| hook(project.path(), &small.replace("toolu", &format!("t{n}")))),
    );
    show(
        "the same with 1 MB of input",
        &measure(|n| hook(project.path(), &large.replace("toolu", &format!("l{n}")))),
    );
    server.kill().expect("the server ends");
    server.wait().expect("the server ends");
    let log = project.path().join("data/hook.log");
    assert!(!log.exists(), "{}", fs::read_to_string(log).unwrap_or_default());
}

fn payload(input: usize) -> String {
    json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "mcp__adjutant__run_subagent",
        "tool_use_id": "toolu", "agent_id": "a1", "agent_type": "reviewer", "tool_input": {"prompt": "x".repeat(input)},
    })
    .to_string()
}

/// Starts the server and waits until it responds.
fn serve(project: &Path) -> Child {
    let mut server = adjutant(project, "serve").stdout(Stdio::piped()).spawn().expect("it starts");
    let stdin = server.stdin.as_mut().expect("its stdin");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"},
    }});
    writeln!(stdin, "{hello}").expect("it reads");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("its stdout");
    BufReader::new(stdout).read_line(&mut line).expect("it answers");
    assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
    server
}

fn adjutant(project: &Path, command: &str) -> Command {
    let mut adjutant = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    adjutant.arg(command).current_dir(project).stdin(Stdio::piped()).stderr(Stdio::null());
    adjutant
}

fn hook(project: &Path, payload: &str) {
    let mut child = adjutant(project, "hook").spawn().expect("it starts");
    child.stdin.take().expect("its stdin").write_all(payload.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

fn run_to_success(command: &mut Command) {
    command.status().expect("it runs");
}

/// Wall-clock times of all rounds, sorted, and CPU time per round, which other load on the machine hardly affects.
fn measure(mut once: impl FnMut(usize)) -> (Vec<Duration>, Duration) {
    let before = child_cpu_time();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let begin = Instant::now();
            once(round);
            begin.elapsed()
        })
        .collect();
    times.sort();
    let processor = child_cpu_time().saturating_sub(before);
    (times, processor / u32::try_from(ROUNDS).unwrap_or(u32::MAX))
}

fn child_cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system says");
    let of = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    of(usage.user_time()) + of(usage.system_time())
}

fn show(what: &str, (times, processor): &(Vec<Duration>, Duration)) {
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    let (median, most) = (at(50), at(95));
    println!(
        "{what:<34} median {median:>8.2?}, 95 of 100 within {most:>8.2?}, processor {processor:>8.2?}"
    );
}
