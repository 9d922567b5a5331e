use super::*;
use crate::base::RunId;
use crate::record::{LogTail, Redactor, RunSubject};
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
    log.exclusively(PATIENCE, |write| write(&[event("Stop")])).unwrap();
}

#[test]
fn several_writers_lose_nothing_and_number_every_line_once() {
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
fn a_full_file_gives_way_and_a_follower_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = EventOptions { rotate_bytes: 2_000, ..EventOptions::default() };
    let log = EventLog::new(folder.path(), options);
    let mut tail = LogTail::at_end(log.file()).unwrap();
    for _ in 0..40 {
        write_now(&log);
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 4, "several files");
    let seen = tail.next_lines().unwrap();
    assert_eq!(seen.len(), 40);
}

#[test]
fn an_old_file_gives_way_and_what_is_older_than_the_retention_goes() {
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
fn a_torn_line_does_not_spoil_the_next_one() {
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

/// A folder in the file's place is as good as a full disk: nothing can be written.
#[test]
fn a_disk_that_takes_nothing_slows_nobody_and_what_is_lost_is_said() {
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
