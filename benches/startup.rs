//! How long each command takes from its start to its end, and how large the program is.
//!
//! `cargo bench --bench startup`, in a project with the agents of this repository. `serve` and `gateway` count until they
//! have answered `tools/list`. `doctor`, `plan`, `run` and `demo` start `claude`, which is what they take; `true` is what
//! starting any program costs here.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement prints what it found"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::json;

const ROUNDS: usize = 30;
const GOAL: Duration = Duration::from_millis(10);

/// Every command that starts nothing else.
const COMMANDS: [&[&str]; 24] = [
    &["--help"],
    &["--version"],
    &["init", "--dry-run"],
    &["list"],
    &["show", "web-search"],
    &["new", "one-more"],
    &["check"],
    &["schema", "agent"],
    &["runs", "list", "--all"],
    &["sessions", "list"],
    &["extensions", "list"],
    &["explain", "--agent", "web-search", "--builtin", "Bash"],
    &["matrix"],
    &["audit"],
    &["audit", "--verify"],
    &["costs"],
    &["events"],
    &["stats"],
    &["hook"],
    &["token", "list"],
    &["trust", "nobody"],
    &["auth", "status"],
    &["completions", "bash"],
    &["help", "serve"],
];

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let bytes = fs::metadata(program).expect("the program").len();
    println!("the program: {:.1} MB", bytes as f64 / 1e6);
    let project = tempfile::tempdir().expect("a folder");
    copy_agents(project.path());
    println!("{:<50} {:>8}", "", "ms");
    show("`true`, to compare with", || finish(&mut Command::new("true")));
    for words in COMMANDS {
        show(&words.join(" "), || {
            let _ = fs::remove_dir_all(project.path().join("agents/one-more"));
            finish(adjutant(project.path()).args(words))
        });
    }
    for server in ["serve", "gateway"] {
        show(&format!("{server}, to its tools"), || list_tools(project.path(), server));
    }
}

fn show(what: &str, mut measure: impl FnMut() -> Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| measure()).collect();
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    let mark = if median > GOAL { "  over the goal of 10 ms" } else { "" };
    println!("{what:<50} {:>8.1}{mark}", median.as_secs_f64() * 1e3);
}

fn adjutant(project: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    command.arg("--root").arg(project).env("HOME", project).env("RUST_LOG", "error");
    command
}

/// From the start of a command to its end.
fn finish(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let ended = command.stdin(Stdio::null()).output().expect("it starts");
    let took = begun.elapsed();
    let code = ended.status.code().expect("an exit code");
    // Some have nothing to show yet, and say so.
    assert!(code <= 2, "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    took
}

/// From the start of a server to its list of tools. Its end does not count: a process that watches files takes the kernel
/// some 15 ms to put away.
fn list_tools(project: &Path, server: &str) -> Duration {
    let begun = Instant::now();
    let mut child = adjutant(project)
        .arg(server)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("its stdin");
    let mut answers = BufReader::new(child.stdout.take().expect("its stdout")).lines();
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" } });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ] {
        writeln!(stdin, "{message}").expect("it reads");
    }
    let listed = answers.any(|line| line.is_ok_and(|line| line.contains("\"id\":2")));
    let took = begun.elapsed();
    assert!(listed, "{server} lists its tools");
    let _ = child.kill();
    let _ = child.wait();
    took
}

fn copy_agents(project: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents");
    let copied = Command::new("cp").arg("-r").arg(from).arg(project).status().expect("cp starts");
    assert!(copied.success());
}
