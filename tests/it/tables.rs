//! Tables fit the terminal: no line is wider than it, no word is split, and a pipe gets everything.

use std::fs;
use std::path::Path;
use std::process::Command;

use adjutant::runs::{RunProgress, RunRegistry};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::terminal::PseudoTerminal;

const WIDTHS: [u16; 4] = [40, 60, 80, 120];
const RUN: &str = "019aa2f1-7c5e-7e31-9c41-5d2f8f3a21bc";

/// A project with stored files of every kind, long names, long sentences and long paths.
fn project() -> TestContext {
    let context = TestContext::new();
    let agent = |name: &str, description: &str, more: &str| {
        format!("---\nname: {name}\ndescription: {description}\n{more}---\nYou help.\n")
    };
    let long = "Looks for known vulnerabilities in all dependencies and reports each of them with its severity";
    context
        .agent("helper", &agent("helper", "Helps", "session: true\n"))
        .agent(
            "dependency-auditor",
            &agent("dependency-auditor", long, "tools: [\"builtin:Read\", \"builtin:Grep\"]\nallowed_callers: [main, helper, release-manager]\n"),
        )
        .agent("broken", "---\ndescription: d\n")
        .write(".mcp.json", r#"{"mcpServers": {"files": {"command": "files"}}}"#)
        .write(
            ".mcp-gateway-rules.json",
            r#"{"agents": {"helper": {"allow": {"servers": ["files"], "tools": {"files": ["read_*"]}}}}}"#,
        );
    for variant in ["events/rotated", "audit/rotated", "costs/two-journals", "sessions/plain"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store").join(variant);
        for file in fs::read_dir(folder.join("data")).unwrap().flatten() {
            if file.path().is_file() {
                context.write(
                    Path::new("data").join(file.file_name()),
                    fs::read(file.path()).unwrap(),
                );
            }
        }
    }
    context
}

/// A command on a terminal of this width. Ages depend on the day, so they are replaced.
fn shown(context: &TestContext, arguments: &str, columns: u16) -> String {
    let mut command = context.adjutant([]);
    command.args(arguments.split(' '));
    PseudoTerminal::run_with_columns(command, columns).output_until_exit().replace("\r\n", "\n")
}

fn piped(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test_case("list")]
#[test_case("runs list"; "runs")]
#[test_case("runs list --all"; "recorded runs")]
#[test_case("matrix")]
#[test_case("sessions list"; "sessions")]
#[test_case("costs")]
#[test_case("stats --since 10000d"; "stats")]
#[test_case("audit")]
#[test_case("events")]
#[tokio::test(flavor = "multi_thread")]
async fn tables_fit_the_terminal(arguments: &str) {
    let context = project();
    let registration = RunRegistry::at(&context.root().join("data"))
        .register(RUN.parse().unwrap(), "dependency-auditor", "release-manager")
        .unwrap();
    registration.update(|now| {
        let doing =
            "Read: /srv/projects/adjutant/crates/frontend/src/components/settings.rs".to_owned();
        *now = RunProgress { doing, turns: 3, cost_usd: 0.125 }
    });
    let mut pipe = context.adjutant([]);
    pipe.args(arguments.split(' '));
    while arguments == "runs list" && !piped(&mut pipe).contains("settings.rs") {
        tokio::task::yield_now().await;
    }
    let output = pipe.output().unwrap();
    let whole = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let words: Vec<&str> = whole.split_whitespace().collect();
    for columns in WIDTHS {
        let text = shown(&context, arguments, columns);
        assert!(text.lines().count() > 1, "{text}");
        for line in text.lines() {
            assert!(
                line.chars().count() <= columns.into(),
                "{columns} columns: {line:?} in\n{text}"
            );
        }
        // Terminals also get bars, shortened paths, and headers of blocks, which end in a colon.
        let is_whole = |word: &str| {
            words.contains(&word)
                || words.contains(&word.trim_end_matches(':'))
                || word.contains(['…', '█'])
        };
        let split: Vec<&str> = text.split_whitespace().filter(|word| !is_whole(word)).collect();
        assert_eq!(split, Vec::<&str>::new(), "{columns} columns:\n{text}");
        let mut set = context.adjutant([]);
        let set = piped(set.args(arguments.split(' ')).env("COLUMNS", columns.to_string()));
        assert!(set.lines().all(|line| line.chars().count() <= columns.into()), "COLUMNS: {set}");
    }
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r" +\d+[smhd] ago", "    [AGE] ago");
    settings.add_filter(r" +\d+s  ", "     [AGE]  ");
    settings.set_snapshot_suffix(arguments.replace([' ', '-'], "_"));
    settings.bind(|| insta::assert_snapshot!(shown(&context, arguments, 80)));
    drop(registration);
}

#[test]
fn a_pipe_gets_whole_texts_and_short_ids() {
    let context = project();
    let list = piped(&mut context.adjutant(["list"]));
    assert!(
        list.contains("in all dependencies and reports each of them with its severity"),
        "{list}"
    );
    let sessions = piped(&mut context.adjutant(["sessions", "list"]));
    assert!(
        sessions.lines().all(|line| line.split_whitespace().last().unwrap().len() <= 8),
        "{sessions}"
    );
}

#[test]
fn agents_cannot_move_the_cursor() {
    let context = project();
    let event = |message: &str| {
        serde_json::json!({
            "format": 1, "seq": 9_000, "time": "2026-11-19T06:00:00Z", "hook_event_name": "Notification",
            "session_id": "s", "message": message,
        })
    };
    let hostile = "\u{1b}[2Jred\u{1b}[31m\u{9b}1A\u{202e}end";
    let log = context.root().join("data/events.jsonl");
    let before = fs::read_to_string(&log).unwrap();
    fs::write(&log, format!("{before}{}\n", event(hostile))).unwrap();
    let _ = fs::remove_file(log.with_file_name("events.jsonl.head"));
    for arguments in ["events", "runs list --all", "stats --since 10000d", "audit", "list"] {
        let mut command = context.adjutant([]);
        let output = command.args(arguments.split(' ')).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(bad), "{arguments}: {text:?}");
        if arguments == "events" {
            assert!(text.ends_with("Notification red end\n"), "{text}");
        }
    }
}
