use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;

use super::*;
use crate::identity::{Caller, KnownBy};
use crate::policy::{GatewayRules, evaluate};
use crate::record::{ChainFault, Verification, verify};
use serde_json::{Value, json};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("data/audit.jsonl")
    }

    fn log(&self) -> AuditLog {
        AuditLog::open(&self.path(), AuditOptions::default())
    }

    /// A log of `count` lines.
    fn with_lines(count: usize) -> Self {
        let folder = Self::new();
        let log = folder.log();
        (0..count).for_each(|number| log.record(&AuditLine::new(format!("op{number}"))).unwrap());
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

    /// What is wrong: the line and the kind.
    fn faults(&self) -> Vec<(u64, ChainFault)> {
        self.verify().problems.iter().map(|problem| (problem.line, problem.kind)).collect()
    }
}

#[test]
fn a_line_says_who_what_why_and_never_the_arguments() {
    let folder = Folder::new();
    let rules = r#"{"agents":{"dev":{"allow":{"servers":["db"]}}}}"#;
    let rules = GatewayRules::parse(rules, Path::new("/x/rules.json")).unwrap().0;
    let caller = Caller::new("dev", KnownBy::Asserted);
    let mut line = AuditLine::new("execute_tool")
        .by(&caller)
        .on("db", Some("query"))
        .judged(Arc::new(evaluate(&rules, "dev", "db", Some("query"))));
    line.latency_us = Some(1500);
    line.arguments = Some(json!({"sql": "secret-value"}));
    folder.log().record(&line).unwrap();
    let mut stored: Value = serde_json::from_str(&folder.lines()[0]).unwrap();
    stored["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    stored["time"] = json!("now");
    assert_eq!(
        stored,
        json!({
            "format": 1, "seq": 1, "time": "now", "agent": "dev", "known_by": "asserted",
            "operation": "execute_tool", "server": "db", "tool": "query", "decision": "allow",
            "rule": "agents.dev.allow.servers[0]",
            "reason": "agent `dev` may use tool `query` of server `db`: its server is allowed and no list \
                       narrows its tools (`agents.dev.allow.servers[0]` in rules.json line 1)",
            "latency_us": 1500, "prev": "0".repeat(64),
        })
    );
}

#[test]
fn arguments_are_written_as_far_as_they_were_asked_for() {
    let written = |arguments| {
        let folder = Folder::new();
        let options = AuditOptions { arguments, ..AuditOptions::default() };
        let mut line = AuditLine::new("execute_tool");
        line.arguments = Some(json!({"key": "secret", "list": [1, 2]}));
        AuditLog::open(&folder.path(), options).record(&line).unwrap();
        serde_json::from_str::<Value>(&folder.lines()[0]).unwrap()["arguments"].clone()
    };
    assert_eq!(written(ArgumentDetail::Never), Value::Null);
    assert_eq!(written(ArgumentDetail::Redacted), json!({"key": "text of 6", "list": "list of 2"}));
    assert_eq!(written(ArgumentDetail::Full), json!({"key": "secret", "list": [1, 2]}));
}

#[test]
fn e3_the_files_are_private() {
    let folder = Folder::with_lines(1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path()), 0o600);
    assert_eq!(mode(&folder.path().with_file_name("audit.jsonl.head")), 0o600);
    assert_eq!(mode(folder.path().parent().unwrap()), 0o700);
}

#[test]
fn an_untouched_log_is_sound_also_after_a_restart() {
    let folder = Folder::with_lines(3);
    folder.log().record(&AuditLine::new("later")).unwrap();
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (4, vec![]));
    assert!(verify(&folder.0.path().join("none.jsonl"), |_| {}).unwrap().problems.is_empty());
}

#[test]
fn h2_a_changed_line_is_found() {
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| lines[2] = lines[2].replace("op2", "op9"));
    assert_eq!(folder.faults(), [(4, ChainFault::Changed)]);
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| lines[4] = lines[4].replace("op4", "op9"));
    assert_eq!(folder.faults(), [(0, ChainFault::Changed)], "the newest line too");
}

#[test]
fn h2_a_missing_line_is_found() {
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| drop(lines.remove(1)));
    let found = folder.verify();
    assert_eq!(found.problems[0].message, "number 2 is missing before it");
    assert_eq!(folder.faults(), [(2, ChainFault::Missing)]);
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| drop(lines.drain(..3)));
    assert_eq!(folder.faults(), [(1, ChainFault::Missing)], "also the first ones");
}

#[test]
fn h2_reordered_lines_are_found() {
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| lines.swap(1, 2));
    assert!(folder.faults().contains(&(3, ChainFault::Reordered)), "{:?}", folder.verify());
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| lines.insert(1, lines[0].clone()));
    assert!(folder.faults().contains(&(2, ChainFault::Reordered)), "a line twice");
}

#[test]
fn h2_a_cut_at_the_end_is_found_and_stays_found() {
    let folder = Folder::with_lines(5);
    folder.rewrite(|lines| lines.truncate(3));
    assert_eq!(folder.faults(), [(0, ChainFault::Truncated)]);
    folder.log().record(&AuditLine::new("later")).unwrap();
    assert_eq!(folder.verify().problems[0].message, "numbers 4 to 5 are missing before it");
    let folder = Folder::with_lines(5);
    fs::remove_file(folder.path()).unwrap();
    assert_eq!(folder.faults(), [(0, ChainFault::Truncated)], "all of it");
}

#[test]
fn h2_a_replaced_file_is_found() {
    let (folder, other) = (Folder::with_lines(5), Folder::with_lines(5));
    fs::copy(other.path(), folder.path()).unwrap();
    assert_eq!(folder.faults(), [(0, ChainFault::Changed)]);
    fs::remove_file(folder.path().with_file_name("audit.jsonl.head")).unwrap();
    assert_eq!(folder.faults(), [(0, ChainFault::Replaced)]);
}

#[test]
fn a_line_that_was_never_finished_is_taken_out_and_that_is_said() {
    let folder = Folder::with_lines(2);
    let mut bytes = fs::read(folder.path()).unwrap();
    bytes.extend_from_slice(b"{\"format\":1,\"se");
    fs::write(folder.path(), bytes).unwrap();
    folder.log().record(&AuditLine::new("later")).unwrap();
    assert_eq!(folder.verify().problems, []);
    assert!(folder.lines()[2].contains("log_repaired"), "{:?}", folder.lines());
}

#[test]
fn a_writer_that_died_between_line_and_note_leaves_a_sound_log() {
    let folder = Folder::with_lines(2);
    let head = folder.path().with_file_name("audit.jsonl.head");
    let note = fs::read(&head).unwrap();
    folder.log().record(&AuditLine::new("the note of this one is lost")).unwrap();
    fs::write(&head, note).unwrap();
    assert_eq!(folder.verify().problems, []);
    folder.log().record(&AuditLine::new("later")).unwrap();
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (4, vec![]));
}

#[test]
fn rotation_keeps_the_chain() {
    let folder = Folder::new();
    let options = AuditOptions { rotate_bytes: 600, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), options);
    let other = AuditLog::open(&folder.path(), options);
    for _ in 0..10 {
        log.record(&AuditLine::new("one")).unwrap();
        other.record(&AuditLine::new("two")).unwrap();
    }
    let found = folder.verify();
    assert_eq!((found.lines, &found.problems), (20, &vec![]));
    let mut rotated: Vec<_> = fs::read_dir(folder.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains("audit.0"))
        .collect();
    rotated.sort();
    assert!(rotated.len() > 2, "{rotated:?}");
    fs::remove_file(&rotated[1]).unwrap();
    assert_eq!(folder.verify().problems[0].kind, ChainFault::Missing);
}

#[test]
fn h3_control_characters_cannot_forge_a_line() {
    let folder = Folder::new();
    let mut line = AuditLine::new("execute_tool")
        .on("db\n{\"seq\":2}", Some("x\u{2028}\u{85}\r\u{1b}[2J\u{202e}"));
    line.error = Some("BAD\u{0}\u{7f}\u{9b}".to_owned());
    folder.log().record(&line).unwrap();
    let text = fs::read_to_string(folder.path()).unwrap();
    assert_eq!(text.chars().filter(|c| c.is_control()).collect::<String>(), "\n", "{text:?}");
    assert!(!text.contains(['\u{2028}', '\u{202e}']));
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["server"], "db\n{\"seq\":2}", "and nothing is lost");
    assert_eq!(folder.verify().problems, []);
}

#[test]
fn h2_a_log_that_cannot_be_written_stops_calls_unless_told_otherwise() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path()).unwrap();
    let refused = folder.log().record(&AuditLine::new("x")).unwrap_err();
    assert!(refused.to_string().contains("cannot be written"), "{refused}");
    let lenient = AuditOptions { fail_closed: false, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), lenient);
    log.record(&AuditLine::new("x")).unwrap();
    assert!(log.problem().is_some(), "and it is said");
    fs::remove_dir(folder.path()).unwrap();
    log.record(&AuditLine::new("x")).unwrap();
    assert_eq!((log.problem(), folder.lines().len()), (None, 1), "it heals by itself");
}

#[test]
fn many_threads_and_openings_make_one_chain() {
    let folder = Folder::new();
    let options = AuditOptions { rotate_bytes: 20_000, ..AuditOptions::default() };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let log = AuditLog::open(&folder.path(), options);
                (0..100).for_each(|_| log.record(&AuditLine::new("x")).unwrap());
            });
        }
    });
    let found = folder.verify();
    assert_eq!((found.lines, found.problems), (400, vec![]));
}

#[test]
fn old_files_are_removed_and_the_log_says_so() {
    let folder = Folder::new();
    let options = AuditOptions { rotate_bytes: 1, ..AuditOptions::default() };
    let log = AuditLog::open(&folder.path(), options);
    (0..5).for_each(|number| log.record(&AuditLine::new(format!("op{number}"))).unwrap());
    let rotated = || super::rotated_files(&folder.path()).unwrap();
    assert_eq!(rotated().len(), 4);
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(48);
    for (_, file) in rotated().iter().take(3) {
        fs::File::options().append(true).open(file).unwrap().set_modified(long_ago).unwrap();
    }
    let keeps_a_day = AuditOptions { retention: Some(Duration::from_hours(24)), ..options };
    AuditLog::open(&folder.path(), keeps_a_day).record(&AuditLine::new("later")).unwrap();
    let left: Vec<u64> = rotated().iter().map(|(last, _)| *last).collect();
    assert_eq!(left[0], 4, "the three old ones are gone: {left:?}");
    let mut said = Vec::new();
    let found = verify(&folder.path(), |line| said.push(line.to_owned())).unwrap();
    assert_eq!(found.problems, [], "{said:?}");
    assert!(said.iter().any(|line| line.contains("log_pruned")), "{said:?}");
    // What the log did not remove itself is missing, as before.
    fs::remove_file(&rotated()[0].1).unwrap();
    let found = verify(&folder.path(), |_| {}).unwrap();
    assert_eq!(found.problems[0].kind, ChainFault::Missing, "{:?}", found.problems);
}
