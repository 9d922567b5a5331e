//! Whoever answers for a person: the hook of a real `claude`, a client of 2026-07-28, and somebody at a terminal.

use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use super::{audit, fake_project, main_claude, stage, touch};
use crate::gateway_real::{python_program, source};
use crate::support::fake::fake_claude;
use crate::support::stage::{NEW, OLD, report, until_connected};
use crate::support::terminal::Terminal;

/// The decisions in the audit log, in order.
fn decisions(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["rule"].as_str()).collect()
}

/// 2.1.325 speaks 2026-07-28 and calls again with the answer, 2.1.197 is asked in the midst of its call.
#[test_case(NEW)]
#[test_case(OLD)]
fn the_hook_of_a_main_claude_allows(version: &str) {
    let Some(stage) = stage(version) else { return };
    let allow = json!({ "hookSpecificOutput": {
        "hookEventName": "Elicitation", "action": "accept", "content": { "decision": "allow_once" },
    } });
    stage.context.write("allow.json", allow.to_string());
    let answer = json!({ "type": "command", "command": "cat > asked.json; cat allow.json" });
    let settings = json!({ "hooks": { "Elicitation": [{ "hooks": [answer] }] } });
    let delegated = json!({ "agent_name": "toucher", "prompt": touch("planted") });
    let prompt =
        format!("{}CALL mcp__adjutant__run_subagent {delegated}", until_connected(version));
    let result = main_claude(&stage, &prompt, &settings);
    let root = stage.context.root();
    assert!(root.join("planted").exists(), "{result}");
    let asked = std::fs::read_to_string(root.join("asked.json")).unwrap();
    assert!(asked.contains("touch planted") && asked.contains("allow_for_run"), "{asked}");
    let lines = audit(&stage.context);
    assert_eq!(decisions(&lines), ["allow_once"], "{lines:?}");
}

#[test]
fn a_client_of_2026_07_28_allows_once_and_denies() {
    let (Some(stage), Some(python)) = (stage(NEW), python_program("python")) else { return };
    let prompt = [touch("one"), touch("two")].join("\n");
    let mut command = Command::new(python);
    let serve = stage.adjutant(["serve"]);
    command.arg(source("approve.py")).arg(serve.get_program());
    command.args(["toucher", &prompt, "allow_once", "deny"]).current_dir(stage.context.root());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = report(&command.output().unwrap());
    assert_eq!(said["protocol"], "2026-07-28", "{said}");
    let asked = said["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2, "{said}");
    assert!(asked[0].as_str().unwrap().contains("touch one"), "{said}");
    let root = stage.context.root();
    assert!(root.join("one").exists() && !root.join("two").exists(), "{said}");
    let denial = said["result"]["denials"][0]["rule"].as_str().unwrap();
    assert!(denial.contains("the person at `main` said no"), "{said}");
    let lines = audit(&stage.context);
    assert_eq!(decisions(&lines), ["allow_once", "deny"], "{lines:?}");
}

const PROMPT: &str = "allow [o]nce, allow for this [r]un, or [d]eny?";

#[test]
fn at_a_terminal_a_person_allows_for_the_run() {
    let Some(stage) = stage(NEW) else { return };
    let prompt = [touch("one"), touch("two")].join("\n");
    let mut terminal = Terminal::run(stage.adjutant(["run", "toucher", &prompt]));
    terminal.sees(PROMPT);
    for part in ["Tool: Bash", "touch one", "`permissions.ask`", "begins with `touch`"] {
        terminal.sees(part);
    }
    terminal.types("what?");
    terminal.seen.clear();
    terminal.sees(PROMPT);
    terminal.types("r");
    assert!(terminal.ends().success(), "{}", terminal.seen);
    let root = stage.context.root();
    assert!(root.join("one").exists() && root.join("two").exists());
    let lines = audit(&stage.context);
    assert_eq!(decisions(&lines), ["allow_for_run", "allowed_for_run"], "{lines:?}");
}

/// The task comes over a pipe, and the person is at the terminal all the same.
#[test]
fn at_a_terminal_a_person_denies_though_the_task_came_over_a_pipe() {
    let context = fake_project("");
    let program = env!("CARGO_BIN_EXE_adjutant");
    let line = format!("{program} run asker - < task");
    context.write("task", "FAKE ask Bash {\"command\":\"rm x\"}");
    // `setsid` makes the terminal the one that `/dev/tty` means.
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", &line]).current_dir(context.root());
    command.env("HOME", context.home()).env("ADJUTANT_CLAUDE", fake_claude());
    let mut terminal = Terminal::run(command);
    terminal.sees("rm x");
    terminal.sees(PROMPT);
    terminal.types("d");
    terminal.sees("said no");
    assert!(terminal.ends().success(), "{}", terminal.seen);
    assert_eq!(decisions(&audit(&context)), ["deny"]);
}
