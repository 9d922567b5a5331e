//! Time from start to exit of each command, and the size of the program.
//!
//! `cargo bench --bench startup` runs in a project with the agents of this repository. `serve` and `gateway` are
//! measured until they have answered `tools/list`. `doctor`, `plan`, `run` and `demo` start `claude`, which dominates
//! their time; `true` gives the cost of starting any program.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement prints what it found"
)]

#[path = "common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use common::startup::{adjutant, copy_agents, time_to_exit, time_to_tool_list};

const ROUNDS: usize = 30;
const MAX_STARTUP_TIME: Duration = Duration::from_millis(10);

/// Every command that starts no other program.
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
    // `cargo test --benches` only checks that the benchmark starts.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let bytes = fs::metadata(program).expect("the program").len();
    println!("the program: {:.1} MB", bytes as f64 / 1e6);
    let project = tempfile::tempdir().expect("a folder");
    copy_agents(project.path());
    println!("{:<50} {:>8}", "", "ms");
    show("`true`, to compare with", || time_to_exit(&mut Command::new("true")));
    for words in COMMANDS {
        show(&words.join(" "), || {
            let _ = fs::remove_dir_all(project.path().join("agents/one-more"));
            time_to_exit(adjutant(program, project.path()).args(words))
        });
    }
    for server in ["serve", "gateway"] {
        show(&format!("{server}, to its tools"), || {
            time_to_tool_list(adjutant(program, project.path()).arg(server))
        });
    }
}

fn show(what: &str, mut measure: impl FnMut() -> Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| measure()).collect();
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    let mark = if median > MAX_STARTUP_TIME { "  over the goal of 10 ms" } else { "" };
    println!("{what:<50} {:>8.1}{mark}", median.as_secs_f64() * 1e3);
}
