//! The real `claude`, whose `Bash` starts a shell in a session of its own, with a job in its background.

use std::fs;

use serde_json::json;
use test_case::test_case;

use super::family::{Member, assert_gone_soon, wait_until};
use crate::support::mcp::text;
use crate::support::stage::{NEW, OLD, Stage};

const AGENT: &str = "---\nname: shell\ndescription: \"has a shell\"\ntimeout_ms: 25000\n\
    permissions:\n  allow: [\"Bash\"]\n---\nYou have a shell.\n";

#[test_case(NEW; "new")]
#[test_case(OLD; "old")]
fn a_background_job_of_a_real_shell_is_gone_after_a_timeout(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    stage.context.agent("shell", AGENT);
    let mut client = stage.serve();
    // `sleep` in the foreground is refused by newer versions.
    let wait = "tail -f /dev/null";
    let command = format!(
        "{wait} & echo $! > job; nohup setsid {wait} > /dev/null 2>&1 & echo $! > daemon; {wait}"
    );
    let prompt = format!("SAY on it\nCALL Bash {}", json!({ "command": command }));
    let arguments = json!({ "agent_name": "shell", "prompt": prompt });
    let call =
        client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    let family = ["job", "daemon"].map(|file| {
        let pid = wait_until(file, || {
            fs::read_to_string(stage.context.root().join(file)).ok()?.trim().parse().ok()
        });
        Member::of(pid).expect("it runs")
    });
    let answer = client.answer(call);
    assert!(text(&answer).starts_with("TIMEOUT: "), "{answer}");
    assert!(text(&answer).contains("on it"), "{answer}");
    let run = answer.pointer("/_meta/adjutant~1error/run_id").and_then(|run| run.as_str()).unwrap();
    assert_gone_soon("a real shell's jobs", &family, run);
}
