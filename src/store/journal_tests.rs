//! Crash tests of the journal: what was reported as saved is there exactly once, whatever happened.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use serde_json::json;
use test_case::test_case;

use super::*;
use crate::store::fault_point::harness::{
    SmallDisk, child_dir, kill_at_every_point, kill_at_random, report_durable, run_at_once,
};

/// Changes add up, like costs.
#[derive(Clone, Debug, Default, PartialEq)]
struct TestSum(u64);

impl State for TestSum {
    type Change = u64;
    const NAME: &'static str = "sum";
    const FORMAT: u64 = 1;
    const NAMING: Naming = Naming::Numbered;
    const MAX_LINES: usize = 4;
    const MUST_BE_OWNED: bool = false;

    fn decode(snapshot: &[u8]) -> Result<(Self, u64), String> {
        let (format, journal, sum): (u64, u64, u64) = decode_fields(snapshot, "sum")?;
        if format == 1 { Ok((Self(sum), journal)) } else { Err(format!("format {format}")) }
    }
    fn recover(snapshot: &[u8]) -> Self {
        Self(stated_number(snapshot, "sum").unwrap_or_default())
    }
    fn encode(&self, journal: u64) -> Vec<u8> {
        json!({ "format": 1, "journal": journal, "sum": self.0 }).to_string().into_bytes()
    }
    fn apply(&mut self, change: &u64) {
        self.0 += change;
    }
    fn describe(&self) -> String {
        format!("the sum {}", self.0)
    }
}

fn decode_fields<T: DeserializeOwned>(bytes: &[u8], key: &str) -> Result<(u64, u64, T), String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let number = |key| value.get(key).and_then(Value::as_u64).ok_or("a number is missing");
    let content = serde_json::from_value(value[key].clone()).map_err(|error| error.to_string())?;
    Ok((number("format")?, number("journal")?, content))
}

/// Changes are idempotent, like sessions. Up to two entries are small.
#[derive(Clone, Debug, Default, PartialEq)]
struct TestMap(BTreeMap<String, u64>);

impl State for TestMap {
    type Change = (String, u64);
    const NAME: &'static str = "map";
    const FORMAT: u64 = 1;
    const NAMING: Naming = Naming::Single;
    const MAX_LINES: usize = 4;
    const MUST_BE_OWNED: bool = true;

    fn decode(snapshot: &[u8]) -> Result<(Self, u64), String> {
        let (format, _, map) = decode_fields(snapshot, "map")?;
        if format == 1 { Ok((Self(map), 0)) } else { Err(format!("format {format}")) }
    }
    fn recover(snapshot: &[u8]) -> Self {
        let text = String::from_utf8_lossy(snapshot);
        Self(if text.contains("\"a\":1") {
            BTreeMap::from([("a".to_owned(), 1)])
        } else {
            BTreeMap::new()
        })
    }
    fn encode(&self, journal: u64) -> Vec<u8> {
        json!({ "format": 1, "journal": journal, "map": self.0 }).to_string().into_bytes()
    }
    fn apply(&mut self, (key, value): &(String, u64)) {
        self.0.insert(key.clone(), *value);
    }
    fn describe(&self) -> String {
        format!("{} entries", self.0.len())
    }
    fn is_small(&self) -> bool {
        self.0.len() <= 2
    }
    fn replaces((newer, _): &(String, u64), (older, _): &(String, u64)) -> bool {
        newer == older
    }
}

fn sum_in(dir: &Path) -> u64 {
    Journal::<TestSum>::open(dir).read(|sum| sum.0).unwrap()
}

fn map_in(dir: &Path) -> BTreeMap<String, u64> {
    Journal::<TestMap>::open(dir).read(|map| map.0.clone()).unwrap()
}

fn change(key: &str, value: u64) -> Vec<(String, u64)> {
    vec![(key.to_owned(), value)]
}

fn map<const N: usize>(entries: [(&str, u64); N]) -> BTreeMap<String, u64> {
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn set_aside_in(dir: &Path) -> Vec<PathBuf> {
    let mut names = names_in(dir);
    names.retain(|name| name.contains(".damaged-2") && !name.starts_with(".staged-"));
    names.into_iter().map(|name| dir.join(name)).collect()
}

const TEST: &str = "store::journal::tests::";

// Kills at every system call

#[test_case(0, "append"; "a new journal")]
#[test_case(2, "append"; "an append")]
#[test_case(3, "append_and_compact"; "an append that compacts")]
fn sum_kill(lines: u64, kind: &str) {
    let child = format!("{TEST}child_adds_ten");
    let points = kill_at_every_point(
        &child,
        |dir| (0..lines).for_each(|_| Journal::<TestSum>::open(dir).append(vec![1]).unwrap()),
        |dir, point| {
            let found = sum_in(dir);
            assert!(found == lines || found == lines + 10, "{kind}, point {point}: {found}");
            // The next processes go on from what they found, over a compaction.
            (0..5).for_each(|_| Journal::<TestSum>::open(dir).append(vec![100]).unwrap());
            assert_eq!(sum_in(dir), found + 500, "{kind}, point {point}");
        },
    );
    assert!(points >= if kind == "append" { 5 } else { 12 }, "{points} points");
}

#[test]
fn child_adds_ten() {
    let Some(dir) = child_dir() else { return };
    Journal::<TestSum>::open(&dir).append(vec![10]).unwrap();
}

#[test_case(&[], "a"; "a new small one")]
#[test_case(&["a", "b"], "a"; "a small one is rewritten")]
#[test_case(&["a", "b", "c"], "a"; "a line is appended")]
#[test_case(&["a", "b", "c", "d", "e", "f"], "a"; "an append that compacts")]
fn map_kill(keys: &[&str], changed: &str) {
    let points = kill_at_every_point(
        &format!("{TEST}child_changes_a"),
        |dir| {
            for key in keys {
                Journal::<TestMap>::open(dir).append(change(key, 1)).unwrap();
            }
        },
        |dir, point| {
            let mut found = map_in(dir);
            let value = found.remove(changed);
            let expected: BTreeMap<_, _> = keys
                .iter()
                .filter(|key| **key != changed)
                .map(|key| ((*key).to_owned(), 1))
                .collect();
            assert_eq!(found, expected, "point {point}");
            let before = (!keys.is_empty()).then_some(1);
            assert!(value == before || value == Some(9), "point {point}: {value:?}");
            Journal::<TestMap>::open(dir).append(change(changed, 2)).unwrap();
            assert_eq!(map_in(dir)[changed], 2, "point {point}");
        },
    );
    assert!(points >= 5, "{points} points");
}

#[test]
fn child_changes_a() {
    let Some(dir) = child_dir() else { return };
    Journal::<TestMap>::open(&dir).append(change("a", 9)).unwrap();
}

#[test]
fn a_killed_compaction_loses_no_line_and_keeps_one_that_arrived_meanwhile() {
    if let Some(dir) = child_dir() {
        let journal = Journal::<TestMap>::open(&dir);
        let compaction = journal.stage_compaction().unwrap().unwrap();
        Journal::<TestMap>::open(&dir).append(change("late", 7)).unwrap();
        journal.finish_compaction(compaction).unwrap();
        return;
    }
    let keys = [("a", 1), ("b", 1), ("c", 1), ("d", 1)];
    let is_written = Cell::new(false);
    let points = kill_at_every_point(
        &format!("{TEST}a_killed_compaction_loses_no_line_and_keeps_one_that_arrived_meanwhile"),
        |dir| {
            let journal = Journal::<TestMap>::open(dir);
            for (key, value) in keys {
                journal.append(change(key, value)).unwrap();
            }
            assert!(journal.needs_compaction());
        },
        |dir, point| {
            let mut found = map_in(dir);
            let late = found.remove("late");
            assert_eq!(found, map(keys), "point {point}");
            assert!(
                late == Some(7) || late.is_none() && !is_written.get(),
                "point {point}: {late:?}"
            );
            is_written.set(late.is_some());
        },
    );
    assert!(is_written.get() && points >= 17, "{points} points");
}

/// The sound entries are there after every kill, and the damaged text is either in place or aside.
#[test_case("map.json", "{\"format\":1,\"map\":{\"a\":1},,", &[("a", 1), ("b", 2)]; "of the snapshot")]
#[test_case("map.journal", "[\"b\",2]\nno change\n[\"c\",3]\n", &[("a", 1), ("b", 2), ("c", 3)]; "of the journal")]
fn salvage_kill(file: &str, damaged: &str, expected: &[(&str, u64)]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    let points = kill_at_every_point(
        &format!("{TEST}child_reads_map"),
        |dir| {
            fs::write(dir.join("map.json"), r#"{"format":1,"journal":0,"map":{"a":1}}"#).unwrap();
            fs::write(dir.join("map.journal"), "[\"b\",2]\n").unwrap();
            fs::write(dir.join(file), damaged).unwrap();
        },
        |dir, point| {
            assert_eq!(map_in(dir), expected, "point {point}");
            let aside = set_aside_in(dir);
            assert!(!aside.is_empty(), "point {point}: the reader has set it aside");
            for path in aside {
                assert_eq!(fs::read_to_string(path).unwrap(), damaged, "point {point}");
            }
            assert_eq!(map_in(dir), expected, "point {point}");
        },
    );
    assert!(points >= 15, "{points} points");
}

#[test]
fn child_reads_map() {
    let Some(dir) = child_dir() else { return };
    Journal::<TestMap>::open(&dir).read(|_| ()).unwrap();
}

#[test]
fn a_kill_never_loses_a_snapshot_that_is_a_symbolic_link() {
    if let Some(dir) = child_dir() {
        Journal::<TestMap>::open(&dir.join("data")).read(|_| ()).unwrap();
        return;
    }
    let content = r#"{"format":1,"journal":0,"map":{"a":1}}"#;
    kill_at_every_point(
        &format!("{TEST}a_kill_never_loses_a_snapshot_that_is_a_symbolic_link"),
        |dir| {
            fs::write(dir.join("elsewhere"), content).unwrap();
            fs::create_dir(dir.join("data")).unwrap();
            symlink("../elsewhere", dir.join("data/map.json")).unwrap();
        },
        |dir, point| {
            assert_eq!(map_in(&dir.join("data")), map([("a", 1)]), "point {point}");
            assert_eq!(fs::read_to_string(dir.join("elsewhere")).unwrap(), content);
        },
    );
}

#[test]
fn the_next_append_to_a_damaged_sum_compacts_and_a_kill_counts_nothing_twice() {
    if let Some(dir) = child_dir() {
        Journal::<TestSum>::open(&dir).append(vec![10]).unwrap();
        return;
    }
    let damaged = r#"{"format":1,"journal":7,"sum":5"#;
    kill_at_every_point(
        &format!("{TEST}the_next_append_to_a_damaged_sum_compacts_and_a_kill_counts_nothing_twice"),
        |dir| {
            fs::write(dir.join("sum.json"), damaged).unwrap();
            fs::write(dir.join("sum-7.journal"), "1\n").unwrap();
            fs::write(dir.join("sum-9.journal"), "1000\n").unwrap();
        },
        |dir, point| {
            let found = sum_in(dir);
            assert!(found == 6 || found == 16, "point {point}: {found}");
            for path in set_aside_in(dir) {
                assert_eq!(fs::read_to_string(path).unwrap(), damaged, "point {point}");
            }
        },
    );
}

// Kills at random moments, and several processes

#[test]
fn one_hundred_random_kills_add_up_exactly_once() {
    if let Some(dir) = child_dir() {
        let journal = Journal::<TestSum>::open(&dir);
        let mut sum = journal.read(|sum| sum.0).unwrap();
        loop {
            journal.append(vec![1]).unwrap();
            sum += 1;
            report_durable(sum);
        }
    }
    kill_at_random(
        &format!("{TEST}one_hundred_random_kills_add_up_exactly_once"),
        100,
        |dir, reported| {
            let last: u64 = reported.last().unwrap().parse().unwrap();
            let found = sum_in(dir);
            assert!(found == last || found == last + 1, "{found} after {last}");
        },
    );
}

#[test]
fn one_hundred_random_kills_lose_no_entry() {
    if let Some(dir) = child_dir() {
        let journal = Journal::<TestMap>::open(&dir);
        let start = journal.read(|map| map.0.values().copied().max()).unwrap().unwrap_or(0);
        for value in start + 1.. {
            journal.append(change(&format!("k{}", value % 5), value)).unwrap();
            report_durable(value);
            if value % 3 == 0 {
                journal.compact().unwrap();
            }
        }
    }
    kill_at_random(
        &format!("{TEST}one_hundred_random_kills_lose_no_entry"),
        100,
        |dir, reported| {
            let last: u64 = reported.last().unwrap().parse().unwrap();
            let found = map_in(dir);
            let newest = *found.values().max().unwrap();
            assert!(newest == last || newest == last + 1, "{newest} after {last}");
            for value in (1..=newest).rev().take(5) {
                assert_eq!(found[&format!("k{}", value % 5)], value, "{found:?}");
            }
        },
    );
}

#[test]
fn four_processes_at_once_lose_nothing() {
    if let Some(dir) = child_dir() {
        let sum = Journal::<TestSum>::open(&dir);
        let map = Journal::<TestMap>::open(&dir);
        for value in 1..=25 {
            sum.append(vec![value]).unwrap();
            map.append(change(&format!("{}-{value}", std::process::id()), value)).unwrap();
            if value % 7 == 0 {
                map.compact().unwrap();
            }
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run_at_once(&format!("{TEST}four_processes_at_once_lose_nothing"), 4, dir.path());
    assert_eq!(sum_in(dir.path()), 4 * (1..=25).sum::<u64>());
    let found = map_in(dir.path());
    assert_eq!((found.len(), found.values().sum()), (100, 4 * (1..=25).sum::<u64>()));
}

/// A file system gives the inode number of a removed file to the next one; before Linux 6.13 its clock ticks every 4 ms.
#[test]
fn a_snapshot_replaced_twice_within_a_clock_tick_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Journal::<TestMap>::open(dir.path()), Journal::<TestMap>::open(dir.path()));
    for round in 100..400 {
        one.append(change("a", round)).unwrap();
        assert_eq!(two.read(|map| map.0["a"]).unwrap(), round);
        one.append(change("a", round + 400)).unwrap();
        one.append(change("a", round + 500)).unwrap();
        assert_eq!(two.read(|map| map.0["a"]).unwrap(), round + 500);
    }
}

// Torn lines, full disks, files that cannot be read

#[test]
fn a_line_torn_at_any_byte_is_ignored_and_overwritten() {
    for cut in 0..=4 {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("sum-0.journal"), &"5\n1000\n"[..2 + cut]).unwrap();
        let reader = Journal::<TestSum>::open(dir.path());
        assert_eq!(reader.read(|sum| sum.0).unwrap(), 5);
        Journal::<TestSum>::open(dir.path()).append(vec![7]).unwrap();
        assert_eq!((sum_in(dir.path()), reader.read(|sum| sum.0).unwrap()), (12, 12), "{cut}");
        assert_eq!(fs::read(dir.path().join("sum-0.journal")).unwrap(), b"5\n7\n");
    }
}

#[test]
fn changes_on_a_full_disk_stay_in_memory_and_are_written_once() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let dir = disk.path().join("data");
    // The first of two lines still fits into the last page of the journal: the write ends between them.
    fs::create_dir(&dir).unwrap();
    let lines = format!("1{}\n2\n", " ".repeat(4_085));
    fs::write(dir.join("sum-0.journal"), &lines).unwrap();
    let (sum, map) = (Journal::<TestSum>::open(&dir), Journal::<TestMap>::open(&dir));
    for key in ["a", "b", "c"] {
        map.append(change(key, 1)).unwrap();
    }
    assert_eq!(sum.read(|sum| sum.0).unwrap(), 3);
    let filler = disk.fill();
    assert!(matches!(sum.append(vec![10, 1_000_000]), Err(JournalError::Io { .. })));
    assert_eq!((sum.read(|sum| sum.0).unwrap(), sum_in(&dir)), (1_000_013, 3));
    assert_eq!(fs::read_to_string(dir.join("sum-0.journal")).unwrap(), lines, "no part of it");
    let _ = map.append(change("a", 2));
    let _ = map.append(vec![("d".to_owned(), 4), ("e".repeat(5_000), 5)]);
    assert_eq!(map.read(|map| (map.0["a"], map.0["d"])).unwrap(), (2, 4));
    assert!(!map_in(&dir).contains_key("d"));
    fs::remove_file(filler).unwrap();
    sum.append(vec![100]).unwrap();
    map.compact().unwrap();
    assert_eq!((sum.read(|sum| sum.0).unwrap(), sum_in(&dir)), (1_000_113, 1_000_113));
    assert_eq!(map.read(|map| map.0.clone()).unwrap(), map_in(&dir));
    assert_eq!(map_in(&dir).len(), 5);
}

#[test_case(|path| fs::create_dir(path).unwrap(); "a directory")]
#[test_case(|path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap(); "a fifo")]
#[test_case(|path| File::create(path).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap(); "a file that is too large")]
#[test_case(|path| symlink("nowhere", path).unwrap(); "a dangling link")]
fn a_file_that_cannot_be_read_is_an_error_and_is_left_alone(put: fn(&Path)) {
    for file in ["sum.json", "sum-0.journal"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file);
        put(&path);
        let version = current_version(&path);
        let journal = Journal::<TestSum>::open(dir.path());
        for _ in 0..=TestSum::MAX_LINES {
            let error = journal.append(vec![1]).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("`data/{file}` cannot be read: ")),
                "{error}"
            );
        }
        assert!(journal.read(|sum| sum.0).is_err());
        assert!(version.unwrap().same_metadata(current_version(&path).unwrap()), "left as it is");
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        journal.append(vec![1]).unwrap();
        assert_eq!(sum_in(dir.path()), TestSum::MAX_LINES as u64 + 2);
    }
}

#[test_case(r#"{"format":2,"journal":3,"mood":"fine","sum":5}"#; "with a new field")]
#[test_case(r#"{"format":2,"journal":3,"sum":5"#; "torn")]
fn a_newer_format_is_read_and_never_written(snapshot: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sum.json"), snapshot).unwrap();
    fs::write(dir.path().join("sum-3.journal"), "1\n{\"new\":\"change\"}\n").unwrap();
    let journal = Journal::<TestSum>::open(dir.path());
    for _ in 0..=TestSum::MAX_LINES {
        assert!(matches!(journal.append(vec![2]), Err(JournalError::NewerFormat { found: 2, .. })));
    }
    assert_eq!(journal.read(|sum| sum.0).unwrap(), 16);
    assert_eq!(names_in(dir.path()), ["sum-3.journal", "sum.json", "sum.lock"]);
    assert_eq!(fs::read_to_string(dir.path().join("sum.json")).unwrap(), snapshot);
}

#[test]
fn a_damaged_snapshot_and_a_damaged_journal_are_both_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("map.json"), "{\"a\":1").unwrap();
    fs::write(dir.path().join("map.journal"), "[\"b\",2]\nno change\n").unwrap();
    let journal = Journal::<TestMap>::open(dir.path());
    assert_eq!(journal.read(|map| map.0.clone()).unwrap(), map([("a", 1), ("b", 2)]));
    let aside: Vec<_> =
        set_aside_in(dir.path()).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(aside, ["[\"b\",2]\nno change\n", "{\"a\":1"]);
    let warnings = journal.take_warnings();
    assert!(warnings[0].starts_with("`data/map.json` was damaged (EOF while"), "{warnings:?}");
    let of_journal = "`data/map.journal` was damaged (1 of its lines cannot be read); ";
    assert!(warnings[1].starts_with(of_journal), "{warnings:?}");
    assert_eq!(journal.take_warnings(), Vec::<String>::new());
}
