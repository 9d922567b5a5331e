//! The audit log: several processes write it; `adjutant audit` shows and verifies it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant::audit::{AuditEntry, AuditLog, AuditOptions};
use adjutant::identity::{Caller, KnownBy};
use serde_json::Value;

use crate::support::TestContext;
use crate::support::text::mask;

const WRITER_VARIABLE: &str = "ADJUTANT_TEST_AUDIT_WRITER";
const SMALL_LOG: AuditOptions = AuditOptions {
    fail_closed: true,
    rotate_bytes: 50_000,
    arguments: adjutant::audit::ArgumentDetail::Never,
    retention: None,
};

fn audit_log_path(context: &TestContext) -> PathBuf {
    context.root().join("data/audit.jsonl")
}

fn sample_entry(number: usize) -> AuditEntry {
    let mut line =
        AuditEntry::new("execute_tool").with_target("db", Some(&format!("tool_{number}")));
    line.caller = Some(Caller::new("dev", KnownBy::Pipe));
    line
}

/// Child process of the tests below: writes entries until its count is reached or it is killed. Does nothing otherwise.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn writer_process() {
    let Ok(setting) = std::env::var(WRITER_VARIABLE) else { return };
    let (count, path) = setting.split_once(' ').expect("a count and a path");
    let log = AuditLog::open(Path::new(path), SMALL_LOG);
    (0..count.parse().expect("a count"))
        .for_each(|number| log.write(&sample_entry(number)).expect("a line"));
}

fn start_writer(path: &Path, count: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "audit::writer_process", "--ignored", "--quiet"])
        .env(WRITER_VARIABLE, format!("{count} {}", path.display()))
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
fn h4_several_processes_append_to_one_hash_chain() {
    let context = TestContext::new();
    let path = audit_log_path(&context);
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
fn f4_killing_a_writer_at_any_point_leaves_a_valid_log() {
    let context = TestContext::new();
    let path = audit_log_path(&context);
    for round in 0..8 {
        let before = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let mut writer = start_writer(&path, 1_000_000);
        // The log grew or was rotated: the writer has written at least one entry.
        let deadline = Instant::now() + Duration::from_secs(30);
        while fs::metadata(&path).map_or(0, |m| m.len()) == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(round));
        writer.kill().expect("it is ended");
        writer.wait().expect("it is gone");
    }
    AuditLog::open(&path, SMALL_LOG).write(&sample_entry(0)).expect("the next writer goes on");
    let (code, found) = verify(&context);
    assert_eq!((code, &found["problems"]), (Some(0), &Value::Array(vec![])));
}

#[test]
fn h2_verify_names_the_line_that_was_changed() {
    let context = TestContext::new();
    let path = audit_log_path(&context);
    let log = AuditLog::open(&path, AuditOptions::default());
    (0..4).for_each(|number| log.write(&sample_entry(number)).expect("a line"));
    let sound = context.run(["audit", "--verify"]);
    assert_eq!(sound.status.code(), Some(0));
    let text = String::from_utf8_lossy(&sound.stdout).into_owned();
    let expected = "[ROOT]/data/audit.jsonl: 4 lines, as they were written\nnewest hash [HASH]\n";
    assert_eq!(mask(&text), expected);
    let changed = fs::read_to_string(&path).expect("the log").replace("tool_1", "tool_7");
    fs::write(&path, changed).expect("changed");
    let output = context.run(["audit", "--verify"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "[ROOT]/data/audit.jsonl:3: number 2 was changed, or the hash of it that number 3 carries\n\
                    [ROOT]/data/audit.jsonl: 4 lines, 1 problem\n\
                    newest hash [HASH]\n";
    assert_eq!(mask(&text), expected);
    let shown = context.run(["audit"]);
    assert_eq!(
        String::from_utf8_lossy(&shown.stderr),
        "warning: the log is not as it was written; see `adjutant audit --verify`\n"
    );
}

#[test]
fn audit_filters_entries_and_strips_escapes() {
    let context = TestContext::new();
    let log = AuditLog::open(&audit_log_path(&context), AuditOptions::default());
    (0..3).for_each(|number| log.write(&sample_entry(number)).expect("a line"));
    let mut hostile = sample_entry(9);
    hostile.caller = Some(Caller::new("x\u{1b}[2J\n#99 forged", KnownBy::Asserted));
    log.write(&hostile).expect("a line");
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
fn follow_continues_after_a_rotation() {
    let context = TestContext::new();
    let path = audit_log_path(&context);
    let log = AuditLog::open(&path, AuditOptions { rotate_bytes: 500, ..SMALL_LOG });
    log.write(&sample_entry(0)).expect("a line");
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
    (1..10).for_each(|number| log.write(&sample_entry(number)).expect("a line"));
    assert_eq!(
        (2..=10).map(|_| next()).collect::<Vec<_>>(),
        (2..=10).map(Some).collect::<Vec<_>>()
    );
    reader.kill().expect("ended");
    reader.wait().expect("gone");
}

#[test]
fn the_audit_page_documents_every_field_and_the_output_of_verify() {
    let page = include_str!("../../docs/audit.md");
    let context = TestContext::new();
    let options = AuditOptions {
        arguments: adjutant::audit::ArgumentDetail::Full,
        ..AuditOptions::default()
    };
    let log = AuditLog::open(&audit_log_path(&context), options);
    let rules = adjutant::policy::GatewayRules::deny_all(Path::new("rules.json"));
    let mut full = sample_entry(0)
        .with_verdict(std::sync::Arc::new(adjutant::policy::evaluate(&rules, "dev", "db", None)));
    full.duration = Some(Duration::from_millis(1));
    full.code = Some("TIMEOUT".to_owned());
    (full.request_bytes, full.response_bytes) = (Some(1), Some(2));
    full.run_id = Some(adjutant::util::RunId::new());
    full.call_id = Some("toolu_1".to_owned());
    full.arguments = Some(serde_json::json!({}));
    (0..3).for_each(|_| log.write(&full).expect("a line"));
    let text = fs::read_to_string(audit_log_path(&context)).expect("the log");
    let stored: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let fields = stored.as_object().expect("an object");
    assert_eq!(fields.len(), 18, "{stored}");
    for field in fields.keys() {
        assert!(page.contains(&format!("`{field}`")), "the page does not name `{field}`");
    }
    let session = &crate::policy::marked_examples(page, "verify")[0];
    let expected = session.lines().nth(1).expect("an answer");
    let output = context.run(["audit", "--verify"]);
    let said = String::from_utf8_lossy(&output.stdout)
        .replace(&format!("{}/", context.root().display()), "");
    assert_eq!(said.lines().next(), Some(expected));
}
