use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use test_case::test_case;

use super::*;
use crate::store::fault_point::harness::{self, SmallDisk};

const MODULE: &str = "store::document::tests";

/// Numbers by the process that added them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Numbers {
    format: FormatNumber<1>,
    numbers: BTreeMap<u32, Vec<u32>>,
}

impl Stored for Numbers {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = 1 << 20;
    const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
}

/// The same file, for a reader that does not wait for others.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct ImpatientNumbers(Numbers);

impl Stored for ImpatientNumbers {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = 1 << 20;
    const LOCK_TIMEOUT: Duration = Duration::from_millis(1);
}

fn document(dir: &Path) -> Document<Numbers> {
    Document::new(dir.join("a.json"))
}

/// Appends the next number of `owner` and returns it.
fn add(document: &Document<Numbers>, owner: u32) -> Result<u32, DocumentError> {
    document.update(|value| {
        let numbers = value.numbers.entry(owner).or_default();
        let next = u32::try_from(numbers.len()).unwrap();
        numbers.push(next);
        next
    })
}

fn count(dir: &Path, owner: u32) -> usize {
    let value = document(dir).read().unwrap();
    let numbers = value.and_then(|value| value.numbers.get(&owner).cloned()).unwrap_or_default();
    assert!(numbers.iter().copied().eq(0..u32::try_from(numbers.len()).unwrap()), "{numbers:?}");
    numbers.len()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_missing_file_is_no_value_and_the_first_update_creates_a_private_one() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("data");
    let document = document(&below);
    assert_eq!(document.read().unwrap(), None);
    assert!(!below.exists(), "reading creates nothing");
    assert_eq!((add(&document, 7).unwrap(), add(&document, 7).unwrap()), (0, 1));
    let text = fs::read_to_string(below.join("a.json")).unwrap();
    assert_eq!(
        text,
        "{\n  \"format\": 1,\n  \"numbers\": {\n    \"7\": [\n      0,\n      1\n    ]\n  }\n}"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&below), mode(&below.join("a.json"))), (0o700, 0o600));
    assert_eq!(names(&below), ["a.json", "a.lock"]);
}

#[test]
fn a_read_parses_again_only_after_a_change_by_anyone() {
    let dir = tempfile::tempdir().unwrap();
    let (document, other) = (document(dir.path()), document(dir.path()));
    add(&other, 1).unwrap();
    // A version taken within 20 ms of the change is not trusted yet.
    let mut value = document.read().unwrap().unwrap();
    while let next = document.read().unwrap().unwrap()
        && !Arc::ptr_eq(&value, &next)
    {
        value = next;
    }
    assert!(Arc::ptr_eq(&value, &document.read().unwrap().unwrap()));
    add(&other, 1).unwrap();
    assert_eq!(document.read().unwrap().unwrap().numbers[&1], [0, 1]);
    // A person edits the file in place.
    fs::write(document.path(), r#"{"format":1,"numbers":{}}"#).unwrap();
    assert!(document.read().unwrap().unwrap().numbers.is_empty());
    fs::remove_file(document.path()).unwrap();
    assert_eq!(document.read().unwrap(), None);
}

#[test_case("{\"format\": 1, \"numbers\": {\"1\": [0,", "EOF while parsing a value at line 1 column 34"; "torn")]
#[test_case("", "EOF while parsing a value at line 1 column 0"; "empty")]
#[test_case("{\"format\": 1}", "missing field `numbers` at line 1 column 13"; "incomplete")]
#[test_case("{\"format\": 0, \"numbers\": {}}", "it has format 0 at line 1 column 12"; "a format that never was")]
#[test_case("{\"format\": 2, \"numbers\": {}, \"restrictions\": []}", "it was written by a newer Adjutant"; "newer")]
#[test_case("{\"format\": 9}", "it was written by a newer Adjutant"; "newer with other fields")]
fn content_that_cannot_be_read_is_an_error_and_never_overwritten(text: &str, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    fs::write(document.path(), text).unwrap();
    let lock = document.lock().unwrap();
    assert_eq!(document.replace(&lock, &Numbers::default()).unwrap_err().to_string(), reason);
    drop(lock);
    assert_eq!(document.read().unwrap_err().to_string(), reason);
    assert_eq!(add(&document, 1).unwrap_err().to_string(), reason);
    assert_eq!(fs::read_to_string(document.path()).unwrap(), text);
}

#[test]
fn a_cached_value_does_not_hide_a_file_that_became_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    add(&document, 1).unwrap();
    document.read().unwrap();
    fs::write(document.path(), "{").unwrap();
    assert!(matches!(document.read(), Err(DocumentError::Unreadable(_))));
    fs::write(document.path(), r#"{"format":1,"numbers":{}}"#).unwrap();
    assert!(document.read().is_ok());
}

#[test]
fn what_is_no_regular_file_or_too_large_is_an_error_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    let refuses = |reason: &str| {
        let errors = [document.read().unwrap_err(), add(&document, 1).unwrap_err()];
        assert!(errors.iter().all(|error| error.to_string().contains(reason)), "{errors:?}");
    };
    fs::create_dir(document.path()).unwrap();
    refuses("it is not a regular file");
    fs::remove_dir(document.path()).unwrap();
    nix::unistd::mkfifo(document.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refuses("it is not a regular file");
    fs::remove_file(document.path()).unwrap();
    fs::File::create(document.path()).unwrap().set_len(Numbers::MAX_BYTES + 1).unwrap();
    refuses("it has 1048577 bytes");
    assert_eq!(names(dir.path()), ["a.json", "a.lock"]);
    fs::remove_file(document.path()).unwrap();
    std::os::unix::fs::symlink("a.json", document.path()).unwrap();
    refuses("Too many levels of symbolic links");
}

#[test]
fn a_damaged_file_is_set_aside_under_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    let lock = document.lock().unwrap();
    for text in ["{", "["] {
        fs::write(document.path(), text).unwrap();
        document.set_aside(&lock).unwrap();
    }
    assert_eq!(names(dir.path()), ["a.json.damaged-1", "a.json.damaged-2", "a.lock"]);
    assert_eq!(fs::read_to_string(dir.path().join("a.json.damaged-1")).unwrap(), "{");
}

#[test]
fn an_update_waits_for_the_lock_with_a_limit_and_a_read_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let document = document(dir.path());
    add(&document, 1).unwrap();
    let lock = document.lock().unwrap();
    let impatient = Document::<ImpatientNumbers>::new(document.path().to_path_buf());
    assert_eq!(impatient.read().unwrap().unwrap().0.numbers[&1], [0]);
    let busy = impatient.update(|_| unreachable!("the lock is held")).unwrap_err();
    let holder = format!("it is being changed by process {}; try again", std::process::id());
    assert_eq!(busy.to_string(), holder);
    drop(lock);
    impatient.update(|_| ()).unwrap();
}

#[test]
fn an_update_on_a_full_disk_fails_and_keeps_the_value() {
    let Some(disk) = SmallDisk::mount(256) else { return };
    let document = document(disk.path());
    while count(disk.path(), 1) < 100 {
        add(&document, 1).unwrap();
    }
    let filler = disk.fill();
    let error = add(&document, 1).unwrap_err();
    let DocumentError::Write(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!((count(disk.path(), 1), names(disk.path()).len()), (100, 3), "no leftover");
    fs::remove_file(filler).unwrap();
    assert_eq!(add(&document, 1).unwrap(), 100);
}

#[test]
fn a_killed_update_leaves_the_old_or_the_new_value() {
    if let Some(dir) = harness::child_dir() {
        add(&document(&dir), 1).unwrap();
        return;
    }
    let points = harness::kill_at_every_point(
        &format!("{MODULE}::a_killed_update_leaves_the_old_or_the_new_value"),
        |dir| assert_eq!(add(&document(dir), 1).unwrap(), 0),
        |dir, point| {
            let expected = if point < 12 { 1 } else { 2 };
            assert_eq!(count(dir, 1), expected, "point {point}");
            add(&document(dir), 1).unwrap();
            assert_eq!(names(dir), ["a.json", "a.lock"], "the next update removes leftovers");
        },
    );
    assert_eq!(points, 12);
}

#[test]
fn a_hundred_random_kills_lose_no_durable_update() {
    if let Some(dir) = harness::child_dir() {
        loop {
            harness::report_durable(add(&document(&dir), 1).unwrap());
        }
    }
    let name = format!("{MODULE}::a_hundred_random_kills_lose_no_durable_update");
    harness::kill_at_random(&name, 100, |dir, reported| {
        // At most one update per kill was durable and not reported.
        let last: usize = reported.last().unwrap().parse().unwrap();
        let kept = count(dir, 1);
        assert!(kept == last + 1 || kept == last + 2, "{kept} kept, {last} reported last");
    });
}

#[test]
fn updates_of_two_processes_at_once_are_all_kept() {
    if let Some(dir) = harness::child_dir() {
        for expected in 0..50 {
            assert_eq!(add(&document(&dir), std::process::id()).unwrap(), expected);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    harness::run_at_once(
        &format!("{MODULE}::updates_of_two_processes_at_once_are_all_kept"),
        2,
        dir.path(),
    );
    let value = document(dir.path()).read().unwrap().unwrap();
    assert_eq!(value.numbers.values().map(Vec::len).collect::<Vec<_>>(), [50, 50]);
}
