//! Hooks of the user's own, with the real `claude`: the examples of `docs/hooks.md`, and hooks that fail.

use std::fs;
use std::path::Path;

use serde_json::Value;
use test_case::test_case;

use crate::support::stage::{NEW, OLD, Stage};

const WORKER: &str = "---
name: worker
description: Works
permissions: { allow: [\"Bash(echo:*)\", \"Bash(cat:*)\", \"Bash(git:*)\"] }
---
You work.
";

/// A project with the page's hooks.
fn project(version: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/hooks");
    for entry in fs::read_dir(examples).unwrap() {
        let entry = entry.unwrap();
        let name = format!("hooks/{}", entry.file_name().to_string_lossy());
        stage.context.write(&name, fs::read_to_string(entry.path()).unwrap());
    }
    let page = include_str!("../../docs/hooks.md");
    let uses = page.split("## Four uses").nth(1).unwrap();
    let settings = uses.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    stage.context.write("agents/defaults.yaml", settings);
    Some(stage)
}

fn read(stage: &Stage, name: &str) -> String {
    fs::read_to_string(stage.context.root().join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test_case(NEW)]
#[test_case(OLD)]
fn metrics_policies_and_a_dashboard_work_as_the_page_says(version: &str) {
    let Some(stage) = project(version) else { return };
    stage.context.agent("worker", WORKER);
    let prompt = "CALL Bash {\"command\":\"cat data/dashboard/worker-*.json\"}\n\
                  CALL Bash {\"command\":\"git push origin\"}\nSAY done";
    let report = stage.run("worker", prompt);
    assert_eq!(report["result"], "done", "{report}");
    let denied = report["denials"].to_string();
    assert!(denied.contains("must not run `git push`"), "{report}");
    assert!(stage.told().contains("policy: worker must not run `git push`"), "the model is told");
    let metrics = read(&stage, "data/metrics.csv");
    assert!(metrics.starts_with("worker,SUCCESS,") && metrics.lines().count() == 1, "{metrics}");
    let run = report["run_id"].as_str().unwrap();
    let board = read(&stage, &format!("data/dashboard/worker-{}.json", &run[run.len() - 8..]));
    assert_eq!(board, r#"{"agent": "worker", "doing": "SUCCESS"}"#);
    let live = r#"{\"agent\": \"worker\", \"doing\": \"Bash\"}"#;
    assert!(stage.told().contains(live), "it is live: {}", stage.told());
}

/// The names of what was recorded.
fn events(stage: &Stage) -> Vec<String> {
    let name = |line: &str| {
        serde_json::from_str::<Value>(line).ok()?["hook_event_name"].as_str().map(str::to_owned)
    };
    read(stage, "data/events.jsonl").lines().filter_map(name).collect()
}

/// An agent with one hook on Bash.
fn hooked(stage: &Stage, name: &str, hook: &str) {
    let file = WORKER.replace("name: worker", &format!("name: {name}")).replacen(
        "---\nYou",
        &format!("hooks: {{ PreToolUse: [{{ matcher: Bash, hooks: [{{ type: command, {hook} }}] }}] }}\n---\nYou"),
        1,
    );
    stage.context.agent(name, &file);
}

fn outcome(report: &Value) -> &str {
    if report["denials"].as_array().is_none_or(Vec::is_empty) { "ran" } else { "refused" }
}

#[test]
fn a_hook_that_fails_blocks_unless_it_may_not_and_none_can_grant() {
    let Some(stage) = Stage::new(NEW) else { return };
    let allow = "{\"hookSpecificOutput\":{\"permissionDecision\":\"allow\"}}";
    stage.context.write("allow.json", allow);
    let echo = "CALL Bash {\"command\":\"echo fine\"}\nSAY done";
    let cases = [
        ("broken", "command: exit 1", echo, "refused"),
        ("lenient", "command: exit 1, on_failure: allow", echo, "ran"),
        ("slow", "command: sleep 100, timeout: 1", echo, "refused"),
        ("missing", "command: ./nowhere.sh", echo, "refused"),
        (
            "granting",
            "command: cat allow.json",
            "CALL Bash {\"command\":\"touch planted\"}\nSAY done",
            "refused",
        ),
        ("content", "command: cat allow.json", echo, "ran"),
    ];
    for (name, hook, ..) in cases {
        hooked(&stage, name, hook);
    }
    std::thread::scope(|scope| {
        for (name, _, prompt, expected) in cases {
            let stage = &stage;
            scope.spawn(move || {
                let report = stage.run(name, prompt);
                assert_eq!(outcome(&report), expected, "{name}: {report}");
            });
        }
    });
    assert!(!stage.context.root().join("planted").exists());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_transcript_is_backed_up_before_the_conversation_is_shortened(version: &str) {
    let Some(stage) = project(version) else { return };
    let file =
        WORKER.replace("description: Works", "description: Works\nsession: true\nmodel: haiku\nenv: { CLAUDE_AUTOCOMPACT_PCT_OVERRIDE: \"5\", CLAUDE_CODE_AUTO_COMPACT_WINDOW: \"100000\" }");
    stage.context.agent("worker", &file);
    let prompt = "SAY remember the blue door\nUSAGE 199000 100\nCALL Bash {\"command\":\"echo one\"}\n\
                  USAGE 199000 100\nCALL Bash {\"command\":\"echo two\"}\nSAY done";
    let report = stage.run("worker", prompt);
    let told = events(&stage);
    assert!(told.contains(&"PreCompact".to_owned()), "{report}: {told:?}");
    let folder = fs::read_dir(stage.context.root().join("data/backups")).unwrap();
    let mut backups = folder.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    assert!(
        backups.any(|backup| backup.contains("remember the blue door")),
        "the whole transcript"
    );
}
