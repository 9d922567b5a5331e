//! Processes that wait between calls, and the runs that had them: as other terminals see them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::TestContext;
use super::mcp::{McpClient, text};
use super::stage::report;

const PATIENCE: Duration = Duration::from_secs(40);

/// Waits for a sign; the machine may be slow.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that wait, as `adjutant runs list --all` shows them.
pub fn waiting(context: &TestContext) -> Vec<Value> {
    let cards = report(&context.run(["runs", "list", "--all", "--json"]));
    cards.as_array().unwrap().iter().filter(|card| card["idle"] == true).cloned().collect()
}

pub fn one_waits(context: &TestContext) -> u64 {
    wait_for("a process that waits", || waiting(context).first()?["pid"].as_u64())
}

pub fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn gone(pid: u64) {
    wait_for("the end of a process", || (!is_alive(pid)).then_some(()));
}

/// The answer of an agent, as the caller sees it.
pub fn ask(server: &mut McpClient, agent: &str, prompt: &str) -> Value {
    let answer = server.call("run_subagent", json!({ "agent_name": agent, "prompt": prompt }));
    assert_ne!(answer["isError"], true, "{}", text(&answer));
    answer["structuredContent"].clone()
}

/// The pids that runs have had, in order, from the record.
pub fn pids(root: &Path, runs: usize) -> Vec<u64> {
    wait_for("the record", || {
        let started = events(root, "RunStarted");
        let pids: Vec<u64> = started.iter().filter_map(|event| event["pid"].as_u64()).collect();
        (pids.len() >= runs).then_some(pids)
    })
}

/// The events of this name that are in the record by now.
pub fn events(root: &Path, name: &str) -> Vec<Value> {
    let events = fs::read_to_string(root.join("data/events.jsonl")).unwrap_or_default();
    let lines = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|event| event["hook_event_name"] == name).collect()
}
