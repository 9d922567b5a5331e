//! Delegations with the real `claude` and the scripted model.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude_context::{ClaudeContext, NEW, report};
use crate::support::mcp::McpClient;

/// An agent with one tool and a prompt of its own.
pub const AGENT: &str = "---\nname: fetcher\ndescription: Fetches pages\npermissions:\n  allow: [\"Bash(curl:*)\"]\n---\nYou fetch pages.\n";

/// The response time of the scripted model.
pub const ANSWER_TIME: Duration = Duration::from_millis(10);

/// A project with this agent, for this program; `None`, with a message, if `claude` is missing.
pub fn fixture(program: &Path, agent: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::with_program(NEW, program)?;
    fixture.model.set_delay(ANSWER_TIME);
    fixture.context.agent("fetcher", agent);
    Some(fixture)
}

/// Runs the agent and checks its result.
pub fn delegate(client: &mut McpClient, prompt: &str, expected: &str) {
    let result =
        client.call_tool("run_subagent", json!({ "agent_name": "fetcher", "prompt": prompt }));
    assert_eq!(result["structuredContent"]["result"], expected, "{result}");
}

/// Waits until a warm process is ready.
pub fn wait_until_warm(fixture: &ClaudeContext) {
    while idle_processes(fixture).is_empty() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// The idle processes, from `adjutant runs list --all`.
pub fn idle_processes(fixture: &ClaudeContext) -> Vec<Value> {
    let listed = fixture.adjutant(["runs", "list", "--all", "--json"]).output().unwrap();
    report(&listed)
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["idle"] == true)
        .cloned()
        .collect()
}
