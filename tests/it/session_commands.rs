//! `adjutant sessions`: what an operator sees of the conversations, and can do about them.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::terminal::Terminal;

const REVIEWER: &str = "0b4a6f0e-4d7e-4c6e-9d43-6f1a4cbb3f11";

/// A project with two conversations: an old one, and one used in 2099 so that it is never old.
fn project() -> TestContext {
    let context = TestContext::new();
    let entry = |agent: &str, key: &str, id: &str, last_used: &str| {
        json!({
            "agent": agent, "key": key, "state": "ready", "session_id": id, "turns": 12, "cost_usd": 0.34,
            "created": "2026-01-02T03:04:05Z", "last_used": last_used,
            "last_run": "019a8d5ce1d27c0b8e6a3f0f3f0a1b2c", "folder": "/work/here",
            "config_dir": context.home().join(".claude"), "contract": "sha256:1",
        })
    };
    let store = json!({"format": 1, "conversations": [
        entry("reviewer", "pr-42", REVIEWER, "2026-01-03T00:00:00Z"),
        entry("writer", "default", "0b4a6f0e-4d7e-4c6e-9d43-6f1a4cbb3f12", "2099-01-01T00:00:00Z"),
    ]});
    context.write("data/sessions.json", serde_json::to_string_pretty(&store).unwrap());
    let line = |kind: &str, text: &str| {
        json!({"type": kind, "timestamp": "2026-01-02T03:04:05Z", "message": {"role": kind, "content": text}}).to_string()
    };
    let transcript = [
        line("user", "the first question"),
        line("assistant", "the first answer"),
        line("user", "look at this"),
        "not json at all".to_owned(),
        json!({"type": "assistant", "isSidechain": true, "message": {"content": "an aside"}})
            .to_string(),
        line("assistant", "fine \u{1b}[2J\u{1b}]0;owned\u{7}now"),
    ];
    let folder = context.home().join(".claude/projects/-work-here");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{REVIEWER}.jsonl")), transcript.join("\n")).unwrap();
    context
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn names(context: &TestContext) -> Vec<String> {
    let listed: Value =
        serde_json::from_str(&stdout(&context.run(["sessions", "list", "--json"]))).unwrap();
    let listed = listed.as_array().unwrap().iter();
    listed
        .map(|one| format!("{}@{}", one["agent"].as_str().unwrap(), one["key"].as_str().unwrap()))
        .collect()
}

#[test]
fn the_list_has_every_conversation() {
    let output = project().run(["sessions", "list"]);
    let text = stdout(&output);
    let reviewer = text.lines().find(|line| line.contains("reviewer@pr-42")).unwrap();
    for part in ["ready", "12", "$0.3400", "d ago", REVIEWER] {
        assert!(reviewer.contains(part), "{part}: {text}");
    }
    assert!(text.lines().any(|line| line.trim_start().starts_with("writer ")), "{text}");
    assert!(output.status.success());
}

/// A line that is longer has a path in it, which stays whole so that people can copy it.
#[test]
fn what_is_shown_on_a_terminal_fits_it() {
    let context = project();
    for command in [&["sessions", "list"][..], &["doctor"]] {
        let mut command_line = context.adjutant([]);
        command_line.args(command).env("PATH", "/nowhere");
        let shown = Terminal::run(command_line).all();
        let too_long = |line: &&str| line.chars().count() > 80 && !line.contains("`/");
        assert!(shown.lines().count() > 3, "{shown}");
        assert_eq!(shown.lines().find(too_long), None, "{shown}");
    }
    let listed = Terminal::run(context.adjutant(["sessions", "list"])).all();
    assert!(listed.contains(REVIEWER), "an id is whole: {listed}");
}

#[test]
fn nothing_yet_is_no_error() {
    let output = TestContext::new().run(["sessions", "list"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(0)));
    assert_eq!(stderr(&output), "there are no conversations\n");
}

#[test]
fn show_has_the_last_words_and_no_escapes() {
    let context = project();
    let text = stdout(&context.run(["sessions", "show", "reviewer@pr-42", "--last", "2"]));
    assert!(text.contains("12, $0.3400 in all"), "{text}");
    assert!(text.ends_with("[caller, 2026-01-02 03:04:05 UTC]\nlook at this\n\n[agent, 2026-01-02 03:04:05 UTC]\nfine [2J]0;ownednow\n"), "{text}");
    let json = stdout(&context.run(["sessions", "show", "reviewer@pr-42", "--json"]));
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(shown["last"].as_array().unwrap().len(), 4);
    assert_eq!(shown["session_id"], REVIEWER);
    assert_eq!(shown["in_use_by"], Value::Null);
}

#[test]
fn show_says_when_claude_code_has_lost_it() {
    let text = stdout(&project().run(["sessions", "show", "writer"]));
    assert!(text.contains("Claude Code does not have this conversation any more"), "{text}");
}

#[test_case(&["show", "nobody"], 2, "there is no conversation `nobody`")]
#[test_case(&["forget", "nobody"], 2, "there is no conversation `nobody`")]
#[test_case(&["forget", "../x"], 2, "an agent name has only")]
#[test_case(&["prune"], 2, "--older-than 30d")]
#[test_case(&["prune", "--older-than", "soon"], 2, "an age is a number and a unit")]
fn what_cannot_be_done_says_why(arguments: &[&str], code: i32, why: &str) {
    let context = project();
    let output = context.adjutant(["sessions"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code));
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
    assert_eq!(names(&context).len(), 2);
}

#[test]
fn forget_says_what_is_no_longer_remembered() {
    let context = project();
    let output = context.run(["sessions", "forget", "reviewer@pr-42"]);
    let text = stdout(&output);
    assert!(
        text.starts_with(
            "forgot `reviewer@pr-42`: 12 turns since 2026-01-02 03:04:05 UTC, $0.3400"
        ),
        "{text}"
    );
    assert!(
        text.contains(&format!("its transcript stays at {}", context.home().display())),
        "{text}"
    );
    assert_eq!(names(&context), ["writer@default"]);
}

#[test]
fn prune_shows_its_plan_and_needs_a_yes() {
    let context = project();
    let planned = context.run(["sessions", "prune", "--older-than", "30d"]);
    assert!(stdout(&planned).contains("reviewer@pr-42"));
    assert!(!stdout(&planned).contains("writer"));
    assert!(stderr(&planned).contains("nothing was changed"), "{}", stderr(&planned));
    assert_eq!((planned.status.code(), names(&context).len()), (Some(1), 2));

    let done = context.run(["sessions", "prune", "--older-than", "30d", "--yes"]);
    assert_eq!(
        (stderr(&done).as_str(), done.status.code()),
        ("1 conversation forgotten\n", Some(0))
    );
    assert_eq!(names(&context), ["writer@default"]);
}

#[test]
fn prune_takes_its_age_from_the_defaults() {
    let context = project();
    context.write("agents/defaults.yaml", "session_retention: 10d\n");
    let output = context.run(["sessions", "prune", "--json"]);
    let plan: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(plan, json!({"plan": ["reviewer@pr-42"], "forgotten": []}));
    let output = context.run(["sessions", "prune", "--json", "--yes"]);
    let plan: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(plan["forgotten"], json!(["reviewer@pr-42"]));
}

#[test]
fn damage_is_said_by_the_list_too() {
    let context = project();
    let text = fs::read_to_string(context.root().join("data/sessions.json")).unwrap();
    context.write("data/sessions.json", &text[..text.len() - 20]);
    let output = context.run(["sessions", "list"]);
    assert!(
        stderr(&output).starts_with("warning: `data/sessions.json` was damaged"),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).contains("reviewer@pr-42"));
}
