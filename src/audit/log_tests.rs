use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use super::super::verify::{ChainFault, Verification};
use super::*;
use crate::audit::verify;
use crate::identity::{Caller, KnownBy};
use crate::policy::{GatewayRules, evaluate};
use serde_json::{Value, json};

struct TestLog(tempfile::TempDir);

impl TestLog {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("data/audit.jsonl")
    }

    fn log(&self) -> AuditLog {
        AuditLog::open(&self.path(), AuditOptions::default())
    }

    /// Creates a log with `count` entries.
    fn with_lines(count: usize) -> Self {
        let folder = Self::new();
        let log = folder.log();
        (0..count).for_each(|number| log.write(&AuditEntry::new(format!("op{number}"))).unwrap());
        folder
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.path()).unwrap().lines().map(str::to_owned).collect()
    }

    fn rewrite(&self, change: impl FnOnce(&mut Vec<String>)) {
        let mut lines = self.lines();
        change(&mut lines);
        fs::write(self.path(), lines.join("\n") + "\n").unwrap();
    }

    fn verify(&self) -> Verification {
        verify(&self.path(), |_| {}).unwrap()
    }

    fn rotated(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().parent().unwrap()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut rotated: Vec<_> =
            paths.filter(|path| path.to_str().unwrap().contains("audit.0")).collect();
        rotated.sort();
        rotated
    }

    /// Returns line and kind of each problem.
    fn problems(&self) -> Vec<(u64, ChainFault)> {
        self.verify().problems.iter().map(|problem| (problem.line, problem.kind)).collect()
    }
}

#[test]
fn entries_name_caller_decision_and_reason_but_no_arguments() {
    let folder = TestLog::new();
    let rules = r#"{"agents":{"dev":{"allow":{"servers":["db"]}}}}"#;
    let rules = GatewayRules::parse(rules, Path::new("/x/rules.json")).unwrap().0;
    let caller = Caller::new("dev", KnownBy::Asserted);
    let mut line = AuditEntry::new("execute_tool")
        .with_caller(&caller)
        .with_target("db", Some("query"))
        .with_verdict(Arc::new(evaluate(&rules, "dev", "db", Some("query"))));
    line.duration = Some(Duration::from_micros(1500));
    line.arguments = Some(json!({"sql": "secret-value"}));
    folder.log().write(&line).unwrap();
    let mut stored: Value = serde_json::from_str(&folder.lines()[0]).unwrap();
    stored["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    stored["time"] = json!("now");
    assert_eq!(
        stored,
        json!({
            "format": 2, "seq": 1, "time": "now", "caller": { "name": "dev", "known_by": "asserted" },
            "operation": "execute_tool", "server": "db", "tool": "query", "decision": "allow",
            "rule": "agents.dev.allow.servers[0]",
            "reason": "agent `dev` may use tool `query` of server `db`: its server is allowed and no list \
                       narrows its tools (`agents.dev.allow.servers[0]` in rules.json line 1)",
            "duration_ms": 1, "prev": "0".repeat(64),
        })
    );
}

#[test]
fn arguments_are_logged_in_the_configured_detail() {
    let written = |arguments| {
        let folder = TestLog::new();
        let options = AuditOptions { arguments, ..AuditOptions::default() };
        let mut line = AuditEntry::new("execute_tool");
        line.arguments = Some(json!({"key": "secret", "list": [1, 2]}));
        AuditLog::open(&folder.path(), options).write(&line).unwrap();
        serde_json::from_str::<Value>(&folder.lines()[0]).unwrap()["arguments"].clone()
    };
    assert_eq!(written(ArgumentDetail::Never), Value::Null);
    assert_eq!(written(ArgumentDetail::Redacted), json!({"key": "text of 6", "list": "list of 2"}));
    assert_eq!(written(ArgumentDetail::Full), json!({"key": "secret", "list": [1, 2]}));
}

#[test]
fn e3_the_files_are_private() {
    let folder = TestLog::with_lines(1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path()), 0o600);
    assert_eq!(mode(&folder.path().with_file_name("audit.jsonl.head")), 0o600);
    assert_eq!(mode(folder.path().parent().unwrap()), 0o700);
}

#[test]
fn an_unmodified_log_is_intact_after_a_restart() {
    let folder = TestLog::with_lines(3);
    folder.log().write(&AuditEntry::new("later")).unwrap();
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (4, vec![]));
    assert!(verify(&folder.0.path().join("none.jsonl"), |_| {}).unwrap().problems.is_empty());
}

#[test]
fn h2_a_changed_entry_is_detected() {
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| lines[2] = lines[2].replace("op2", "op9"));
    assert_eq!(folder.problems(), [(4, ChainFault::Changed)]);
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| lines[4] = lines[4].replace("op4", "op9"));
    assert_eq!(folder.problems(), [(0, ChainFault::Changed)], "the newest line too");
}

#[test]
fn h2_a_missing_entry_is_detected() {
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| drop(lines.remove(1)));
    let found = folder.verify();
    assert_eq!(found.problems[0].message, "number 2 is missing before it");
    assert_eq!(folder.problems(), [(2, ChainFault::Missing)]);
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| drop(lines.drain(..3)));
    assert_eq!(folder.problems(), [(1, ChainFault::Missing)], "also the first ones");
}

#[test]
fn h2_reordered_entries_are_detected() {
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| lines.swap(1, 2));
    assert!(folder.problems().contains(&(3, ChainFault::Reordered)), "{:?}", folder.verify());
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| lines.insert(1, lines[0].clone()));
    assert!(folder.problems().contains(&(2, ChainFault::Reordered)), "a line twice");
}

#[test]
fn h2_truncation_is_detected_even_after_further_writes() {
    let folder = TestLog::with_lines(5);
    folder.rewrite(|lines| lines.truncate(3));
    assert_eq!(folder.problems(), [(0, ChainFault::Truncated)]);
    folder.log().write(&AuditEntry::new("later")).unwrap();
    assert_eq!(folder.verify().problems[0].message, "numbers 4 to 5 are missing before it");
    let folder = TestLog::with_lines(5);
    fs::remove_file(folder.path()).unwrap();
    assert_eq!(folder.problems(), [(0, ChainFault::Truncated)], "all of it");
}

#[test]
fn h2_a_replaced_file_is_detected() {
    let (folder, other) = (TestLog::with_lines(5), TestLog::new());
    // Other entries: equal ones of the same millisecond have equal hashes.
    for number in 0..5 {
        other.log().write(&AuditEntry::new(format!("other {number}"))).unwrap();
    }
    fs::copy(other.path(), folder.path()).unwrap();
    assert_eq!(folder.problems(), [(0, ChainFault::Changed)]);
    fs::remove_file(folder.path().with_file_name("audit.jsonl.head")).unwrap();
    assert_eq!(folder.problems(), [(0, ChainFault::Replaced)]);
}

#[test]
fn a_torn_entry_is_removed_and_logged() {
    let folder = TestLog::with_lines(2);
    let mut bytes = fs::read(folder.path()).unwrap();
    bytes.extend_from_slice(b"{\"format\":1,\"se");
    fs::write(folder.path(), bytes).unwrap();
    folder.log().write(&AuditEntry::new("later")).unwrap();
    assert_eq!(folder.verify().problems, []);
    assert!(folder.lines()[2].contains("log_repaired"), "{:?}", folder.lines());
}

#[test]
fn a_crash_between_entry_and_head_leaves_an_intact_log() {
    let folder = TestLog::with_lines(2);
    let head = folder.path().with_file_name("audit.jsonl.head");
    let note = fs::read(&head).unwrap();
    folder.log().write(&AuditEntry::new("the note of this one is lost")).unwrap();
    fs::write(&head, note).unwrap();
    assert_eq!(folder.verify().problems, []);
    folder.log().write(&AuditEntry::new("later")).unwrap();
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (4, vec![]));
}

#[test]
fn rotation_keeps_the_chain() {
    let folder = TestLog::new();
    let options = AuditOptions { rotate_bytes: 600, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), options);
    let other = AuditLog::open(&folder.path(), options);
    for _ in 0..10 {
        log.write(&AuditEntry::new("one")).unwrap();
        other.write(&AuditEntry::new("two")).unwrap();
    }
    let found = folder.verify();
    assert_eq!((found.lines, &found.problems), (20, &vec![]));
    let rotated = folder.rotated();
    assert!(rotated.len() > 2, "{rotated:?}");
    fs::remove_file(&rotated[1]).unwrap();
    assert_eq!(folder.verify().problems[0].kind, ChainFault::Missing);
}

#[test]
fn h3_control_characters_cannot_forge_a_line() {
    let folder = TestLog::new();
    let mut line = AuditEntry::new("execute_tool")
        .with_target("db\n{\"seq\":2}", Some("x\u{2028}\u{85}\r\u{1b}[2J\u{202e}"));
    line.code = Some("BAD\u{0}\u{7f}\u{9b}".to_owned());
    folder.log().write(&line).unwrap();
    let text = fs::read_to_string(folder.path()).unwrap();
    assert_eq!(text.chars().filter(|c| c.is_control()).collect::<String>(), "\n", "{text:?}");
    assert!(!text.contains(['\u{2028}', '\u{202e}']));
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["server"], "db\n{\"seq\":2}", "and nothing is lost");
    assert_eq!(folder.verify().problems, []);
}

#[test]
fn h2_an_unwritable_log_rejects_calls_unless_fail_open() {
    let folder = TestLog::new();
    fs::create_dir_all(folder.path()).unwrap();
    let refused = folder.log().write(&AuditEntry::new("x")).unwrap_err();
    assert!(refused.to_string().contains("cannot be written"), "{refused}");
    let lenient = AuditOptions { fail_closed: false, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), lenient);
    log.write(&AuditEntry::new("x")).unwrap();
    assert!(log.problem().is_some(), "and it is said");
    fs::remove_dir(folder.path()).unwrap();
    log.write(&AuditEntry::new("x")).unwrap();
    assert_eq!((log.problem(), folder.lines().len()), (None, 1), "it heals by itself");
}

#[test]
fn concurrent_writers_make_one_chain() {
    let folder = TestLog::new();
    let options = AuditOptions { rotate_bytes: 20_000, ..AuditOptions::default() };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let log = AuditLog::open(&folder.path(), options);
                (0..100).for_each(|_| log.write(&AuditEntry::new("x")).unwrap());
            });
        }
    });
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (400, vec![]));
}

#[test]
fn expired_files_are_removed_and_the_removal_is_logged() {
    let folder = TestLog::new();
    let options = AuditOptions { rotate_bytes: 1, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), options);
    (0..5).for_each(|number| log.write(&AuditEntry::new(format!("op{number}"))).unwrap());
    let rotated = || folder.rotated();
    assert_eq!(rotated().len(), 4);
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(48);
    for file in rotated().iter().take(3) {
        fs::File::options().append(true).open(file).unwrap().set_modified(long_ago).unwrap();
    }
    let keeps_a_day = AuditOptions { retention: Some(Duration::from_hours(24)), ..options };
    AuditLog::open(&folder.path(), keeps_a_day).write(&AuditEntry::new("later")).unwrap();
    let left = rotated();
    assert!(left[0].ends_with("audit.000000000004.jsonl"), "the three old ones are gone: {left:?}");
    let mut said = Vec::new();
    let found = verify(&folder.path(), |line| said.push(line.to_owned())).unwrap();
    assert_eq!(found.problems, [], "{said:?}");
    assert!(said.iter().any(|line| line.contains("log_pruned")), "{said:?}");
    // Files that the log did not remove itself count as missing.
    fs::remove_file(&rotated()[0]).unwrap();
    let found = verify(&folder.path(), |_| {}).unwrap();
    assert_eq!(found.problems[0].kind, ChainFault::Missing, "{:?}", found.problems);
}
