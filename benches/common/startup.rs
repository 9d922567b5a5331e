//! Start-up times of commands, and a project to measure them in.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

/// A command of the program; the project is also its `HOME`.
pub fn adjutant(program: &Path, project: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--root").arg(project).env("HOME", project).env("RUST_LOG", "error");
    command
}

/// Time from the start of a command to its exit.
pub fn time_to_exit(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let ended = command.stdin(Stdio::null()).output().expect("it starts");
    let took = begun.elapsed();
    let code = ended.status.code().expect("an exit code");
    // Commands exit with 1 or 2 if there is nothing to show yet.
    assert!(code <= 2, "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    took
}

/// Time from the start of a server to its response to `tools/list`. Its exit does not count: the kernel needs 15 ms to
/// remove a process that watches files.
pub fn time_to_tool_list(server: &mut Command) -> Duration {
    let begun = Instant::now();
    let mut child = server
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
    assert!(listed, "{server:?} lists its tools");
    let _ = child.kill();
    let _ = child.wait();
    took
}

/// Copies the agents of this repository into a project.
pub fn copy_agents(project: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents");
    let copied = Command::new("cp").arg("-r").arg(from).arg(project).status().expect("cp starts");
    assert!(copied.success());
}
