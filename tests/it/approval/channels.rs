//! Approval over three channels: an elicitation hook of a real `claude`, a client of 2026-07-28, and a terminal.

use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use super::{approval_context, approval_entries, fake_project, run_main_claude, touch_call};
use crate::gateway_real::{python_program, test_source};
use crate::support::claude_context::{NEW, OLD, report, wait_for_servers_script};
use crate::support::fake_claude::fake_claude;
use crate::support::terminal::PseudoTerminal;

/// Rules of the approval entries in the audit log, in order.
fn approval_rules(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["rule"].as_str()).collect()
}

/// 2.1.325 speaks 2026-07-28 and repeats the call with the answer; 2.1.197 is asked during its call.
#[test_case(NEW)]
#[test_case(OLD)]
fn an_elicitation_hook_of_the_main_claude_allows(version: &str) {
    let Some(fixture) = approval_context(version) else { return };
    let allow = json!({ "hookSpecificOutput": {
        "hookEventName": "Elicitation", "action": "accept", "content": { "decision": "allow_once" },
    } });
    fixture.write("allow.json", allow.to_string());
    let answer = json!({ "type": "command", "command": "cat > asked.json; cat allow.json" });
    let settings = json!({ "hooks": { "Elicitation": [{ "hooks": [answer] }] } });
    let delegated = json!({ "agent_name": "toucher", "prompt": touch_call("planted") });
    let prompt =
        format!("{}CALL mcp__adjutant__run_subagent {delegated}", wait_for_servers_script(version));
    let result = run_main_claude(&fixture, &prompt, &settings);
    let root = fixture.root();
    assert!(root.join("planted").exists(), "{result}");
    let asked = std::fs::read_to_string(root.join("asked.json")).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    insta::allow_duplicates! {
        insta::assert_snapshot!(asked["message"].as_str().unwrap(), @r#"
        The subagent `toucher` asks for approval.

        Tool: Bash
        Arguments: {"command":"touch planted"}
        Why it asks: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a person to decide.

        «Allow for this run» covers every plain command that begins with `touch`, until this run is over. No answer within 120 s is a no.
        "#);
    }
    let choices = &asked["requested_schema"]["properties"]["decision"]["enum"];
    assert_eq!(*choices, json!(["allow_once", "allow_for_run", "deny"]), "{asked}");
    let lines = approval_entries(&fixture.context);
    assert_eq!(approval_rules(&lines), ["allow_once"], "{lines:?}");
}

#[test]
fn a_client_of_2026_07_28_allows_once_and_denies() {
    let (Some(fixture), Some(python)) = (approval_context(NEW), python_program("python")) else {
        return;
    };
    let prompt = [touch_call("one"), touch_call("two")].join("\n");
    let mut command = Command::new(python);
    let serve = fixture.adjutant(["serve"]);
    command.arg(test_source("approve.py")).arg(serve.get_program());
    command.args(["toucher", &prompt, "allow_once", "deny"]).current_dir(fixture.root());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = report(&command.output().unwrap());
    assert_eq!(said["protocol"], "2026-07-28", "{said}");
    let asked = said["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 2, "{said}");
    insta::assert_snapshot!(asked[0].as_str().unwrap(), @r#"
    The subagent `toucher` asks for approval.

    Tool: Bash
    Arguments: {"command":"touch one"}
    Why it asks: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a person to decide.

    «Allow for this run» covers every plain command that begins with `touch`, until this run is over. No answer within 120 s is a no.
    "#);
    let root = fixture.root();
    assert!(root.join("one").exists() && !root.join("two").exists(), "{said}");
    let denial = said["result"]["denials"][0]["rule"].as_str().unwrap();
    assert_eq!(
        denial,
        "`Bash: touch two`: `Bash(touch:*)` in `permissions.ask` of its agent.md wants a person \
         to decide; the person at `main` said no"
    );
    let lines = approval_entries(&fixture.context);
    assert_eq!(approval_rules(&lines), ["allow_once", "deny"], "{lines:?}");
}

const PROMPT: &str = "allow [o]nce, allow for this [r]un, or [d]eny?";

#[test]
fn a_person_at_a_terminal_allows_for_the_run() {
    let Some(fixture) = approval_context(NEW) else { return };
    let prompt = [touch_call("one"), touch_call("two")].join("\n");
    let mut terminal = PseudoTerminal::run(fixture.adjutant(["run", "toucher", &prompt]));
    terminal.wait_for_output(PROMPT);
    for part in ["Tool: Bash", "touch one", "`permissions.ask`", "begins with `touch`"] {
        terminal.wait_for_output(part);
    }
    terminal.type_line("what?");
    terminal.output.clear();
    terminal.wait_for_output(PROMPT);
    terminal.type_line("r");
    assert!(terminal.wait_for_exit().success(), "{}", terminal.output);
    let root = fixture.root();
    assert!(root.join("one").exists() && root.join("two").exists());
    let lines = approval_entries(&fixture.context);
    assert_eq!(approval_rules(&lines), ["allow_for_run", "allowed_for_run"], "{lines:?}");
}

/// The task is read from stdin, so the question must go to `/dev/tty`.
#[test]
fn a_person_at_a_terminal_denies_when_the_task_comes_from_stdin() {
    let context = fake_project("");
    let program = env!("CARGO_BIN_EXE_adjutant");
    let line = format!("{program} run asker - < task");
    context.write("task", "FAKE ask Bash {\"command\":\"rm x\"}");
    // `setsid --ctty` makes the pseudo-terminal the controlling terminal, which `/dev/tty` opens.
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", &line]).current_dir(context.root());
    command.env("HOME", context.home()).env("ADJUTANT_CLAUDE", fake_claude());
    let mut terminal = PseudoTerminal::run(command);
    terminal.wait_for_output("rm x");
    terminal.wait_for_output(PROMPT);
    terminal.type_line("d");
    terminal.wait_for_output("said no");
    assert!(terminal.wait_for_exit().success(), "{}", terminal.output);
    assert_eq!(approval_rules(&approval_entries(&context)), ["deny"]);
}
