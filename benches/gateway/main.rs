//! `execute_tool` against the direct call, against `agent-mcp-gateway`, and over HTTP against stdio, in one run.
//!
//! `cargo bench --bench gateway` prints two tables. The server behind all of them is `server-everything` (installed by the
//! ordinary tests under `target/mcp-servers`), the tool is `echo`; rules and audit are on. The peer is installed from PyPI
//! below `target` at first use.
//!
//! The first table is what a user's client sees: the official TypeScript client makes the calls. In the second the client
//! does next to nothing, so that nothing hides what the gateway adds; its row `relay` is a program that copies bytes between
//! client and server and does nothing else, which is what another process in between costs at the least. Over HTTP all calls go
//! over one connection; there «in flight» means that requests are sent ahead.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark says what is wrong by failing"
)]

mod wire;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde::Deserialize;
use serde_json::{Value, json};

use wire::Wire;

/// Calls of one round, one after the other and again with [`IN_FLIGHT`] on their way.
const CALLS: usize = 1_500;
/// The peer is some thirty times slower.
const CALLS_OF_PEER: usize = 150;
const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 7;
const STDIO: &str = "adjutant gateway";
const HTTP: &str = "  over HTTP";

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, server] = arguments.as_slice()
        && word == "--relay"
    {
        return relay(server);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
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
    let project = project(&server);
    with_the_official_client(&server, project.path());
    let mut direct = Command::new(&server);
    direct.arg("stdio");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    ours.arg("gateway").current_dir(project.path()).env("RUST_LOG", "error");
    let mut over_http = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    over_http.args(["gateway", "--http", "127.0.0.1:0", "--requests-per-second", "0"]);
    over_http.current_dir(project.path()).env("RUST_LOG", "error");
    let token = token(project.path());
    let mut all = vec![
        Contestant::new("direct", direct, &direct_call, CALLS, None),
        Contestant::new("relay", relay_command(&server), &direct_call, CALLS, None),
        Contestant::new(STDIO, ours, &gateway_call, CALLS, None),
        Contestant::new(HTTP, over_http, &gateway_call, CALLS, Some(&token)),
    ];
    if let Some(peer) = peer() {
        let mut command = Command::new(peer);
        command.current_dir(project.path());
        let name = "agent-mcp-gateway";
        all.push(Contestant::new(name, command, &gateway_call, CALLS_OF_PEER, None));
    }
    for _ in 0..ROUNDS {
        all.iter_mut().for_each(Contestant::round);
    }
    println!("with a client that does next to nothing");
    print(&all.iter().map(Contestant::figures).collect::<Vec<_>>());
}

fn token(project: &Path) -> String {
    let mut making = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    let made = making.args(["token", "new", "dev"]).current_dir(project).output().unwrap();
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// The same calls by the official TypeScript client.
fn with_the_official_client(server: &Path, project: &Path) {
    let gateway = |name: &str, command: &Path, arguments: &[&str], calls: usize| json!({ "name": name, "command": command, "args": arguments, "cwd": project, "params": gateway_call(), "calls": calls });
    let ours = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let mut contestants = vec![
        json!({ "name": "direct", "command": server, "args": ["stdio"], "params": direct_call(), "calls": CALLS }),
        gateway("adjutant gateway", ours, &["gateway"], CALLS),
    ];
    contestants.extend(peer().map(|peer| gateway("agent-mcp-gateway", &peer, &[], CALLS_OF_PEER)));
    let plan = json!({ "contestants": contestants, "rounds": ROUNDS, "inFlight": IN_FLIGHT });
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(root.join("benches/gateway/sdk-client.mjs"))
        .arg(root.join("target/mcp-servers/node/node_modules"))
        .arg(plan.to_string())
        .stderr(Stdio::inherit())
        .output()
        .expect("node starts");
    assert!(output.status.success(), "{:?}", output.status);
    let figures: Vec<Figures> = serde_json::from_slice(&output.stdout).unwrap();
    println!("with the official TypeScript client");
    print(&figures);
    println!();
}

fn relay_command(server: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.arg("--relay").arg(server);
    command
}

/// Copies bytes from our stdin to a server and back.
fn relay(server: &str) {
    let mut child = Command::new(server)
        .arg("stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    std::thread::spawn(move || copy(&mut stdout, &mut std::io::stdout()));
    copy(&mut std::io::stdin(), &mut stdin);
    drop(stdin);
    let _ = child.wait();
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// The peer's program: the one that `AGENT_MCP_GATEWAY` names, or the pinned one from PyPI, installed below `target`.
fn peer() -> Option<PathBuf> {
    if let Some(named) = env::var_os("AGENT_MCP_GATEWAY") {
        return Some(named.into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/agent-mcp-gateway");
    let program = folder.join("bin/agent-mcp-gateway");
    if !program.exists() {
        // It asks for Python 3.12 and works with 3.11.
        let script = "python3 -m venv --clear \"$1\" && \"$1/bin/pip\" -q install --ignore-requires-python agent-mcp-gateway==0.2.5";
        let installed = Command::new("sh").args(["-ec", script, "sh"]).arg(&folder).status();
        if !installed.is_ok_and(|status| status.success()) {
            println!("agent-mcp-gateway cannot be installed; its row is missing");
            return None;
        }
    }
    Some(program)
}

type Call = dyn Fn() -> Value;

/// One of those that are compared. The rounds alternate, so that what else the machine does hits all alike.
struct Contestant {
    name: &'static str,
    client: Client,
    call: &'static Call,
    calls: usize,
    start: Duration,
    rounds: Vec<(Vec<Duration>, f64)>,
}

impl Contestant {
    /// With a token over HTTP, without one over a pipe.
    fn new(
        name: &'static str,
        mut command: Command,
        call: &'static Call,
        calls: usize,
        token: Option<&str>,
    ) -> Self {
        let begin = |command: &mut Command| {
            let begun = Instant::now();
            let mut client = Client::start(command, token);
            client.request("tools/list", &json!({}));
            (client, begun.elapsed())
        };
        // Once for the caches of the system.
        drop(begin(&mut command));
        let (mut client, start) = begin(&mut command);
        for _ in 0..100 {
            client.call(call);
        }
        Self { name, client, call, calls, start, rounds: Vec::new() }
    }

    fn round(&mut self) {
        let times = self.client.one_by_one(self.call, self.calls);
        self.rounds.push((times, self.client.at_once(self.call, self.calls)));
    }

    /// The median of the rounds' percentiles, in milliseconds.
    fn percentile(&self, at: f64) -> f64 {
        median(self.rounds.iter().map(|(times, _)| percentile(times, at)).collect())
    }

    fn figures(&self) -> Figures {
        Figures {
            name: self.name.to_owned(),
            p50: self.percentile(0.50),
            p95: self.percentile(0.95),
            p99: self.percentile(0.99),
            rate: median(self.rounds.iter().map(|(_, rate)| *rate).collect()),
            start: Some(self.start.as_secs_f64() * 1e3),
            memory: Some(self.client.memory()),
        }
    }
}

/// Medians over the rounds; times in milliseconds.
#[derive(Deserialize)]
struct Figures {
    name: String,
    p50: f64,
    p95: f64,
    p99: f64,
    /// Calls per second with [`IN_FLIGHT`] on their way.
    rate: f64,
    /// To the answer to `tools/list`.
    start: Option<f64>,
    /// Megabytes.
    memory: Option<f64>,
}

fn print(all: &[Figures]) {
    println!(
        "{:<20} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8}",
        "", "p50 ms", "p95 ms", "p99 ms", "calls/s", "start ms", "MB"
    );
    for one in all {
        let shown = |figure: Option<f64>| figure.map_or(String::new(), |n| format!("{n:.1}"));
        println!(
            "{:<20} {:>9.3} {:>9.3} {:>9.3} {:>10.0} {:>9} {:>8}",
            one.name,
            one.p50,
            one.p95,
            one.p99,
            one.rate,
            shown(one.start),
            shown(one.memory),
        );
        let stdio = all.iter().find(|other| other.name == STDIO);
        match (one.name.as_str(), stdio) {
            (HTTP, Some(stdio)) => compare("  against stdio", one, stdio),
            (name, _) if name != all[0].name => compare("  against direct", one, &all[0]),
            _ => {}
        }
    }
    println!(
        "{:<20} {:>8}x {:>8}x {:>9} {:>9}x {:>9} {:>8}",
        "  goals", "1.40", "1.70", "", "0.75", "30", "20"
    );
    if all.iter().any(|one| one.name == HTTP) {
        println!("{:<20} {:>8}x", "  over HTTP", "2.50");
    }
}

fn compare(title: &str, one: &Figures, other: &Figures) {
    println!(
        "{title:<20} {:>8.2}x {:>8.2}x {:>8.2}x {:>9.2}x",
        one.p50 / other.p50,
        one.p95 / other.p95,
        one.p99 / other.p99,
        one.rate / other.rate,
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
    wire: Wire,
    next: u64,
}

impl Client {
    fn start(command: &mut Command, token: Option<&str>) -> Self {
        let (child, wire) = Wire::open(command, token);
        let mut client = Self { child, wire, next: 0 };
        if client.wire.has_handshake() {
            client.request("initialize", &json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
            }));
            client.wire.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        client
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let message =
            json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.wire.send(&message);
    }

    /// The next answer; notifications are passed over.
    fn receive(&mut self) -> Value {
        loop {
            let message = self.wire.receive();
            if message.get("id").is_some() && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        loop {
            // An answer to an earlier request must not make this one look quick.
            let answer = self.receive();
            if answer["id"] == self.next {
                return answer;
            }
        }
    }

    fn call(&mut self, call: &dyn Fn() -> Value) {
        let answer = self.request("tools/call", &call());
        assert!(answer.to_string().contains("Echo: hello"), "{answer}");
    }

    fn one_by_one(&mut self, call: &dyn Fn() -> Value, calls: usize) -> Vec<Duration> {
        (0..calls)
            .map(|_| {
                let begun = Instant::now();
                self.call(call);
                begun.elapsed()
            })
            .collect()
    }

    /// Calls per second with [`IN_FLIGHT`] on their way.
    fn at_once(&mut self, call: &dyn Fn() -> Value, calls: usize) -> f64 {
        let begun = Instant::now();
        let params = call();
        for _ in 0..IN_FLIGHT {
            self.send("tools/call", &params);
        }
        for _ in IN_FLIGHT..calls {
            self.receive();
            self.send("tools/call", &params);
        }
        for _ in 0..IN_FLIGHT {
            self.receive();
        }
        calls as f64 / begun.elapsed().as_secs_f64()
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
