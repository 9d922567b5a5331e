//! Calls through `adjutant gateway`, with rules and audit on, each build in a project of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::client::Client;
use crate::common::execute_tool::{self, ANSWER, AT_ONCE, CALLS, direct_call, gateway_call};
use crate::common::http_gateway::HttpGateway;
use crate::common::statistics::{median, median_ms, percentile};
use crate::pair::{Pair, Programs, alternate};
use crate::row::{Limit, Row};

/// Alternations in each round. Slices of 10 to 100 ms meet the same load; an even number lets each build be first in half
/// of them.
const SLICES: usize = 30;

/// Sequential calls of one slice.
const CALLS_PER_SLICE: usize = CALLS / SLICES;
/// Denied calls take a third of the time or less.
const DENIED_CALLS_PER_SLICE: usize = 200;

/// A client with the call it makes; the project lives as long as its gateway.
struct Caller {
    client: Client,
    call: Value,
    expected: &'static str,
    _http: Option<HttpGateway>,
    project: Option<TempDir>,
}

impl Caller {
    fn direct(server: &Path) -> Self {
        let client = Client::start(Command::new(server).arg("stdio"));
        Self { client, call: direct_call(), expected: ANSWER, _http: None, project: None }
    }

    fn stdio(program: &Path, server: &Path) -> Self {
        let project = execute_tool::project(server);
        let mut command = Command::new(program);
        command.arg("gateway").current_dir(project.path()).env("RUST_LOG", "error");
        let client = Client::start(&mut command);
        let project = Some(project);
        Self { client, call: gateway_call(), expected: ANSWER, _http: None, project }
    }

    fn http(program: &Path, server: &Path) -> Self {
        let project = execute_tool::project(server);
        let http = HttpGateway::start(program, project.path());
        let client = Client::connect(&http);
        let (http, project) = (Some(http), Some(project));
        Self { client, call: gateway_call(), expected: ANSWER, _http: http, project }
    }

    fn one_by_one(&mut self, calls: usize) -> Vec<Duration> {
        self.client.one_by_one(&self.call, self.expected, calls)
    }

    /// The last entry of the audit log.
    fn last_audit_entry(&self) -> String {
        let project = self.project.as_ref().expect("a gateway has one");
        let log = fs::read_to_string(project.path().join("data/audit.jsonl")).expect("audit is on");
        log.lines().last().unwrap_or_default().to_owned()
    }
}

/// The figures of one build in one round, from its slices.
#[derive(Clone, Copy)]
struct Figures {
    p50: f64,
    p95: f64,
    rate: f64,
}

/// One slice: the durations of sequential calls, and calls per second with 32 in flight.
fn slice(caller: &mut Caller) -> (Vec<Duration>, f64) {
    let times = caller.one_by_one(CALLS_PER_SLICE);
    (times, caller.client.at_once(&caller.call, CALLS_PER_SLICE * AT_ONCE))
}

fn figures(slices: &[(Vec<Duration>, f64)]) -> Figures {
    let times: Vec<Duration> = slices.iter().flat_map(|(times, _)| times.clone()).collect();
    Figures {
        p50: percentile(&times, 0.50),
        p95: percentile(&times, 0.95),
        rate: median(slices.iter().map(|(_, rate)| *rate).collect()),
    }
}

/// Over stdio, and the ratio of each build to the direct call in the same rounds.
pub fn execute_tool(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let server = server()?;
    let mut direct = Caller::direct(&server);
    let mut gateways = programs.each(|program| Caller::stdio(program, &server));
    let measured = alternate(rounds, || {
        let direct_slices: Vec<_> = (0..SLICES).map(|_| slice(&mut direct)).collect();
        let slices = gateways.repeat(SLICES, slice);
        (figures(&direct_slices), slices.map(|slices| figures(slices)))
    });
    let column = |of: fn(&Figures) -> f64| measured.iter().map(move |(_, pair)| pair.map(of));
    let to_direct = |of: fn(&Figures) -> f64| {
        measured.iter().map(move |(direct, pair)| pair.map(|one| of(one) / of(direct)))
    };
    Some(vec![
        Row::time("execute_tool, p50", column(|one| one.p50)),
        Row::time("execute_tool, p95", column(|one| one.p95)),
        Row::new(
            "execute_tool, 32 in flight",
            "calls/s",
            Limit::Throughput,
            column(|one| one.rate),
        ),
        Row::new("  p50 / direct call", "", Limit::None, to_direct(|one| one.p50)),
        Row::new("  p95 / direct call", "", Limit::None, to_direct(|one| one.p95)),
        Row::new("  calls/s / direct call", "", Limit::None, to_direct(|one| one.rate)),
    ])
}

/// Over HTTP, revision 2026-07-28, on one connection.
pub fn execute_tool_over_http(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let server = server()?;
    let mut gateways = programs.each(|program| Caller::http(program, &server));
    Some(vec![Row::time(
        "execute_tool over HTTP, p50",
        p50(&mut gateways, rounds, CALLS_PER_SLICE),
    )])
}

/// A call that a rule denies. No server is called, so parsing, the decision and the audit entry are all of it.
pub fn denied_call(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let server = server()?;
    let mut gateways = programs.each(|program| Caller {
        call: json!({ "name": "execute_tool", "arguments": {
            "agent_id": "dev", "server": "everything", "tool": "get-env", "args": {},
        }}),
        expected: "DENIED_BY_POLICY",
        ..Caller::stdio(program, &server)
    });
    let measured = p50(&mut gateways, rounds, DENIED_CALLS_PER_SLICE);
    let audited = gateways.map(|caller| caller.last_audit_entry().contains("get-env"));
    assert!(audited.old && audited.new, "denied calls are in the audit log");
    Some(vec![Row::time("denied call with audit entry, p50", measured)])
}

/// The median of each round's sequential calls.
fn p50(gateways: &mut Pair<Caller>, rounds: usize, calls: usize) -> Vec<Pair<f64>> {
    alternate(rounds, || {
        let slices = gateways.repeat(SLICES, |caller| caller.one_by_one(calls));
        slices.map(|slices| median_ms(&slices.concat()))
    })
}

/// The server behind the gateway; `None` where it or Node is missing.
fn server() -> Option<PathBuf> {
    let server = execute_tool::everything()?;
    let has_node = Command::new("node").arg("--version").output().is_ok();
    if !has_node {
        println!("`node` is not in PATH; server-everything needs it");
    }
    has_node.then_some(server)
}
