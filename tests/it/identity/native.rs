//! The real `claude`: a main agent and a native subagent that call at the same time.

use serde_json::{Value, json};
use test_case::test_case;

use super::{audited, main_agent, stage, used};
use crate::support::stage::{NEW, OLD};

const TIMES: usize = 10;

/// What both agents do: the same calls, again and again.
fn calls() -> String {
    let run = json!({"agent_name": "for-main", "prompt": "FAKE result done"});
    let execute = json!({"server": "good", "tool": "echo", "args": {"text": "x"}});
    let round = format!(
        "CALL mcp__adjutant__run_subagent {run}\nCALL mcp__adjutant__execute_tool {execute}\n"
    );
    round.repeat(TIMES)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn main_and_subagent_are_told_apart_ten_times_out_of_ten(version: &str) {
    let Some(stage) = stage(version) else { return };
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "run_in_background": true,
        "prompt": format!("{}SAY reviewed", calls()),
    });
    let output = main_agent(&stage, &format!("CALL Task {task}\n{}SLEEP 2\nSAY done", calls()));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let transcripts = stage.context.home().join(".claude/projects");
    let of_main = used(&transcripts, "/subagents/", false);
    let of_reviewer = used(&transcripts, "/subagents/", true);
    for operation in ["run_subagent", "execute_tool"] {
        let lines = audited(&stage, operation);
        assert!(lines.iter().all(|line| line["known_by"] == "attested"), "{lines:#?}\n{told}");
        let of = |agent: &str, ids: &[String]| -> Vec<Value> {
            let is_of = |line: &&Value| ids.iter().any(|id| line["call_id"] == *id);
            let found: Vec<Value> = lines.iter().filter(is_of).cloned().collect();
            assert!(found.iter().all(|line| line["agent"] == agent), "{found:#?}");
            found
        };
        let (main, reviewer) = (of("main", &of_main), of("code-reviewer", &of_reviewer));
        assert_eq!((main.len(), reviewer.len(), lines.len()), (TIMES, TIMES, 2 * TIMES), "{told}");
        assert!(main.iter().all(|line| line["decision"] == "allow"), "{main:#?}");
        // C4: `allowed_callers: [main]`, and a rule against it, hold for the subagent.
        assert!(reviewer.iter().all(|line| line["decision"] == "deny"), "{reviewer:#?}");
        let time = |line: &Value| line["time"].as_str().unwrap_or_default().to_owned();
        assert!(time(&reviewer[0]) < time(&main[TIMES - 1]), "one after the other");
        assert!(time(&main[0]) < time(&reviewer[TIMES - 1]), "one after the other");
    }
}
