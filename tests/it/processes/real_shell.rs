//! The real `claude`: its `Bash` tool starts a shell in its own session, with a background job.

use std::fs;

use serde_json::json;
use test_case::test_case;

use super::process_tree::{TreeProcess, assert_gone_within_5_s};
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::wait::wait_until;

const SHELL_AGENT: &str = "---\nname: shell\ndescription: \"has a shell\"\ntimeout_ms: 25000\n\
    permissions:\n  allow: [\"Bash\"]\n---\nYou have a shell.\n";

#[test_case(NEW; "new")]
#[test_case(OLD; "old")]
fn background_job_of_a_real_shell_is_killed_at_the_timeout(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("shell", SHELL_AGENT);
    let mut client = fixture.serve();
    // Newer versions reject `sleep` in the foreground.
    let wait = "tail -f /dev/null";
    let command = format!(
        "{wait} & echo $! > job; nohup setsid {wait} > /dev/null 2>&1 & echo $! > daemon; {wait}"
    );
    let prompt = format!("SAY on it\nCALL Bash {}", json!({ "command": command }));
    let arguments = json!({ "agent_name": "shell", "prompt": prompt });
    let call = client
        .send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    let family = ["job", "daemon"].map(|file| {
        let pid = wait_until(file, || {
            fs::read_to_string(fixture.root().join(file)).ok()?.trim().parse().ok()
        });
        TreeProcess::of(pid).expect("it runs")
    });
    let answer = client.answer(call);
    let report = &answer["_meta"]["adjutant/error"];
    assert_eq!([&report["error"]["code"], &report["partial"]], ["TIMEOUT", "on it"], "{answer}");
    let run = answer.pointer("/_meta/adjutant~1error/run_id").and_then(|run| run.as_str()).unwrap();
    assert_gone_within_5_s("a real shell's jobs", &family, run);
}
