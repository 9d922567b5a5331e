//! The rows of the table, one function each. Rounds alternate between ours and theirs, so that both meet the same machine.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bare::{self, AGENT};
use crate::comparison::{self, DIRECT, PEER, STDIO};
use crate::support::claude::scripted_environment;
use crate::support::mcp::McpClient;
use crate::support::stage::{NEW, Stage, report};
use crate::{Goal, Row};

/// What the scripted model needs for an answer.
pub const ANSWER_TIME: Duration = Duration::from_millis(10);
const ROUNDS: usize = 15;
/// Runs of the memory row; `ADJUTANT_BENCH_RUNS` for fewer.
const MANY_RUNS: usize = 1_000;

type Measure = fn() -> Vec<Row>;

/// All rows, by name.
pub const ALL: [(&str, Measure); 8] = [
    ("cold", cold),
    ("warm", warm),
    ("live", live),
    ("eight", eight),
    ("slow-server", slow_server),
    ("first-request", first_request),
    ("execute-tool", execute_tool),
    ("memory", memory),
];

fn stage(agent: &str) -> Stage {
    let stage =
        Stage::new(NEW).expect("claude 2.1.325; `cargo test --test it real_claude` installs it");
    stage.model.set_delay(ANSWER_TIME);
    stage.context.agent("fetcher", agent);
    stage
}

fn delegate(client: &mut McpClient, prompt: &str, expected: &str) {
    let result = client.call("run_subagent", json!({ "agent_name": "fetcher", "prompt": prompt }));
    assert_eq!(result["structuredContent"]["result"], expected, "{result}");
}

/// Medians of `rounds` alternating rounds, after one of each that does not count.
fn alternate(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> (f64, f64) {
    ours();
    theirs();
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        their_times.push(timed(&mut theirs));
        our_times.push(timed(&mut ours));
    }
    (median(our_times), median(their_times))
}

fn cold() -> Vec<Row> {
    let stage = stage(AGENT);
    let mut client = stage.serve();
    let (ours, theirs) = alternate(
        ROUNDS,
        || delegate(&mut client, "SAY done", "done"),
        || bare::call(&stage, &bare::passing(), "SAY done", "done"),
    );
    say_where_the_time_went(&stage);
    let what = "`run_subagent`, cold";
    vec![row("cold", what, "bare `claude -p`, same flags", ours, theirs, Goal::AtMost(1.05))]
}

fn warm() -> Vec<Row> {
    let stage = stage(&AGENT.replace("permissions:", "warm: 1\npermissions:"));
    let mut client = stage.serve();
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        their_times.push(timed(|| bare::call(&stage, &bare::passing(), "SAY done", "done")));
        one_waits(&stage);
        our_times.push(timed(|| delegate(&mut client, "SAY done", "done")));
    }
    say_where_the_time_went(&stage);
    let (ours, theirs) = (median(our_times), median(their_times));
    vec![row("warm", "`run_subagent`, warm", "bare `claude -p`", ours, theirs, Goal::AtMost(0.35))]
}

fn live() -> Vec<Row> {
    let stage = stage(&AGENT.replace("permissions:", "session: true\npermissions:"));
    let mut client = stage.serve();
    delegate(&mut client, "SAY first", "first");
    let id = "6f6a7a52-6d1c-4d0e-9a5f-2f8b7a6c1d10";
    let no_servers = "--mcp-config={\"mcpServers\":{}}".to_owned();
    let flags = |flag: &str| vec![no_servers.clone(), format!("--{flag}={id}")];
    bare::call(&stage, &flags("session-id"), "SAY first", "first");
    let resume = flags("resume");
    let (ours, theirs) = alternate(
        ROUNDS,
        || delegate(&mut client, "SAY next", "next"),
        || bare::call(&stage, &resume, "SAY next", "next"),
    );
    say_where_the_time_went(&stage);
    let what = "second turn of a live conversation";
    vec![row("live", what, "`claude -p --resume`", ours, theirs, Goal::AtMost(0.15))]
}

fn eight() -> Vec<Row> {
    let stage = stage(AGENT);
    let mut client = stage.serve();
    let task = json!({ "agent_name": "fetcher", "prompt": "SAY done" });
    let tasks = json!({ "tasks": vec![task; 8] });
    let (ours, theirs) = alternate(
        ROUNDS,
        || {
            let result = client.call("run_subagents", tasks.clone());
            let results = result["structuredContent"]["results"].as_array().unwrap().clone();
            assert!(results.iter().all(|one| one["result"] == "done"), "{result}");
        },
        || {
            let begun: Vec<_> =
                (0..8).map(|_| bare::begin(&stage, &bare::passing(), "SAY done")).collect();
            for child in begun {
                bare::finish(child, "done");
            }
        },
    );
    let what = "8 agents through `run_subagents`, cold";
    vec![row("eight", what, "8 bare `claude -p` side by side", ours, theirs, Goal::AtMost(1.05))]
}

fn slow_server() -> Vec<Row> {
    let Some(server) = comparison::everything() else { return Vec::new() };
    let line = format!("sleep 3; exec {} stdio", server.display());
    let mine = format!(
        "mcp_servers:\n  - name: slow\n    command: sh\n    args: [\"-c\", \"{line}\"]\npermissions:"
    );
    let stage = stage(&AGENT.replace("permissions:", &mine));
    let mut client = stage.serve();
    let config = json!({ "mcpServers": { "slow": { "command": "sh", "args": ["-c", line] } } });
    let flags = vec!["--no-session-persistence".to_owned(), format!("--mcp-config={config}")];
    let (ours, theirs) = alternate(
        ROUNDS / 3,
        || delegate(&mut client, "SAY done", "done"),
        || bare::call(&stage, &flags, "SAY done", "done"),
    );
    let what = "agent with a server that takes 3 s to start, after its first call";
    let against = "bare, it in `--mcp-config`";
    vec![row("slow-server", what, against, ours, theirs, Goal::AtMost(0.3))]
}

fn first_request() -> Vec<Row> {
    let stage = stage(AGENT);
    stage.run("fetcher", "SAY done");
    let ours = stage.model.requests()[0].bytes as f64;
    let before = stage.model.requests().len();
    let mut plain = Command::new(&stage.claude);
    plain
        .args(["-p", "SAY done"])
        .env_clear()
        .envs(scripted_environment(&stage.model, &stage.context.home()));
    plain.current_dir(stage.context.root()).stdin(Stdio::null()).output().expect("claude runs");
    let all = stage.model.requests();
    let theirs = all[before..].iter().map(|request| request.bytes).max().unwrap() as f64;
    let what = "bytes of the first request, one-tool agent";
    let goal = Goal::AtMost(0.15);
    vec![Row {
        unit: "bytes",
        ..row("first-request", what, "bare `claude -p`", ours, theirs, goal)
    }]
}

/// The same tool through the gateway, directly, and through the peer, by the official TypeScript client.
fn execute_tool() -> Vec<Row> {
    let Some(server) = comparison::everything() else { return Vec::new() };
    let project = comparison::project(&server);
    let figures = comparison::with_the_typescript_client(&server, project.path());
    let p50 = |name: &str| figures.iter().find(|one| one.name == name).map(|one| one.p50);
    let (base, ours) = (p50(DIRECT).unwrap(), p50(STDIO).unwrap());
    let what = "`execute_tool`";
    let mut rows =
        vec![row("execute-tool", what, "the direct call", ours, base, Goal::AtMost(1.4))];
    if let Some(theirs) = p50(PEER) {
        let goal = Goal::TimesFaster(15.0);
        rows.push(row("execute-tool-peer", what, "`agent-mcp-gateway`", ours, theirs, goal));
    }
    rows
}

/// What `serve` holds after many runs, against after ten.
fn memory() -> Vec<Row> {
    let stage = stage(&AGENT.replace("permissions:", "warm: 1\npermissions:"));
    stage.model.set_delay(Duration::ZERO);
    let mut client = stage.serve();
    let many = std::env::var("ADJUTANT_BENCH_RUNS").ok().and_then(|runs| runs.parse().ok());
    let mut run = |count: usize| (0..count).for_each(|_| delegate(&mut client, "SAY done", "done"));
    run(10);
    let pid = stage_pid(&stage);
    let ten = resident(pid);
    run(many.unwrap_or(MANY_RUNS) - 10);
    let thousand = resident(pid);
    let what = "memory of `serve` after 1,000 runs";
    let goal = Goal::AtMost(1.1);
    vec![Row { unit: "MB", ..row("memory", what, "after 10", thousand, ten, goal) }]
}

/// The server that holds what waits: the stage has one.
fn stage_pid(stage: &Stage) -> u64 {
    one_waits(stage);
    waiting(stage)[0]["server"]["pid"].as_u64().unwrap()
}

fn resident(pid: u64) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Waits until a warm process is ready.
fn one_waits(stage: &Stage) {
    while waiting(stage).is_empty() {
        thread::sleep(Duration::from_millis(20));
    }
}

fn waiting(stage: &Stage) -> Vec<Value> {
    let listed = stage.adjutant(["runs", "list", "--all", "--json"]).output().unwrap();
    report(&listed)
        .as_array()
        .unwrap()
        .iter()
        .filter(|card| card["idle"] == true)
        .cloned()
        .collect()
}

/// The median of each part of our calls, as `adjutant runs show RUN --timing` has them.
fn say_where_the_time_went(stage: &Stage) {
    let events = fs::read_to_string(stage.context.root().join("data/events.jsonl")).unwrap();
    let mut parts: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        for (part, time) in event["timing_ms"].as_object().into_iter().flatten() {
            let time = Duration::from_secs_f64(time.as_f64().unwrap_or_default() / 1e3);
            parts.entry(part.clone()).or_default().push(time);
        }
    }
    for (part, times) in parts {
        println!("  {part}: {:.1} ms", median(times));
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
    Row { name, what, against, unit: "ms", ours, theirs, goal }
}

fn timed(action: impl FnOnce()) -> Duration {
    let started = Instant::now();
    action();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}
