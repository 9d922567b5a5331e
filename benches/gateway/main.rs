//! `execute_tool` against the direct call, against `agent-mcp-gateway`, and over HTTP against stdio, in one run.
//!
//! `cargo bench --bench gateway` prints three tables. The downstream server is `server-everything` (installed by `cargo
//! test` under `target/mcp-servers`) with the tool `echo`; rules and audit log are on. The peer is installed from PyPI
//! below `target` at first use.
//!
//! The first two tables show the official TypeScript and Python clients. The third uses a minimal client, so that
//! its own cost does not hide that of the gateway. Its row `relay` is a program that only copies bytes between client and
//! server: the minimum cost of another process in between. Over HTTP all calls use one connection, and concurrent requests
//! are pipelined.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark says what is wrong by failing"
)]

#[path = "../common/mod.rs"]
mod common;
#[allow(unreachable_pub, reason = "another benchmark uses it too")]
mod comparison;

use std::env;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use common::client::Client;
use common::execute_tool::{self, ANSWER, AT_ONCE, CALLS, direct_call, gateway_call};
use common::http_gateway::HttpGateway;
use common::statistics::{median, percentile};
use comparison::{CALLS_OF_PEER, DIRECT, Figures, HTTP, PEER, ROUNDS, STDIO};

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, server] = arguments.as_slice()
        && word == "--relay"
    {
        return relay(server);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let Some(server) = execute_tool::everything() else { return };
    let project = execute_tool::project(&server);
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
    let http = HttpGateway::start(env!("CARGO_BIN_EXE_adjutant").as_ref(), project.path());
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

/// Copies bytes between stdio and a server.
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

/// One of the compared gateways. Rounds alternate, so that other load on the machine affects all alike.
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
        // Fills the file system cache; not counted.
        drop(begin(&mut command));
        let (client, start) = begin(&mut command);
        Self::ready(name, client, call, calls, Some(start))
    }

    /// Adjutant over one HTTP connection.
    fn over(http: &HttpGateway) -> Self {
        Self::ready(HTTP, Client::connect(http), gateway_call(), CALLS, None)
    }

    fn ready(
        name: &'static str,
        mut client: Client,
        call: Value,
        calls: usize,
        start: Option<Duration>,
    ) -> Self {
        client.one_by_one(&call, ANSWER, 100);
        Self { name, client, call, calls, start, rounds: Vec::new() }
    }

    fn round(&mut self) {
        let times = self.client.one_by_one(&self.call, ANSWER, self.calls);
        let rate = self.client.at_once(&self.call, self.calls * AT_ONCE);
        self.rounds.push((times, rate));
    }

    /// The median of the percentiles of all rounds, in milliseconds.
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
