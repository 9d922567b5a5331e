//! User hooks with a real `claude`: the examples of `docs/hooks.md`, and hooks that fail.

use std::fs;
use std::path::Path;

use serde_json::Value;
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD};

const WORKER: &str = "---
name: worker
description: Works
permissions: { allow: [\"Bash(echo:*)\", \"Bash(cat:*)\", \"Bash(git:*)\"] }
---
You work.
";

/// A project with the hooks of that page.
fn project(version: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/hooks");
    for entry in fs::read_dir(examples).unwrap() {
        let entry = entry.unwrap();
        let name = format!("hooks/{}", entry.file_name().to_string_lossy());
        fixture.write(&name, fs::read_to_string(entry.path()).unwrap());
    }
    let page = include_str!("../../docs/hooks.md");
    let uses = page.split("## Four uses").nth(1).unwrap();
    let settings = uses.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    fixture.write("agents/defaults.yaml", settings);
    Some(fixture)
}

fn read(fixture: &ClaudeContext, name: &str) -> String {
    fs::read_to_string(fixture.root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test_case(NEW)]
#[test_case(OLD)]
fn the_examples_of_the_hooks_page_work(version: &str) {
    let Some(fixture) = project(version) else { return };
    fixture.agent("worker", WORKER);
    let prompt = "CALL Bash {\"command\":\"cat data/dashboard/worker-*.json\"}\n\
                  CALL Bash {\"command\":\"git push origin\"}\nSAY done";
    let report = fixture.run("worker", prompt);
    assert_eq!(report["result"], "done", "{report}");
    let denied = report["denials"].to_string();
    assert_eq!(denied, r#"[{"tool":"Bash","rule":"policy: worker must not run `git push`"}]"#);
    assert!(
        fixture.all_requests_text().contains("policy: worker must not run `git push`"),
        "the model is told"
    );
    let metrics = read(&fixture, "data/metrics.csv");
    assert!(metrics.starts_with("worker,SUCCESS,") && metrics.lines().count() == 1, "{metrics}");
    let run = report["run_id"].as_str().unwrap();
    let registry = read(&fixture, &format!("data/dashboard/worker-{}.json", &run[run.len() - 8..]));
    assert_eq!(registry, r#"{"agent": "worker", "doing": "SUCCESS"}"#);
    let live = r#"{\"agent\": \"worker\", \"doing\": \"Bash\"}"#;
    assert!(
        fixture.all_requests_text().contains(live),
        "it is live: {}",
        fixture.all_requests_text()
    );
}

/// An agent with one `PreToolUse` hook for `Bash`.
fn add_hooked_agent(fixture: &ClaudeContext, name: &str, hook: &str) {
    let file = WORKER.replace("name: worker", &format!("name: {name}")).replacen(
        "---\nYou",
        &format!("hooks: {{ PreToolUse: [{{ matcher: Bash, hooks: [{{ type: command, {hook} }}] }}] }}\n---\nYou"),
        1,
    );
    fixture.agent(name, &file);
}

fn outcome(report: &Value) -> &str {
    if report["denials"].as_array().is_none_or(Vec::is_empty) { "ran" } else { "refused" }
}

#[test]
fn failing_hooks_block_unless_on_failure_is_allow_and_no_hook_grants_permission() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let allow = "{\"hookSpecificOutput\":{\"permissionDecision\":\"allow\"}}";
    fixture.write("allow.json", allow);
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
        add_hooked_agent(&fixture, name, hook);
    }
    std::thread::scope(|scope| {
        for (name, _, prompt, expected) in cases {
            let fixture = &fixture;
            scope.spawn(move || {
                let report = fixture.run(name, prompt);
                assert_eq!(outcome(&report), expected, "{name}: {report}");
            });
        }
    });
    assert!(!fixture.root().join("planted").exists());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_hook_backs_up_the_transcript_before_compaction(version: &str) {
    let Some(fixture) = project(version) else { return };
    let file =
        WORKER.replace("description: Works", "description: Works\nsession: true\nmodel: haiku\nenv: { CLAUDE_AUTOCOMPACT_PCT_OVERRIDE: \"5\", CLAUDE_CODE_AUTO_COMPACT_WINDOW: \"100000\" }");
    fixture.agent("worker", &file);
    let prompt = "SAY remember the blue door\nUSAGE 199000 100\nCALL Bash {\"command\":\"echo one\"}\n\
                  USAGE 199000 100\nCALL Bash {\"command\":\"echo two\"}\nSAY done";
    let report = fixture.run("worker", prompt);
    assert_ne!(fixture.events_named("PreCompact"), [] as [Value; 0], "{report}");
    let folder = fs::read_dir(fixture.root().join("data/backups")).unwrap();
    let mut backups = folder.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    assert!(
        backups.any(|backup| backup.contains("remember the blue door")),
        "the whole transcript"
    );
}
