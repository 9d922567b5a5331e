//! The audit log from outside: several processes write it, `adjutant audit` shows and checks it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant::record::{AuditLine, AuditLog, AuditOptions};
use serde_json::Value;

use crate::support::TestContext;

const WRITER: &str = "ADJUTANT_TEST_AUDIT_WRITER";
const SMALL: AuditOptions = AuditOptions {
    fail_closed: true,
    rotate_bytes: 50_000,
    arguments: adjutant::record::ArgumentDetail::Never,
    retention: None,
};

fn log_of(context: &TestContext) -> PathBuf {
    context.root().join("data/audit.jsonl")
}

fn line(number: usize) -> AuditLine {
    let mut line = AuditLine::new("execute_tool").on("db", Some(&format!("tool_{number}")));
    line.agent = Some("dev".to_owned());
    line
}

/// Not a test by itself: the process that the tests below start several of. It writes until it is ended or done.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn writer_process() {
    let Ok(setting) = std::env::var(WRITER) else { return };
    let (count, path) = setting.split_once(' ').expect("a count and a path");
    let log = AuditLog::open(Path::new(path), SMALL);
    (0..count.parse().expect("a count"))
        .for_each(|number| log.record(&line(number)).expect("a line"));
}

fn start_writer(path: &Path, count: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "audit::writer_process", "--ignored", "--quiet"])
        .env(WRITER, format!("{count} {}", path.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("a writer")
}

fn verify(context: &TestContext) -> (Option<i32>, Value) {
    let output = context.run(["audit", "--verify", "--json"]);
    let found =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code(), found)
}

#[test]
fn h4_several_processes_write_one_chain() {
    let context = TestContext::new();
    let path = log_of(&context);
    let mut writers: Vec<Child> = (0..4).map(|_| start_writer(&path, 500)).collect();
    for writer in &mut writers {
        assert!(writer.wait().expect("it ends").success());
    }
    let (code, found) = verify(&context);
    assert_eq!(
        (code, &found["lines"], &found["problems"]),
        (Some(0), &2000.into(), &Value::Array(vec![]))
    );
    let rotated = fs::read_dir(path.parent().expect("a folder")).expect("it is there").count();
    assert!(rotated > 4, "it was rotated on the way");
}

#[test]
fn f4_a_writer_killed_at_any_moment_leaves_a_sound_log() {
    let context = TestContext::new();
    let path = log_of(&context);
    for round in 0..8 {
        let before = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let mut writer = start_writer(&path, 1_000_000);
        // Some lines were written: the log grew, or was rotated.
        let deadline = Instant::now() + Duration::from_secs(30);
        while fs::metadata(&path).map_or(0, |m| m.len()) == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(round));
        writer.kill().expect("it is ended");
        writer.wait().expect("it is gone");
    }
    AuditLog::open(&path, SMALL).record(&line(0)).expect("the next writer goes on");
    let (code, found) = verify(&context);
    assert_eq!((code, &found["problems"]), (Some(0), &Value::Array(vec![])));
}

#[test]
fn h2_verify_says_which_line_is_not_as_it_was_written() {
    let context = TestContext::new();
    let path = log_of(&context);
    let log = AuditLog::open(&path, AuditOptions::default());
    (0..4).for_each(|number| log.record(&line(number)).expect("a line"));
    let sound = context.run(["audit", "--verify"]);
    assert_eq!(sound.status.code(), Some(0));
    let text = String::from_utf8_lossy(&sound.stdout).into_owned();
    assert!(text.contains("4 lines, as they were written"), "{text}");
    let changed = fs::read_to_string(&path).expect("the log").replace("tool_1", "tool_7");
    fs::write(&path, changed).expect("changed");
    let output = context.run(["audit", "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("audit.jsonl:3: number 2 was changed"), "{text}");
    let shown = context.run(["audit"]);
    assert!(String::from_utf8_lossy(&shown.stderr).contains("not as it was written"));
}

#[test]
fn the_log_is_shown_filtered_and_without_escapes() {
    let context = TestContext::new();
    let log = AuditLog::open(&log_of(&context), AuditOptions::default());
    (0..3).for_each(|number| log.record(&line(number)).expect("a line"));
    let mut hostile = line(9);
    hostile.agent = Some("x\u{1b}[2J\n#99 forged".to_owned());
    log.record(&hostile).expect("a line");
    let shown = context.run(["audit", "--agent", "dev", "--limit", "2"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[1].starts_with("#3 ") && lines[1].contains("execute_tool db/tool_2"), "{text}");
    let all = context.run(["audit"]);
    let text = String::from_utf8_lossy(&all.stdout).into_owned();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn lines_are_followed_through_a_rotation() {
    let context = TestContext::new();
    let path = log_of(&context);
    let log = AuditLog::open(&path, AuditOptions { rotate_bytes: 500, ..SMALL });
    log.record(&line(0)).expect("a line");
    let mut reader = context
        .adjutant(["audit", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(reader.stdout.take().expect("its output")).lines();
    let mut next = || {
        let line = lines.next().expect("a line").expect("readable");
        serde_json::from_str::<Value>(&line).expect("JSON")["seq"].as_u64()
    };
    assert_eq!(next(), Some(1));
    (1..10).for_each(|number| log.record(&line(number)).expect("a line"));
    assert_eq!(
        (2..=10).map(|_| next()).collect::<Vec<_>>(),
        (2..=10).map(Some).collect::<Vec<_>>()
    );
    reader.kill().expect("ended");
    reader.wait().expect("gone");
}

#[test]
fn the_page_about_the_audit_log_names_every_field_and_says_what_verify_says() {
    let page = include_str!("../../docs/audit.md");
    let context = TestContext::new();
    let options = AuditOptions {
        arguments: adjutant::record::ArgumentDetail::Full,
        ..AuditOptions::default()
    };
    let log = AuditLog::open(&log_of(&context), options);
    let rules = adjutant::policy::GatewayRules::deny_all(Path::new("rules.json"));
    let mut full =
        line(0).judged(std::sync::Arc::new(adjutant::policy::evaluate(&rules, "dev", "db", None)));
    full.known_by = Some(adjutant::identity::KnownBy::Pipe);
    full.latency_us = Some(1);
    full.error = Some("TIMEOUT".to_owned());
    (full.request_bytes, full.response_bytes) = (Some(1), Some(2));
    full.run_id = Some(adjutant::base::RunId::new());
    full.call_id = Some("toolu_1".to_owned());
    full.arguments = Some(serde_json::json!({}));
    (0..3).for_each(|_| log.record(&full).expect("a line"));
    let text = fs::read_to_string(log_of(&context)).expect("the log");
    let stored: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let fields = stored.as_object().expect("an object");
    assert_eq!(fields.len(), 19, "{stored}");
    for field in fields.keys() {
        assert!(page.contains(&format!("`{field}`")), "the page does not name `{field}`");
    }
    let session = &crate::policy::examples(page, "verify")[0];
    let expected = session.lines().nth(1).expect("an answer");
    let output = context.run(["audit", "--verify"]);
    let said = String::from_utf8_lossy(&output.stdout)
        .replace(&format!("{}/", context.root().display()), "");
    assert_eq!(said.lines().next(), Some(expected));
}
