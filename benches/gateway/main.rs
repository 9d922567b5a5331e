//! `execute_tool` against the direct call, against `agent-mcp-gateway`, and over HTTP against stdio, in one run.
//!
//! `cargo bench --bench gateway` prints three tables. The server behind all of them is `server-everything` (installed by the
//! ordinary tests under `target/mcp-servers`), the tool is `echo`; rules and audit are on. The peer is installed from PyPI
//! below `target` at first use.
//!
//! The first two tables are what a user's client sees: the official TypeScript and Python clients make the calls. In the third the client
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

#[allow(unreachable_pub, reason = "another benchmark uses it too")]
mod comparison;
mod wire;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use memchr::memmem;
use serde_json::{Value, json};

use comparison::{
    AT_ONCE, CALLS, CALLS_OF_PEER, DIRECT, Figures, HTTP, HttpGateway, IN_FLIGHT, PEER, ROUNDS,
    STDIO, direct_call, gateway_call,
};
use wire::{FIRST_ID, Prepared, Wire};

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
    let Some(server) = comparison::everything() else { return };
    let project = comparison::project(&server);
    println!("with the official TypeScript client");
    print(&comparison::with_the_typescript_client(&server, project.path()));
    if let Some(figures) = comparison::with_the_python_client(&server, project.path()) {
        println!("\nwith the official Python client");
        print(&figures);
    }
    let mut direct = Command::new(&server);
    direct.arg("stdio");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_adjutant"));
    ours.arg("gateway").current_dir(project.path()).env("RUST_LOG", "error");
    let http = HttpGateway::start(project.path());
    let mut all = vec![
        Contestant::new(DIRECT, direct, direct_call(), CALLS),
        Contestant::new("relay", relay_command(&server), direct_call(), CALLS),
        Contestant::new(STDIO, ours, gateway_call(), CALLS),
        Contestant::over(&http),
    ];
    if let Some(peer) = comparison::peer() {
        let mut command = Command::new(peer);
        command.current_dir(project.path());
        all.push(Contestant::new(PEER, command, gateway_call(), CALLS_OF_PEER));
    }
    for _ in 0..ROUNDS {
        all.iter_mut().for_each(Contestant::round);
    }
    println!("\nwith a client that does next to nothing");
    print(&all.iter().map(Contestant::figures).collect::<Vec<_>>());
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

/// One of those that are compared. The rounds alternate, so that what else the machine does hits all alike.
struct Contestant {
    name: &'static str,
    client: Client,
    call: Value,
    calls: usize,
    start: Option<Duration>,
    rounds: Vec<(Vec<Duration>, f64)>,
}

impl Contestant {
    fn new(name: &'static str, mut command: Command, call: Value, calls: usize) -> Self {
        let begin = |command: &mut Command| {
            let begun = Instant::now();
            let mut client = Client::start(command);
            let mut list = client.prepare("tools/list", &json!({}));
            client.request(&mut list);
            (client, begun.elapsed())
        };
        // Once for the caches of the system.
        drop(begin(&mut command));
        let (client, start) = begin(&mut command);
        Self::ready(name, client, call, calls, Some(start))
    }

    /// Ours over one HTTP connection.
    fn over(http: &HttpGateway) -> Self {
        let wire = Wire::connect(http);
        let client = Client { child: None, wire, next: 0, message: Vec::new() };
        Self::ready(HTTP, client, gateway_call(), CALLS, None)
    }

    fn ready(
        name: &'static str,
        mut client: Client,
        call: Value,
        calls: usize,
        start: Option<Duration>,
    ) -> Self {
        client.one_by_one(&call, 100);
        Self { name, client, call, calls, start, rounds: Vec::new() }
    }

    fn round(&mut self) {
        let times = self.client.one_by_one(&self.call, self.calls);
        let rate = self.client.at_once(&self.call, self.calls * AT_ONCE);
        self.rounds.push((times, rate));
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
            start: self.start.map(|start| start.as_secs_f64() * 1e3),
            memory: self.client.memory(),
        }
    }
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
    /// What was started for it.
    child: Option<Child>,
    wire: Wire,
    next: u64,
    /// The last one that came.
    message: Vec<u8>,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let (child, wire) = Wire::start(command);
        let mut client = Self { child: Some(child), wire, next: 0, message: Vec::new() };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
        });
        let mut hello = client.prepare("initialize", &hello);
        client.request(&mut hello);
        client.wire.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client
    }

    fn prepare(&self, method: &str, params: &Value) -> Prepared {
        let message =
            json!({ "jsonrpc": "2.0", "id": FIRST_ID, "method": method, "params": params });
        self.wire.prepare(&message)
    }

    fn send(&mut self, message: &mut Prepared) {
        self.next += 1;
        self.wire.send(message.with(FIRST_ID + self.next));
    }

    /// Reads the next answer; notifications are passed over.
    fn receive(&mut self) {
        loop {
            self.wire.receive(&mut self.message);
            if self.says(b"\"id\":") && !self.says(b"\"method\":") {
                return;
            }
        }
    }

    fn says(&self, words: &[u8]) -> bool {
        memmem::find(&self.message, words).is_some()
    }

    /// Sends it and reads on to its answer: one to an earlier request must not make this one look quick.
    fn request(&mut self, message: &mut Prepared) {
        self.send(message);
        let id = (FIRST_ID + self.next).to_string();
        loop {
            self.receive();
            if self.says(id.as_bytes()) {
                return;
            }
        }
    }

    fn call(&mut self, call: &mut Prepared) {
        self.request(call);
        let answer = String::from_utf8_lossy(&self.message);
        assert!(answer.contains("Echo: hello"), "{answer}");
    }

    fn one_by_one(&mut self, call: &Value, calls: usize) -> Vec<Duration> {
        let mut call = self.prepare("tools/call", call);
        (0..calls)
            .map(|_| {
                let begun = Instant::now();
                self.call(&mut call);
                begun.elapsed()
            })
            .collect()
    }

    /// Calls per second with [`IN_FLIGHT`] on their way.
    fn at_once(&mut self, call: &Value, calls: usize) -> f64 {
        let mut call = self.prepare("tools/call", call);
        let begun = Instant::now();
        for _ in 0..IN_FLIGHT {
            self.send(&mut call);
        }
        for _ in IN_FLIGHT..calls {
            self.receive();
            self.send(&mut call);
        }
        for _ in 0..IN_FLIGHT {
            self.receive();
        }
        calls as f64 / begun.elapsed().as_secs_f64()
    }

    /// Resident memory in MB.
    fn memory(&self) -> Option<f64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.as_ref()?.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
