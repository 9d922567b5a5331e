//! `execute_tool` against the direct call, and against `agent-mcp-gateway` where it is installed.
//!
//! `cargo bench --bench gateway` prints one table. The server behind all of them is
//! `server-everything` (installed by the ordinary tests under `target/mcp-servers`), the tool is
//! `echo`. `AGENT_MCP_GATEWAY=/path/to/agent-mcp-gateway` adds a row for the peer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark says what is wrong by failing"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::{Value, json};

const CALLS: usize = 3_000;
const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 3;

fn main() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/mcp-servers/node/node_modules/.bin/mcp-server-everything");
    if !server.exists() {
        println!(
            "server-everything is not installed; run `cargo test --test it gateway_real` first"
        );
        return;
    }
    let project = project(&server);
    let mut direct = Command::new(&server);
    direct.arg("stdio");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    ours.arg("gateway").current_dir(project.path()).env("RUST_LOG", "error");
    println!(
        "{:<20} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8}",
        "", "p50 ms", "p95 ms", "p99 ms", "calls/s", "start ms", "MB"
    );
    let base = measure("direct", &mut direct, &direct_call, None);
    measure("adjutant gateway", &mut ours, &gateway_call, Some(&base));
    if let Some(peer) = env::var_os("AGENT_MCP_GATEWAY").map(PathBuf::from) {
        let mut command = Command::new(peer);
        command.current_dir(project.path());
        measure("agent-mcp-gateway", &mut command, &gateway_call, Some(&base));
    }
}

fn project(server: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let entry = json!({ "command": server, "args": ["stdio"], "description": "everything" });
    fs::write(
        folder.path().join(".mcp.json"),
        json!({ "mcpServers": { "everything": entry } }).to_string(),
    )
    .unwrap();
    let rules = json!({ "agents": { "dev": { "allow": { "servers": ["*"] }, "deny": { "tools": { "everything": ["get-env"] } } } } });
    fs::write(folder.path().join(".mcp-gateway-rules.json"), rules.to_string()).unwrap();
    folder
}

fn direct_call() -> Value {
    json!({ "name": "echo", "arguments": { "message": "hello" } })
}

fn gateway_call() -> Value {
    json!({ "name": "execute_tool", "arguments": {
        "agent_id": "dev", "server": "everything", "tool": "echo", "args": { "message": "hello" },
    }})
}

struct Numbers {
    p50: f64,
    p95: f64,
    throughput: f64,
}

/// The best of a few rounds: the machine may be busy with something else.
fn measure(
    name: &str,
    command: &mut Command,
    call: &dyn Fn() -> Value,
    base: Option<&Numbers>,
) -> Numbers {
    let begun = Instant::now();
    let mut client = Client::start(command);
    client.request("tools/list", &json!({}));
    let start = begun.elapsed();
    for _ in 0..200 {
        client.call(call);
    }
    let rounds: Vec<(Vec<Duration>, f64)> =
        (0..ROUNDS).map(|_| (client.one_by_one(call), client.at_once(call))).collect();
    let best =
        |at: f64| rounds.iter().map(|(times, _)| percentile(times, at)).fold(f64::MAX, f64::min);
    let throughput = rounds.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let numbers = Numbers { p50: best(0.50), p95: best(0.95), throughput };
    println!(
        "{name:<20} {:>9.3} {:>9.3} {:>9.3} {:>10.0} {:>9.1} {:>8.1}",
        numbers.p50,
        numbers.p95,
        best(0.99),
        throughput,
        start.as_secs_f64() * 1e3,
        client.memory(),
    );
    if let Some(base) = base {
        println!(
            "{:<20} {:>8.2}x {:>8.2}x {:>9} {:>9.2}x",
            "  against direct",
            numbers.p50 / base.p50,
            numbers.p95 / base.p95,
            "",
            throughput / base.throughput,
        );
    }
    numbers
}

fn percentile(times: &[Duration], at: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a list"
    )]
    let position = ((sorted.len() - 1) as f64 * at) as usize;
    sorted[position].as_secs_f64() * 1e3
}

struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let (stdin, stdout) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, stdin, stdout, next: 0 };
        client.request("initialize", &json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
        }));
        writeln!(
            client.stdin,
            "{}",
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
        )
        .unwrap();
        client
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let message =
            json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// The next answer; notifications are passed over.
    fn receive(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server went away");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("id").is_some() && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        self.receive()
    }

    fn call(&mut self, call: &dyn Fn() -> Value) {
        let answer = self.request("tools/call", &call());
        assert!(answer.to_string().contains("Echo: hello"), "{answer}");
    }

    fn one_by_one(&mut self, call: &dyn Fn() -> Value) -> Vec<Duration> {
        (0..CALLS)
            .map(|_| {
                let begun = Instant::now();
                self.call(call);
                begun.elapsed()
            })
            .collect()
    }

    /// Calls per second with [`IN_FLIGHT`] on their way.
    fn at_once(&mut self, call: &dyn Fn() -> Value) -> f64 {
        let begun = Instant::now();
        let params = call();
        for _ in 0..IN_FLIGHT {
            self.send("tools/call", &params);
        }
        for _ in IN_FLIGHT..CALLS {
            self.receive();
            self.send("tools/call", &params);
        }
        for _ in 0..IN_FLIGHT {
            self.receive();
        }
        CALLS as f64 / begun.elapsed().as_secs_f64()
    }

    /// Resident memory in MB.
    fn memory(&self) -> f64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
