use std::fs::OpenOptions;
use std::io::Write;

use serde::Deserialize;

use super::super::fault_point::harness;
use super::super::log_reader::open_log;
use super::*;

/// Lines `{"seq":1}`; an unfinished line is ended.
struct Counted;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Count {
    seq: u64,
    bytes: u64,
}

impl Sequence for Count {
    fn number(&self) -> u64 {
        self.seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    fn after(self, line: &[u8]) -> Self {
        Self { seq: number_of(line).unwrap_or(self.seq), ..self }
    }
}

impl LineFormat for Counted {
    type Sequence = Count;
    type Entry = ();

    fn encode(&self, entries: &[()], mut count: Count, text: &mut Vec<u8>) -> io::Result<Count> {
        for () in entries {
            count.seq += 1;
            writeln!(text, "{{\"seq\":{}}}", count.seq)?;
        }
        Ok(count)
    }

    fn torn_line(&self, _bytes: usize) -> TornLine<()> {
        TornLine::Terminate
    }
}

fn number_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(line).ok()?.get("seq")?.as_u64()
}

fn log(dir: &Path, max_bytes: u64) -> AppendLog<Counted> {
    let lock_timeout = Duration::from_secs(30);
    let options = LogOptions { max_bytes, retention: None, lock_timeout };
    AppendLog::new(dir.join("test.jsonl"), Counted, options)
}

/// The numbers of all complete lines; unfinished ones are left out.
fn numbers(dir: &Path) -> Vec<u64> {
    let mut numbers = Vec::new();
    for segment in open_log(&dir.join("test.jsonl")).unwrap() {
        segment.read_lines(|line| numbers.extend(number_of(line.bytes))).unwrap();
    }
    numbers
}

#[test]
fn a_killed_writer_leaves_a_log_that_is_continued_without_a_gap() {
    if let Some(dir) = harness::child_dir() {
        let log = log(&dir, 30);
        (0..3).for_each(|_| log.append(&[(), ()]).unwrap());
        return;
    }
    let points = harness::kill_at_every_point(
        "store::log::tests::a_killed_writer_leaves_a_log_that_is_continued_without_a_gap",
        |dir| {
            log(dir, 30).append(&[()]).unwrap();
            let mut file = OpenOptions::new().append(true).open(dir.join("test.jsonl")).unwrap();
            file.write_all(b"{\"seq\":2}\n{\"se").unwrap();
        },
        |dir, point| {
            log(dir, 30).append(&[()]).unwrap();
            let numbers = numbers(dir);
            let last = numbers.len() as u64;
            assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "point {point}");
        },
    );
    assert!(points > 20, "{points} points: recovery, three writes and a rotation");
}

/// Two crashes in a row: after the rename, and after the first line in the new file.
#[test]
fn a_second_crash_after_a_rotation_without_a_head_does_not_repeat_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let (path, head) = (dir.path().join("test.jsonl"), dir.path().join("test.jsonl.head"));
    log(dir.path(), u64::MAX).append(&[(), ()]).unwrap();
    fs::rename(&path, dir.path().join("test.000000000002.jsonl")).unwrap();
    let log_after = |head_is_lost: bool| {
        let log = log(dir.path(), u64::MAX);
        let lost = log.with_lock(LockWait::Never, |log| {
            log.append(&[])?;
            log.current().map(drop)?;
            fs::read(&head)
        });
        log.append(&[()]).unwrap();
        if head_is_lost {
            fs::write(&head, lost.unwrap()).unwrap();
        }
    };
    log_after(true);
    log_after(false);
    assert_eq!(numbers(dir.path()), [1, 2, 3, 4]);
}

#[test]
fn processes_at_once_number_every_line_once() {
    if let Some(dir) = harness::child_dir() {
        let log = log(&dir, 1_000);
        (0..200).for_each(|_| log.append(&[()]).unwrap());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "store::log::tests::processes_at_once_number_every_line_once";
    harness::run_at_once(name, 3, dir.path());
    assert_eq!(numbers(dir.path()), (1..=600).collect::<Vec<_>>());
}

/// A reader that lists the files while they are rotated sees each line once.
#[test]
fn readers_see_every_line_once_during_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), 20);
    log.append(&[()]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..300).for_each(|_| log.append(&[()]).unwrap()));
        while !writer.is_finished() {
            let numbers = numbers(dir.path());
            let last = numbers.len() as u64;
            assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_held_lock_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path(), u64::MAX);
    assert!(log.try_append(&[()]).unwrap());
    let head = OpenOptions::new().write(true).open(dir.path().join("test.jsonl.head")).unwrap();
    head.lock().unwrap();
    assert!(!log.try_append(&[()]).unwrap(), "another process has it");
    head.unlock().unwrap();
    let other_thread = || std::thread::scope(|scope| scope.spawn(|| log.try_append(&[()])).join());
    let inside = log.with_lock(LockWait::Never, |_| other_thread().unwrap()).unwrap();
    assert!(!inside, "another thread has it");
    assert!(log.try_append(&[()]).unwrap());
    assert_eq!(numbers(dir.path()), [1, 2]);
}
