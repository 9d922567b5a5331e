use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use super::super::log::AuditOptions;
use super::super::verify;
use super::*;

/// A log with one entry, and its batcher.
fn batcher(dir: &Path) -> (AuditBatcher, PathBuf) {
    let path = dir.join("audit.jsonl");
    let log = AuditLog::open(&path, AuditOptions::default());
    log.write(&AuditEntry::new("first")).unwrap();
    (AuditBatcher::new(log), path)
}

/// Takes the lock as another process would: through an open file of its own.
fn lock(path: &Path) -> File {
    let head = path.with_file_name("audit.jsonl.head");
    let head = OpenOptions::new().read(true).write(true).open(head).unwrap();
    head.lock().unwrap();
    head
}

fn operations(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| line["operation"].as_str().unwrap().to_owned()).collect()
}

/// The test has one thread: if an entry waited on it, the lock would not be released before the wait is over.
#[tokio::test]
async fn entries_wait_for_the_lock_on_a_thread_and_share_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let (batcher, path) = batcher(dir.path());
    let held = lock(&path);
    let mut writing = Vec::new();
    for operation in ["a", "b"] {
        writing.push(tokio::spawn(batcher.append(AuditEntry::new(operation))));
        tokio::task::yield_now().await;
    }
    batcher.append_detached(AuditEntry::new("c"));
    // The first batch is on its thread now, and the others wait for it.
    while !batcher.0.queue.lock().is_writing {
        tokio::task::yield_now().await;
    }
    assert_eq!(operations(&path), ["first"]);
    assert!(writing.iter().all(|task| !task.is_finished()));
    drop(held);
    for task in writing {
        task.await.unwrap().unwrap();
    }
    batcher.flush().await;
    let mut all = operations(&path);
    all.sort();
    assert_eq!(all, ["a", "b", "c", "first"]);
    assert_eq!(verify(&path, |_| {}).unwrap().problems, []);
    assert!(batcher.is_writable());
}

#[tokio::test]
async fn a_lock_that_is_never_released_fails_the_entries_that_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (batcher, path) = batcher(dir.path());
    batcher.append(AuditEntry::new("second")).await.unwrap();
    let held = lock(&path);
    let refused = batcher.append(AuditEntry::new("x")).await.unwrap_err();
    assert_eq!(refused.path, path);
    assert_eq!(refused.reason, "it is held by another process");
    assert!(!batcher.is_writable());
    drop(held);
    batcher.append(AuditEntry::new("third")).await.unwrap();
    assert!(batcher.is_writable());
    assert_eq!(operations(&path), ["first", "second", "third"]);
}

#[tokio::test]
async fn a_detached_entry_is_written_at_once_if_the_lock_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let (batcher, path) = batcher(dir.path());
    batcher.append_detached(AuditEntry::new("refusal"));
    assert_eq!(operations(&path), ["first", "refusal"]);
}

#[test]
fn entries_are_written_without_a_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (batcher, path) = batcher(dir.path());
    batcher.append_then(AuditEntry::new("last"), Box::new(|written| written.unwrap()));
    assert_eq!(operations(&path), ["first", "last"]);
}

/// A panic in a callback must not stop the writes of others.
#[tokio::test]
async fn a_callback_that_panics_stops_no_later_entry() {
    let dir = tempfile::tempdir().unwrap();
    let (batcher, path) = batcher(dir.path());
    batcher.append_then(AuditEntry::new("fault"), Box::new(|_| panic!("a fault of the test")));
    batcher.flush().await;
    batcher.append(AuditEntry::new("later")).await.unwrap();
    assert_eq!(operations(&path), ["first", "fault", "later"]);
}
