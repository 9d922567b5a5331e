//! The rows of the table, one function each. Rounds alternate between both sides, so both see the same machine load.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::execute_tool;
use crate::common::statistics::{median_ms, timed};
use crate::comparison::{self, DIRECT, PEER, STDIO};
use crate::delegation::{self, AGENT, delegate, idle_processes, wait_until_warm};
use crate::support::claude_context::ClaudeContext;
use crate::support::real_claude::scripted_environment;
use crate::{Goal, Row, baseline};

const ROUNDS: usize = 15;
/// Runs of the memory row, unless `ADJUTANT_BENCH_RUNS` is set.
const DEFAULT_MEMORY_RUNS: usize = 1_000;

type Measure = fn() -> Vec<Row>;

pub const ALL: [(&str, Measure); 8] = [
    ("cold", cold),
    ("warm", warm),
    ("live", live),
    ("eight", eight_concurrent),
    ("slow-server", slow_server),
    ("first-request", first_request),
    ("execute-tool", execute_tool),
    ("memory", memory),
];

/// Medians of `rounds` alternating rounds, after one of each that does not count.
fn alternate(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> (f64, f64) {
    ours();
    theirs();
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        their_times.push(timed(&mut theirs));
        our_times.push(timed(&mut ours));
    }
    (median_ms(&our_times), median_ms(&their_times))
}

fn claude_project(agent: &str) -> ClaudeContext {
    delegation::fixture(env!("CARGO_BIN_EXE_adjutant").as_ref(), agent)
        .expect("claude 2.1.325; `cargo test --test it real_claude` installs it")
}

fn cold() -> Vec<Row> {
    let fixture = claude_project(AGENT);
    let mut client = fixture.serve();
    let (ours, theirs) = alternate(
        ROUNDS,
        || delegate(&mut client, "SAY done", "done"),
        || baseline::call(&fixture, &baseline::one_shot_flags(), "SAY done", "done"),
    );
    print_phase_medians(&fixture);
    let what = "`run_subagent`, cold";
    vec![row("cold", what, "bare `claude -p`, same flags", ours, theirs, Goal::AtMost(1.05))]
}

fn warm() -> Vec<Row> {
    let fixture = claude_project(&AGENT.replace("permissions:", "warm: 1\npermissions:"));
    let mut client = fixture.serve();
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        their_times.push(timed(|| {
            baseline::call(&fixture, &baseline::one_shot_flags(), "SAY done", "done");
        }));
        wait_until_warm(&fixture);
        our_times.push(timed(|| delegate(&mut client, "SAY done", "done")));
    }
    print_phase_medians(&fixture);
    let (ours, theirs) = (median_ms(&our_times), median_ms(&their_times));
    vec![row("warm", "`run_subagent`, warm", "bare `claude -p`", ours, theirs, Goal::AtMost(0.35))]
}

fn live() -> Vec<Row> {
    let fixture = claude_project(&AGENT.replace("permissions:", "session: true\npermissions:"));
    let mut client = fixture.serve();
    delegate(&mut client, "SAY first", "first");
    let id = "6f6a7a52-6d1c-4d0e-9a5f-2f8b7a6c1d10";
    let no_servers = "--mcp-config={\"mcpServers\":{}}".to_owned();
    let flags = |flag: &str| vec![no_servers.clone(), format!("--{flag}={id}")];
    baseline::call(&fixture, &flags("session-id"), "SAY first", "first");
    let resume = flags("resume");
    let (ours, theirs) = alternate(
        ROUNDS,
        || delegate(&mut client, "SAY next", "next"),
        || baseline::call(&fixture, &resume, "SAY next", "next"),
    );
    print_phase_medians(&fixture);
    let what = "second turn of a live conversation";
    vec![row("live", what, "`claude -p --resume`", ours, theirs, Goal::AtMost(0.15))]
}

fn eight_concurrent() -> Vec<Row> {
    let fixture = claude_project(AGENT);
    let mut client = fixture.serve();
    let task = json!({ "agent_name": "fetcher", "prompt": "SAY done" });
    let tasks = json!({ "tasks": vec![task; 8] });
    let (ours, theirs) = alternate(
        ROUNDS,
        || {
            let result = client.call_tool("run_subagents", tasks.clone());
            let results = result["structuredContent"]["results"].as_array().unwrap().clone();
            assert!(results.iter().all(|one| one["result"] == "done"), "{result}");
        },
        || {
            let begun: Vec<_> = (0..8)
                .map(|_| baseline::start(&fixture, &baseline::one_shot_flags(), "SAY done"))
                .collect();
            for child in begun {
                baseline::finish(child, "done");
            }
        },
    );
    let what = "8 agents through `run_subagents`, cold";
    vec![row("eight", what, "8 bare `claude -p` side by side", ours, theirs, Goal::AtMost(1.05))]
}

fn slow_server() -> Vec<Row> {
    let Some(server) = execute_tool::everything() else { return Vec::new() };
    let line = format!("sleep 3; exec {} stdio", server.display());
    let mine = format!(
        "mcp_servers:\n  - name: slow\n    command: sh\n    args: [\"-c\", \"{line}\"]\npermissions:"
    );
    let fixture = claude_project(&AGENT.replace("permissions:", &mine));
    let mut client = fixture.serve();
    let config = json!({ "mcpServers": { "slow": { "command": "sh", "args": ["-c", line] } } });
    let flags = vec!["--no-session-persistence".to_owned(), format!("--mcp-config={config}")];
    let (ours, theirs) = alternate(
        ROUNDS / 3,
        || delegate(&mut client, "SAY done", "done"),
        || baseline::call(&fixture, &flags, "SAY done", "done"),
    );
    let what = "agent with a server that takes 3 s to start, after its first call";
    let against = "bare, it in `--mcp-config`";
    vec![row("slow-server", what, against, ours, theirs, Goal::AtMost(0.3))]
}

fn first_request() -> Vec<Row> {
    let fixture = claude_project(AGENT);
    fixture.run("fetcher", "SAY done");
    let ours = fixture.model.requests()[0].bytes as f64;
    let before = fixture.model.requests().len();
    let mut plain = Command::new(&fixture.claude);
    plain
        .args(["-p", "SAY done"])
        .env_clear()
        .envs(scripted_environment(&fixture.model, &fixture.context.home()));
    plain.current_dir(fixture.context.root()).stdin(Stdio::null()).output().expect("claude runs");
    let all = fixture.model.requests();
    let theirs = all[before..].iter().map(|request| request.bytes).max().unwrap() as f64;
    let what = "bytes of the first request, one-tool agent";
    let goal = Goal::AtMost(0.15);
    vec![Row {
        unit: "bytes",
        ..row("first-request", what, "bare `claude -p`", ours, theirs, goal)
    }]
}

/// One tool called through the gateway, directly, and through `agent-mcp-gateway`, with the TypeScript SDK's client.
fn execute_tool() -> Vec<Row> {
    let Some(server) = execute_tool::everything() else { return Vec::new() };
    let project = execute_tool::project(&server);
    let figures = comparison::with_the_typescript_client(&server, project.path());
    let p50 = |name: &str| figures.iter().find(|one| one.name == name).map(|one| one.p50);
    let (base, ours) = (p50(DIRECT).unwrap(), p50(STDIO).unwrap());
    let what = "`execute_tool`";
    let mut rows =
        vec![row("execute-tool", what, "the direct call", ours, base, Goal::AtMost(1.4))];
    if let Some(theirs) = p50(PEER) {
        let goal = Goal::AtLeastTimesFaster(15.0);
        rows.push(row("execute-tool-peer", what, "`agent-mcp-gateway`", ours, theirs, goal));
    }
    rows
}

/// Resident memory of `serve` after 1,000 runs, against after 10.
fn memory() -> Vec<Row> {
    let fixture = claude_project(&AGENT.replace("permissions:", "warm: 1\npermissions:"));
    fixture.model.set_delay(Duration::ZERO);
    let mut client = fixture.serve();
    let many = std::env::var("ADJUTANT_BENCH_RUNS").ok().and_then(|runs| runs.parse().ok());
    let mut run = |count: usize| (0..count).for_each(|_| delegate(&mut client, "SAY done", "done"));
    run(10);
    let pid = server_pid(&fixture);
    let ten = resident_mib(pid);
    run(many.unwrap_or(DEFAULT_MEMORY_RUNS) - 10);
    let thousand = resident_mib(pid);
    let what = "memory of `serve` after 1,000 runs";
    let goal = Goal::AtMost(1.1);
    vec![Row { unit: "MB", ..row("memory", what, "after 10", thousand, ten, goal) }]
}

/// Pid of the server that owns the idle process.
fn server_pid(fixture: &ClaudeContext) -> u64 {
    wait_until_warm(fixture);
    idle_processes(fixture)[0]["server"]["pid"].as_u64().unwrap()
}

fn resident_mib(pid: u64) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// The median of each part of our calls, as `adjutant runs show RUN --timing` has them.
fn print_phase_medians(fixture: &ClaudeContext) {
    let events = fs::read_to_string(fixture.context.root().join("data/events.jsonl")).unwrap();
    let mut parts: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        for (part, time) in event["timing_ms"].as_object().into_iter().flatten() {
            let time = Duration::from_secs_f64(time.as_f64().unwrap_or_default() / 1e3);
            parts.entry(part.clone()).or_default().push(time);
        }
    }
    for (part, times) in parts {
        println!("  {part}: {:.1} ms", median_ms(&times));
    }
}

fn row(
    name: &'static str,
    what: &'static str,
    against: &'static str,
    ours: f64,
    theirs: f64,
    goal: Goal,
) -> Row {
    Row { name, title: what, baseline: against, unit: "ms", ours, theirs, goal }
}
