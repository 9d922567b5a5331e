use super::super::event::RunSubject;
use super::*;
use crate::store::LogFollower;
use crate::util::{Redactor, RunId};
use serde_json::Value;

fn event(name: &str) -> Event {
    RunSubject::new(RunId::new(), "web", None).event(name, json!({}), &Redactor::default())
}

fn long_event(name: &str) -> Event {
    let details = json!({ "parts": vec!["x".repeat(1_900); 30] });
    RunSubject::new(RunId::new(), "web", None).event(name, details, &Redactor::default())
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(path: &Path) -> Vec<u64> {
    lines(path).iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

fn write_now(log: &EventLog) {
    log.with_lock(LOCK_TIMEOUT, |write| write(&[event("Stop")])).unwrap();
}

#[test]
fn concurrent_writers_number_every_event_once() {
    let folder = tempfile::tempdir().unwrap();
    let writers: Vec<_> =
        (0..4).map(|_| EventLog::new(folder.path(), EventOptions::default())).collect();
    thread::scope(|scope| {
        for log in &writers {
            scope.spawn(|| (0..250).for_each(|_| log.append(&event("Stop"))));
        }
    });
    assert!(writers.iter().all(|log| log.flush(Duration::from_secs(10)) == 0));
    assert_eq!(numbers(writers[0].file()), (1..=1_000).collect::<Vec<_>>());
}

#[test]
fn followers_miss_nothing_across_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let options = EventOptions { rotate_bytes: 2_000, ..EventOptions::default() };
    let log = EventLog::new(folder.path(), options);
    let mut tail = LogFollower::at_end(log.file()).unwrap();
    for _ in 0..40 {
        write_now(&log);
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 4, "several files");
    let seen = tail.next_lines().unwrap();
    assert_eq!(seen.len(), 40);
}

#[test]
fn old_files_are_rotated_and_expired_ones_removed() {
    let folder = tempfile::tempdir().unwrap();
    let options = EventOptions {
        rotate_after: Duration::ZERO,
        retention: Some(Duration::ZERO),
        ..EventOptions::default()
    };
    let log = EventLog::new(folder.path(), options);
    for _ in 0..5 {
        write_now(&log);
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(left <= 3, "the file, its note, and at most the one that was just finished: {left}");
    assert_eq!(numbers(log.file()), [5]);
}

#[test]
fn a_torn_line_does_not_corrupt_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::new(folder.path(), EventOptions::default());
    write_now(&log);
    let mut text = std::fs::read(log.file()).unwrap();
    text.extend_from_slice(b"{\"format\":1,\"seq\":2,\"ti");
    std::fs::write(log.file(), text).unwrap();
    write_now(&log);
    let text = std::fs::read_to_string(log.file()).unwrap();
    let whole: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(whole.len(), 2);
    assert_ne!(whole[0]["seq"], whole[1]["seq"]);
}

/// A directory at the path of the file makes every write fail, like a full disk.
#[test]
fn an_unwritable_disk_blocks_nobody_and_lost_events_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::new(folder.path(), EventOptions::default());
    std::fs::create_dir(log.file()).unwrap();
    let told = long_event("PostToolUse");
    let began = Instant::now();
    for _ in 0..400 {
        log.append(&told);
    }
    log.append(&event("RunEnded"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let missing = log.flush(Duration::from_millis(10));
    assert_eq!(missing, 401, "all are waiting or lost");
    std::fs::remove_dir(log.file()).unwrap();
    let lost = log.flush(Duration::from_secs(10));
    assert!(lost > 0 && lost < 401, "what fits in the queue is kept: {lost}");
    let lines = lines(log.file());
    assert!(
        lines.iter().any(|line| line["hook_event_name"] == "RunEnded"),
        "room is kept for ends"
    );
    let said = lines.iter().find(|line| line["hook_event_name"] == "EventsLost").unwrap();
    assert_eq!(said["lost"].as_u64(), Some(lost));
    assert_eq!(lines.len() as u64, 401 - lost + 1);
}

/// Another process holds the lock of the log.
#[test]
fn a_held_lock_delays_the_writer_thread_only() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::new(folder.path(), EventOptions::default());
    write_now(&log);
    let head = folder.path().join("events.jsonl.head");
    let head = std::fs::OpenOptions::new().write(true).open(head).unwrap();
    head.lock().unwrap();
    for _ in 0..10 {
        log.append(&event("Stop"));
    }
    assert_eq!(log.flush(Duration::ZERO), 10, "all are waiting");
    head.unlock().unwrap();
    assert_eq!(log.flush(Duration::from_secs(10)), 0);
    assert_eq!(numbers(log.file()), (1..=11).collect::<Vec<_>>());
}
