//! `adjutant sessions`: list, show, forget and prune stored sessions.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::terminal::PseudoTerminal;
use crate::support::text::mask;

const REVIEWER_SESSION_ID: &str = "0b4a6f0e-4d7e-4c6e-9d43-6f1a4cbb3f11";
const SHORT_ID: &str = "4cbb3f11";

/// A project with two sessions: an old one, and one last used in 2099, which is never old.
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
        entry("reviewer", "pr-42", REVIEWER_SESSION_ID, "2026-01-03T00:00:00Z"),
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
    fs::write(folder.join(format!("{REVIEWER_SESSION_ID}.jsonl")), transcript.join("\n")).unwrap();
    context
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The line that begins with this word.
fn line_of<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("no {word}: {text}"))
}

/// The first word of each line of a table.
fn first_column(output: &Output) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().next().map(str::to_owned);
    stdout(output).lines().filter_map(words).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn session_names(context: &TestContext) -> Vec<String> {
    let listed: Value =
        serde_json::from_str(&stdout(&context.run(["sessions", "list", "--json"]))).unwrap();
    let listed = listed.as_array().unwrap().iter();
    listed
        .map(|one| format!("{}@{}", one["agent"].as_str().unwrap(), one["key"].as_str().unwrap()))
        .collect()
}

#[test]
fn list_shows_every_session() {
    let output = project().run(["sessions", "list"]);
    let text = stdout(&output);
    let reviewer = text.lines().find(|line| line.contains("reviewer@pr-42")).unwrap();
    let words: Vec<&str> = reviewer.split_whitespace().collect();
    let (before, after) = (["reviewer@pr-42", "ready", "12", "$0.3400"], ["ago", SHORT_ID]);
    assert_eq!((&words[..4], &words[5..]), (&before[..], &after[..]), "{text}");
    assert!(words[4].ends_with('d'), "an age in days: {text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("writer ")), "{text}");
    assert!(output.status.success());
}

/// Lines with a path may be longer: a path is not wrapped, so that it can be copied.
#[test]
fn terminal_output_fits_the_width() {
    let context = project();
    for command in [&["sessions", "list"][..], &["doctor"]] {
        let mut command_line = context.adjutant([]);
        command_line.args(command).env("PATH", "/nowhere");
        let shown = PseudoTerminal::run(command_line).output_until_exit();
        let too_long = |line: &&str| line.chars().count() > 80 && !line.contains("`/");
        assert!(shown.lines().count() >= 3, "{shown}");
        assert_eq!(shown.lines().find(too_long), None, "{shown}");
    }
    let listed = PseudoTerminal::run(context.adjutant(["sessions", "list"])).output_until_exit();
    assert!(listed.contains(SHORT_ID), "an id is whole: {listed}");
}

#[test]
fn list_without_sessions_succeeds() {
    let output = TestContext::new().run(["sessions", "list"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(0)));
    assert_eq!(stderr(&output), "there are no conversations\n");
}

#[test]
fn show_prints_the_last_messages_without_escape_sequences() {
    let context = project();
    let text = stdout(&context.run(["sessions", "show", "reviewer@pr-42", "--last", "2"]));
    assert_eq!(line_of(&text, "turns"), "turns         12, $0.3400 in all");
    assert!(text.ends_with("[caller, 2026-01-02 03:04:05 UTC]\nlook at this\n\n[agent, 2026-01-02 03:04:05 UTC]\nfine ]0;ownednow\n"), "{text}");
    let json = stdout(&context.run(["sessions", "show", "reviewer@pr-42", "--json"]));
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 4);
    assert_eq!(shown["session_id"], REVIEWER_SESSION_ID);
    assert_eq!(shown["in_use_by"], Value::Null);
}

#[test]
fn show_reports_a_missing_transcript() {
    let text = stdout(&project().run(["sessions", "show", "writer"]));
    assert_eq!(
        line_of(&text, "transcript"),
        "transcript    not found: Claude Code does not have this conversation any more"
    );
}

#[test_case(&["show", "nobody"], 3, "there is no conversation `nobody`: `adjutant sessions list` shows those there are")]
#[test_case(&["forget", "nobody"], 3, "there is no conversation `nobody`: `adjutant sessions list` shows those there are")]
#[test_case(&["forget", "../x"], 2, "invalid value '../x' for '<AGENT[@KEY]>...': an agent name has only letters, digits, `-`, `_` and `.`, not '/'\n\nFor more information, try '--help'.")]
#[test_case(&["prune"], 2, "how long is long? give `--older-than 30d`, or write `session_retention: 30d` into agents/defaults.yaml")]
#[test_case(&["prune", "--older-than", "soon"], 2, "invalid value 'soon' for '--older-than <AGE>': an age is a number and a unit, such as `30d`, `12h` or `45m`\n\nFor more information, try '--help'.")]
fn invalid_arguments_are_reported_with_their_cause(arguments: &[&str], code: i32, why: &str) {
    let context = project();
    let output = context.adjutant(["sessions"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code));
    assert_eq!(stderr(&output), format!("error: {why}\n"));
    assert_eq!(session_names(&context).len(), 2);
}

#[test]
fn forget_reports_the_removed_session() {
    let context = project();
    let output = context.run(["sessions", "forget", "reviewer@pr-42"]);
    let text = stdout(&output);
    assert!(
        text.starts_with(
            "forgot `reviewer@pr-42`: 12 turns since 2026-01-02 03:04:05 UTC, $0.3400"
        ),
        "{text}"
    );
    assert_eq!(
        mask(&text),
        "forgot `reviewer@pr-42`: 12 turns since 2026-01-02 03:04:05 UTC, $0.3400; its \
         transcript stays at [HOME]/.claude/projects/-work-here/[ID].jsonl\n"
    );
    assert_eq!(session_names(&context), ["writer@default"]);
}

#[test]
fn prune_prints_its_plan_and_requires_yes() {
    let context = project();
    let planned = context.run(["sessions", "prune", "--older-than", "30d"]);
    assert_eq!(first_column(&planned), ["CONVERSATION", "reviewer@pr-42"]);
    assert_eq!(
        stderr(&planned),
        "error: nothing was changed; `--yes` forgets them without a question\n"
    );
    assert_eq!((planned.status.code(), session_names(&context).len()), (Some(1), 2));

    let done = context.run(["sessions", "prune", "--older-than", "30d", "--yes"]);
    assert_eq!(
        (stderr(&done).as_str(), done.status.code()),
        ("1 conversation forgotten\n", Some(0))
    );
    assert_eq!(session_names(&context), ["writer@default"]);
}

#[test]
fn prune_uses_session_retention_from_the_defaults() {
    let context = project();
    context.write("agents/defaults.yaml", "session_retention: 10d\n");
    let output = context.run(["sessions", "prune", "--json"]);
    let plan: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&plan[0]["agent"], &plan[0]["key"]), (&json!("reviewer"), &json!("pr-42")));
    assert_eq!((output.status.code(), session_names(&context).len()), (Some(1), 2));
    let output = context.run(["sessions", "prune", "--json", "--yes"]);
    let forgotten: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(forgotten.as_array().map(Vec::len), Some(1));
    assert_eq!(forgotten[0], plan[0]);
    assert_eq!(session_names(&context), ["writer@default"]);
}

#[test]
fn list_warns_about_a_damaged_store() {
    let context = project();
    let text = fs::read_to_string(context.root().join("data/sessions.json")).unwrap();
    context.write("data/sessions.json", &text[..text.len() - 20]);
    let output = context.run(["sessions", "list"]);
    assert!(
        stderr(&output).starts_with("warning: `data/sessions.json` was damaged"),
        "{}",
        stderr(&output)
    );
    assert_eq!(first_column(&output), ["CONVERSATION", "reviewer@pr-42"]);
}
