use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use super::*;
use crate::store::fault_point::harness::{self, SmallDisk};

const MODULE: &str = "store::live_dir::tests";

fn numbers(dir: &Path) -> LiveDir<Vec<u32>> {
    LiveDir::new(dir.join("live"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn count_files(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn an_entry_is_private_and_exists_as_long_as_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = numbers(dir.path());
    assert_eq!((numbers.list().unwrap(), numbers.read("a").unwrap()), (Vec::new(), None));
    let owned = numbers.register("a", &vec![1]).unwrap();
    owned.update(&vec![1, 2]).unwrap();
    numbers.write("b", &vec![3]).unwrap();
    let path = numbers.path("a", "json");
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    let mut names = numbers.names().unwrap();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(numbers.read("a").unwrap(), Some(vec![1, 2]));
    drop(owned);
    assert_eq!(numbers.list().unwrap(), [[3]]);
    numbers.remove("b").unwrap();
    numbers.remove("b").unwrap();
    assert_eq!(count_files(path.parent().unwrap()), 0);
}

#[test]
fn files_that_cannot_be_entries_are_left_out_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = numbers(dir.path());
    let _owned = numbers.register("a", &vec![1]).unwrap();
    for (name, text) in [("torn", "[1,"), ("other", "{}"), ("empty", "")] {
        fs::write(numbers.path(name, "json"), text).unwrap();
    }
    fs::write(numbers.path("a", "stop"), "").unwrap();
    fs::create_dir(numbers.path("directory", "json")).unwrap();
    let fifo = numbers.path("fifo", "json");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::File::create(numbers.path("large", "json")).unwrap().set_len(MAX_ENTRY_BYTES + 1).unwrap();
    assert_eq!(numbers.list().unwrap(), [[1]]);
    assert_eq!(count_files(fifo.parent().unwrap()), 8);
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_and_not_empty() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = numbers(dir.path());
    fs::write(dir.path().join("live"), "").unwrap();
    assert!(numbers.list().is_err() && numbers.read("a").is_err());
    assert!(numbers.register("a", &vec![1]).is_err());
    fs::remove_file(dir.path().join("live")).unwrap();
    fs::create_dir(dir.path().join("live")).unwrap();
    std::os::unix::fs::symlink("a.json", numbers.path("a", "json")).unwrap();
    assert!(numbers.list().is_err(), "an entry that cannot be read may be a live owner");
}

#[test]
fn an_entry_on_a_full_disk_keeps_its_old_value() {
    let Some(disk) = SmallDisk::mount(64) else { return };
    let numbers = numbers(disk.path());
    let owned = numbers.register("a", &vec![1]).unwrap();
    disk.fill();
    assert_eq!(owned.update(&vec![2]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(numbers.list().unwrap(), [[1]]);
    assert_eq!(count_files(&disk.path().join("live")), 1, "no leftover");
    drop(owned);
    assert_eq!(numbers.list().unwrap(), Vec::<Vec<u32>>::new());
}

#[test]
fn a_killed_owner_leaves_a_whole_entry_or_none() {
    if let Some(dir) = harness::child_dir() {
        drop(numbers(&dir).register("a", &vec![1; 1_000]).unwrap());
        return;
    }
    let points = harness::kill_at_every_point(
        &format!("{MODULE}::a_killed_owner_leaves_a_whole_entry_or_none"),
        |_| (),
        |dir, point| {
            let expected = (point == 4).then(|| vec![1; 1_000]);
            assert_eq!(numbers(dir).read("a").unwrap(), expected, "point {point}");
            assert_eq!(numbers(dir).list().unwrap(), Vec::from_iter(expected), "point {point}");
        },
    );
    assert_eq!(points, 4);
}

#[test]
fn a_hundred_random_kills_leave_whole_entries() {
    if let Some(dir) = harness::child_dir() {
        let name = std::process::id().to_string();
        let owned = numbers(&dir).register(&name, &vec![0]).unwrap();
        for number in 1.. {
            owned.update(&vec![number; 1_000]).unwrap();
            harness::report_durable(format_args!("{name} {number}"));
        }
    }
    let name = format!("{MODULE}::a_hundred_random_kills_leave_whole_entries");
    harness::kill_at_random(&name, 100, |dir, reported| {
        let (name, number) = reported.last().unwrap().split_once(' ').unwrap();
        let entry = numbers(dir).read(name).unwrap().unwrap();
        let number: u32 = number.parse().unwrap();
        assert!(entry == vec![number; 1_000] || entry == vec![number + 1; 1_000], "{number}");
        assert!(numbers(dir).list().unwrap().contains(&entry));
    });
}

#[test]
fn two_processes_at_once_have_an_entry_each() {
    if let Some(dir) = harness::child_dir() {
        let name = std::process::id().to_string();
        for number in 0..50 {
            let owned = numbers(&dir).register(&name, &vec![number]).unwrap();
            assert!(numbers(&dir).list().unwrap().contains(&vec![number]));
            drop(owned);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = format!("{MODULE}::two_processes_at_once_have_an_entry_each");
    harness::run_at_once(&name, 2, dir.path());
    assert_eq!(count_files(&dir.path().join("live")), 0);
}

#[test]
fn only_directories_without_a_living_owner_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let owned = OwnedDir::create(dir.path(), "owned-1").unwrap();
    assert_eq!(mode(owned.path()), 0o700);
    assert!(OwnedDir::create(dir.path(), "owned-1").is_err(), "an existing one is not reused");
    for name in ["owned-2", "foreign", ".new-owned-3", ".new-owned-4"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("left"), "").unwrap();
    }
    let hour = SystemTime::now() - Duration::from_hours(1);
    fs::File::open(dir.path().join(".new-owned-3")).unwrap().set_modified(hour).unwrap();
    let mut removed = remove_unowned_dirs(dir.path(), |name| name.starts_with("owned-")).unwrap();
    removed.sort();
    assert_eq!(removed, [dir.path().join(".new-owned-3"), dir.path().join("owned-2")]);
    drop(owned);
    assert_eq!(count_files(dir.path()), 2, "the foreign one, and one that is being made");
    assert!(remove_unowned_dirs(&dir.path().join("foreign/left"), |_| true).is_err());
}

#[test]
fn a_killed_owner_of_a_directory_leaves_nothing_that_stays() {
    if let Some(dir) = harness::child_dir() {
        let owned = OwnedDir::create(&dir.join("tmp"), "owned").unwrap();
        fs::write(owned.path().join("file"), "x").unwrap();
        return;
    }
    let points = harness::kill_at_every_point(
        &format!("{MODULE}::a_killed_owner_of_a_directory_leaves_nothing_that_stays"),
        |_| (),
        |dir, point| {
            let parent = dir.join("tmp");
            let unlocked = parent.join(".new-owned");
            assert_eq!(parent.join("owned").exists(), point == 7, "point {point}: locked first");
            if unlocked.exists() {
                let hour = SystemTime::now() - Duration::from_hours(1);
                fs::File::open(&unlocked).unwrap().set_modified(hour).unwrap();
            }
            remove_unowned_dirs(&parent, |name| name == "owned").unwrap();
            assert_eq!(count_files(&parent), 0, "point {point}");
        },
    );
    assert_eq!(points, 7);
}
