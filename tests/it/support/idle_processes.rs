//! Idle processes and the processes of past runs, as another program sees them.

use std::fs;

use serde_json::{Value, json};

use super::TestContext;
use super::claude_context::report;
use super::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

/// The idle processes, from `adjutant runs list --all`.
pub fn idle_processes(context: &TestContext) -> Vec<Value> {
    let entries = report(&context.run(["runs", "list", "--all", "--json"]));
    entries.as_array().unwrap().iter().filter(|entry| entry["state"] == "kept").cloned().collect()
}

pub fn wait_for_idle_process(context: &TestContext) -> u64 {
    wait_until("a process that waits", || idle_processes(context).first()?["pid"].as_u64())
}

pub fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn wait_until_gone(pid: u64) {
    wait_until("the end of a process", || (!is_alive(pid)).then_some(()));
}

/// Calls an agent, asserts success, and returns the structured content of the answer.
pub fn call_agent(server: &mut McpClient, agent: &str, prompt: &str) -> Value {
    let answer = server.call_tool("run_subagent", json!({ "agent_name": agent, "prompt": prompt }));
    assert_ne!(answer["isError"], true, "{}", result_text(&answer));
    answer["structuredContent"].clone()
}

/// Waits for this many runs and returns the pids of all runs so far, in order, from the event log.
pub fn pids_of_runs(context: &TestContext, runs: usize) -> Vec<u64> {
    wait_until("the record", || {
        let started = context.events_named("RunStarted");
        let pids: Vec<u64> = started.iter().filter_map(|event| event["pid"].as_u64()).collect();
        (pids.len() >= runs).then_some(pids)
    })
}
