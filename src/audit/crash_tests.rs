//! Killed writers, full disks and lost files.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::log::{AuditLog, AuditOptions};
use super::{AuditEntry, verify};
use crate::store::crash_harness as harness;

fn log_path(dir: &Path) -> PathBuf {
    dir.join("audit.jsonl")
}

fn log(dir: &Path, rotate_bytes: u64, retention: Option<Duration>) -> AuditLog {
    let options = AuditOptions { rotate_bytes, retention, ..AuditOptions::default() };
    AuditLog::open(&log_path(dir), options)
}

fn write(log: &AuditLog, operation: &str) {
    log.write(&AuditEntry::new(operation.to_owned())).unwrap();
}

/// Asserts that the log is intact after one more write, and returns the operations of its entries.
fn operations_of_sound_log(dir: &Path) -> HashSet<String> {
    write(&log(dir, u64::MAX, None), "next");
    let mut operations = HashSet::new();
    let mut text = String::new();
    let found = verify(&log_path(dir), |line| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        operations.insert(entry["operation"].as_str().unwrap().to_owned());
        text.push_str(line);
    });
    assert_eq!(found.unwrap().problems, [], "{text}");
    operations
}

/// Recovery of a torn entry, rotation and retention in one run of the child.
#[test]
fn a_writer_killed_at_any_system_call_leaves_an_intact_chain_with_every_reported_entry() {
    if let Some(dir) = harness::child_dir() {
        let log = log(&dir, 600, Some(Duration::from_hours(24)));
        let mut reported = OpenOptions::new().append(true).open(dir.join("reported")).unwrap();
        for number in 0..4 {
            write(&log, &format!("child{number}"));
            writeln!(reported, "child{number}").unwrap();
        }
        return;
    }
    let prepare = |dir: &Path| {
        let log = log(dir, 1, None);
        (0..4).for_each(|number| write(&log, &format!("before{number}")));
        let long_ago = SystemTime::now() - Duration::from_hours(48);
        for number in 1..=2 {
            let rotated = dir.join(format!("audit.{number:012}.jsonl"));
            OpenOptions::new().append(true).open(rotated).unwrap().set_modified(long_ago).unwrap();
        }
        let mut current = OpenOptions::new().append(true).open(log_path(dir)).unwrap();
        current.write_all(b"{\"format\":1,\"se").unwrap();
        fs::write(dir.join("reported"), "before2\nbefore3\n").unwrap();
    };
    let points = harness::kill_at_every_point(
        "audit::crash_tests::a_writer_killed_at_any_system_call_leaves_an_intact_chain_with_every_reported_entry",
        prepare,
        |dir, point| {
            let operations = operations_of_sound_log(dir);
            let reported = fs::read_to_string(dir.join("reported")).unwrap();
            for entry in reported.lines() {
                assert!(operations.contains(entry), "{entry} is lost at point {point}");
            }
            let is_pruned = !dir.join("audit.000000000002.jsonl").exists();
            assert!(!is_pruned || operations.contains("log_pruned"), "point {point}");
        },
    );
    assert!(points > 30, "{points} points: recovery, retention, rotation and four entries");
}

#[test]
fn a_hundred_random_kills_lose_no_reported_entry() {
    if let Some(dir) = harness::child_dir() {
        let log = log(&dir, 20_000, None);
        for number in 0_u64.. {
            let operation = format!("child{}-{number}", std::process::id());
            write(&log, &operation);
            harness::report_durable(&operation);
        }
    }
    let name = "audit::crash_tests::a_hundred_random_kills_lose_no_reported_entry";
    harness::kill_at_random(name, 100, |dir, reported| {
        let operations = operations_of_sound_log(dir);
        let lost: Vec<_> = reported.iter().filter(|entry| !operations.contains(*entry)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    });
}

/// The other process wrote its entry and was killed before it wrote the head, within 20 ms of our last write.
#[test]
fn an_entry_whose_writer_died_just_now_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (log(dir.path(), u64::MAX, None), log(dir.path(), u64::MAX, None));
    let head = dir.path().join("audit.jsonl.head");
    for _ in 0..3 {
        write(&ours, "ours");
        let before = fs::read(&head).unwrap();
        write(&other, "other");
        fs::write(&head, before).unwrap();
        write(&ours, "ours");
    }
    assert_eq!(operations_of_sound_log(dir.path()).len(), 3);
}

#[test]
fn on_a_full_disk_entries_are_written_whole_or_reported_as_not_written() {
    let Some(disk) = harness::SmallDisk::mount(64) else { return };
    let log = log(disk.path(), 10_000, None);
    write(&log, "first");
    let filler = disk.fill();
    let mut written = 0;
    // The free part of the last block takes some entries.
    let refused = loop {
        match log.write(&AuditEntry::new(format!("full{written}"))) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.path, log_path(disk.path()));
    assert!(refused.reason.contains("No space left on device"), "{refused}");
    assert_eq!(log.problem(), Some(refused.reason));
    fs::remove_file(filler).unwrap();
    write(&log, "later");
    let operations = operations_of_sound_log(disk.path());
    assert!((0..written).all(|number| operations.contains(&format!("full{number}"))));
    assert!(!operations.contains(&format!("full{written}")), "it was reported as not written");
    assert!(!operations.contains("log_repaired"), "the failed write left nothing");
}

#[test]
fn an_unreadable_file_is_an_error_and_is_left_as_it_is() {
    for name in ["audit.jsonl", "audit.jsonl.head"] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(name)).unwrap();
        let log = log(dir.path(), 1, None);
        let refused = log.write(&AuditEntry::new("x")).unwrap_err();
        assert_eq!(refused.path, log_path(dir.path()));
        assert!(refused.reason.contains("directory"), "{refused}");
        assert!(dir.path().join(name).is_dir());
    }
}

/// The number and hash of the newest entry are in the rotated file then.
#[test]
fn a_lost_head_beside_an_empty_file_does_not_start_a_new_chain() {
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|_| write(&log(dir.path(), u64::MAX, None), "before"));
    fs::rename(log_path(dir.path()), dir.path().join("audit.000000000002.jsonl")).unwrap();
    fs::remove_file(dir.path().join("audit.jsonl.head")).unwrap();
    assert_eq!(operations_of_sound_log(dir.path()).len(), 2);
    let newest = fs::read_to_string(log_path(dir.path())).unwrap();
    assert!(newest.contains("\"seq\":3"), "{newest}");
}
