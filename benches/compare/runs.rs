//! Delegations with the real `claude` and the scripted model, each build in a project of its own.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use crate::common::statistics::{median_ms, timed};
use crate::delegation::{self, AGENT, delegate, wait_until_warm};
use crate::pair::{Pair, Programs, alternate};
use crate::row::Row;
use crate::support::claude_context::ClaudeContext;
use crate::support::mcp::McpClient;

/// Runs of each build in one round, of which the median counts. Even numbers: each build is first in half of them.
const COLD_RUNS: usize = 2;
const WARM_RUNS: usize = 2;
/// Turns of each build in one round. The event log has tenths of a millisecond; the mean of ten turns has more digits.
const LIVE_TURNS: usize = 10;

/// Processes of agents that stay after a run.
#[derive(Clone, Copy, PartialEq)]
enum Idle {
    None,
    Warm,
    Live,
}

/// A project and the client of `serve` in it. The client is dropped first.
struct Side {
    client: McpClient,
    fixture: ClaudeContext,
    idle: Idle,
}

impl Side {
    fn new(program: &Path, agent: &str, idle: Idle) -> Option<Self> {
        let fixture = delegation::fixture(program, agent)?;
        let mut serve = fixture.adjutant(["serve"]);
        serve.env("RUST_LOG", "error");
        let side = Self { client: McpClient::connect(serve), fixture, idle };
        side.settle();
        Some(side)
    }

    /// The time of one run. Returns when the processes that the run started or ended no longer use the processor.
    fn run(&mut self) -> Duration {
        let time = timed(|| delegate(&mut self.client, "SAY done", "done"));
        self.settle();
        time
    }

    /// Waits until the processes of finished runs have exited, at most 5 s, and until a warm process is ready.
    fn settle(&self) {
        if self.idle == Idle::Warm {
            wait_until_warm(&self.fixture);
        }
        let most = usize::from(self.idle != Idle::None);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.agents() > most && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes in the project's folder, without the server.
    fn agents(&self) -> usize {
        let (root, server) = (self.fixture.context.root(), self.client.pid().to_string());
        let is_agent = |process: &fs::DirEntry| {
            *process.file_name() != *server
                && fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder == root)
        };
        fs::read_dir("/proc").expect("Linux").flatten().filter(is_agent).count()
    }

    /// What each run so far spent on writes before its answer (`record` in `timing_ms`, docs/warm.md).
    fn record_ms(&self) -> Vec<f64> {
        let log = self.fixture.context.root().join("data/events.jsonl");
        let events = fs::read_to_string(log).unwrap_or_default();
        let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| event["timing_ms"]["record"].as_f64()).collect()
    }
}

fn sides(programs: &Programs, agent: &str, idle: Idle) -> Option<Pair<Side>> {
    programs.try_each(|program| Side::new(program, agent, idle))
}

/// The median of each round's runs.
fn medians_of_rounds(sides: &mut Pair<Side>, rounds: usize, runs: usize) -> Vec<Pair<f64>> {
    alternate(rounds, || sides.repeat(runs, Side::run).map(|times| median_ms(times)))
}

/// `run_subagent` with a process started for it.
pub fn cold(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let mut sides = sides(programs, AGENT, Idle::None)?;
    let measured = medians_of_rounds(&mut sides, rounds, COLD_RUNS);
    Some(vec![Row::time("run_subagent, cold", measured)])
}

/// `run_subagent` with a process that was started in advance.
pub fn warm(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let agent = AGENT.replace("permissions:", "warm: 1\npermissions:");
    let mut sides = sides(programs, &agent, Idle::Warm)?;
    let measured = medians_of_rounds(&mut sides, rounds, WARM_RUNS);
    Some(vec![Row::time("run_subagent, warm", measured)])
}

/// Later turns of a session, in the process of its first turn; and the session commit of these turns.
pub fn live(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let agent = AGENT.replace("permissions:", "session: true\npermissions:");
    let mut sides = sides(programs, &agent, Idle::Live)?;
    sides.measure(0, Side::run);
    let measured = medians_of_rounds(&mut sides, rounds, LIVE_TURNS);
    let mut rows = vec![Row::time("run_subagent, live (later turns)", measured)];
    rows.extend(session_commit(&sides, rounds));
    Some(rows)
}

/// The mean of `record` in each round: the session commit and the posting of the cost.
fn session_commit(sides: &Pair<Side>, rounds: usize) -> Option<Row> {
    let recorded = sides.map(Side::record_ms);
    // The first turn and the warm-up round do not count.
    let (before, all) = (1 + LIVE_TURNS, 1 + LIVE_TURNS * (rounds + 1));
    if recorded.old.len() != all || recorded.new.len() != all {
        println!("  `timing_ms.record` is not in data/events.jsonl for every turn; row left out");
        return None;
    }
    let means = (0..rounds).map(|round| {
        recorded.map(|times| {
            let start = before + round * LIVE_TURNS;
            times[start..start + LIVE_TURNS].iter().sum::<f64>() / LIVE_TURNS as f64
        })
    });
    Some(Row::time("session commit and cost of a live turn", means))
}
