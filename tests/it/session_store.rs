//! The store of conversations under fire: killed writers, many writers, disks that take nothing more.
//!
//! The writers are processes of their own: this test program, started again as [`writer`].

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use adjutant::base::RunId;
use adjutant::sessions::{Begin, CompletedTurn, SessionStore};
use serde_json::Value;

const DATA: &str = "SESSION_WRITER_DATA";
const WORK: &str = "SESSION_WRITER_WORK";

/// The child: does turns in conversations, and says on stdout which ones are completed.
#[test]
fn writer() {
    let (Some(data), Ok(work)) = (env::var_os(DATA), env::var(WORK)) else { return };
    let mut words = work.split(' ');
    let (kind, key) = (words.next().unwrap(), words.next().unwrap().to_owned());
    if kind == "as-nobody" && nix::unistd::geteuid().is_root() {
        nix::unistd::setuid(65_534.into()).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work_on(&SessionStore::open(Path::new(&data)), kind, &key));
}

async fn work_on(store: &SessionStore, kind: &str, key: &str) {
    let time = if kind == "hammer" { hammer_time() } else { Duration::from_mins(1) };
    let until = Instant::now() + time;
    let mut stdout = std::io::stdout();
    for number in 0.. {
        let shared = kind == "hammer" && number % 8 == 0;
        let begin = begin(if shared { "shared" } else { key });
        let mut lease = store.begin(begin).await.unwrap();
        lease.completed(CompletedTurn { turns: 1, cost_usd: 0.0 }).await;
        let notes = lease.notes().join("; ");
        let conversation = lease.conversation();
        let (key, turns) = (&conversation.key, conversation.turns);
        writeln!(stdout, "\ndone {key} {turns} {notes}").unwrap();
        stdout.flush().unwrap();
        drop(lease);
        if number % 5 == 4 && kind == "fold" {
            store.fold_now().unwrap();
        }
        // A hammer has written to its own conversation as well, however slow the machine is.
        let had_its_time = Instant::now() > until && number > 0;
        if had_its_time || kind == "once" || kind == "as-nobody" {
            return;
        }
    }
}

/// Short, so that everybody can run all tests; `ADJUTANT_TEST_HAMMER_SECONDS=10` for longer.
fn hammer_time() -> Duration {
    let seconds = env::var("ADJUTANT_TEST_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

fn begin(key: &str) -> Begin {
    Begin {
        agent: "worker".parse().unwrap(),
        key: key.parse().unwrap(),
        fresh: false,
        folder: "/work".into(),
        config_dir: "/nowhere/claude".into(),
        new_id: uuid::Uuid::new_v4(),
        contract: "sha256:0".to_owned(),
        run: RunId::new(),
        patience: Duration::from_mins(1),
    }
}

fn start_writer(data: &Path, work: &str) -> Child {
    child(Command::new(env::current_exe().unwrap()), data, work)
}

fn child(mut program: Command, data: &Path, work: &str) -> Child {
    program
        .args(["--exact", "session_store::writer", "--nocapture", "--test-threads=1"])
        .env(DATA, data)
        .env(WORK, work)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The turns that a writer said were completed, by key, and what it had to say.
fn acknowledged(child: &mut Child) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    read_acknowledged(&text)
}

fn read_acknowledged(text: &str) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut turns = BTreeMap::new();
    let mut notes = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("done ")) {
        let mut words = line.splitn(3, ' ');
        let (key, count) = (words.next().unwrap(), words.next().unwrap());
        turns.insert(key.to_owned(), count.parse().unwrap());
        notes.extend(words.next().filter(|note| !note.is_empty()).map(str::to_owned));
    }
    (turns, notes)
}

/// The turns of every conversation that `sessions.json` and the journal have.
fn recorded(data: &Path) -> BTreeMap<String, u64> {
    let listing = SessionStore::open(data).list();
    assert_eq!(listing.notes, Vec::<String>::new(), "the store is as it should be");
    let entries = listing.conversations.iter().map(|listed| &listed.conversation);
    entries.map(|entry| (entry.key.to_string(), entry.turns)).collect()
}

fn conversations_in_file(data: &Path) -> usize {
    let text = fs::read(data.join("sessions.json")).unwrap();
    let whole: Value =
        serde_json::from_slice(&text).expect("`sessions.json` is whole at any moment");
    whole["conversations"].as_array().unwrap().len()
}

/// Enough conversations that the journal is used.
fn large_store(data: &Path) {
    let template = serde_json::json!({
        "agent": "filler", "state": "ready", "session_id": uuid::Uuid::new_v4(), "turns": 1, "cost_usd": 0.0,
        "created": "2026-01-01T00:00:00Z", "last_used": "2026-01-01T00:00:00Z", "last_run": RunId::new().to_string(),
        "folder": "/work", "config_dir": "/nowhere/claude", "contract": "sha256:0",
    });
    let entries = (0..250).map(|number| {
        let mut entry = template.clone();
        entry["key"] = format!("k{number}").into();
        entry
    });
    let store = serde_json::json!({"format": 1, "conversations": entries.collect::<Vec<_>>()});
    fs::create_dir_all(data).unwrap();
    fs::write(data.join("sessions.json"), store.to_string()).unwrap();
}

/// F4: 250 kills while `sessions.json` is rewritten, 250 while it is journalled and folded.
#[test]
fn f4_no_kill_tears_the_store_or_loses_a_completed_turn() {
    thread::scope(|scope| {
        scope.spawn(|| kill_writers("turns", 250));
        scope.spawn(|| kill_writers("fold", 250));
    });
}

fn kill_writers(kind: &str, kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    if kind == "fold" {
        large_store(&data);
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..kills {
        let mut child = start_writer(&data, &format!("{kind} key-{}", number % 3));
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // The first turn tells that it is at work; the kill comes at any moment within the next ones.
        let mut text = String::new();
        while !text.contains("\ndone ") && lines.read_line(&mut text).unwrap() > 0 {}
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(Duration::from_micros((random >> 33) % 12_000));
        child.kill().unwrap();
        lines.read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        // A last line that was cut is no acknowledgement.
        let whole_lines = text.rsplit_once('\n').unwrap().0;
        expected.extend(read_acknowledged(whole_lines).0);
        conversations_in_file(&data);
        let recorded = recorded(&data);
        for (key, turns) in &expected {
            assert!(
                recorded[key] >= *turns,
                "kill {number}: {key} has {} of {turns}",
                recorded[key]
            );
        }
        expected = expected.into_keys().map(|key| (key.clone(), recorded[&key])).collect();
    }
    assert!(expected.values().sum::<u64>() >= kills, "the writers did work: {expected:?}");
}

/// H4: every update of every process is there at the end, and no conversation was had by two at once.
#[test]
fn h4_eight_processes_lose_nothing() {
    for large in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        if large {
            large_store(&data);
        }
        let mut writers: Vec<Child> =
            (0..8).map(|number| start_writer(&data, &format!("hammer own-{number}"))).collect();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for writer in &mut writers {
            let (turns, notes) = acknowledged(writer);
            assert!(writer.wait().unwrap().success());
            assert_eq!(notes, Vec::<String>::new());
            for (key, turns) in turns {
                let most = expected.entry(key).or_default();
                *most = turns.max(*most);
            }
        }
        let mut recorded = recorded(&data);
        recorded.retain(|key, _| expected.contains_key(key));
        assert_eq!(recorded, expected);
        assert_eq!(expected.len(), 9, "eight of their own, and one that all shared");
    }
}

/// H1: a disk that takes nothing more. The limit on a file's size is the part of that anybody may set.
#[test]
fn h1_a_full_disk_is_a_note_and_leaves_the_store_whole() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(run_once(Command::new(env::current_exe().unwrap()), &data, "once").0["key"], 1);
    let before = fs::read(data.join("sessions.json")).unwrap();

    let mut limited = Command::new("bash");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap());
    let (turns, notes) = run_once(limited, &data, "once");
    assert_eq!(turns["key"], 2, "the call itself goes on from what is known");
    assert!(notes[0].contains("could not be kept"), "{notes:?}");
    assert_eq!(fs::read(data.join("sessions.json")).unwrap(), before);
    assert_eq!(run_once(Command::new(env::current_exe().unwrap()), &data, "once").0["key"], 2);
}

/// H1: a folder in which nothing can be written.
#[test]
fn h1_a_read_only_folder_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    run_once(Command::new(env::current_exe().unwrap()), &data, "once");
    // Whoever runs this, the writer is nobody: root could write anywhere.
    for path in [folder.path().to_path_buf(), data.clone(), data.join("sessions.json")] {
        let _ = nix::unistd::chown(&path, Some(65_534.into()), None);
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
    let (turns, notes) = run_once(Command::new(env::current_exe().unwrap()), &data, "as-nobody");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(turns["key"], 2);
    let kept = notes[0].contains("could not be kept") && notes[0].contains("ermission denied");
    assert!(kept, "{notes:?}");
}

fn run_once(program: Command, data: &Path, kind: &str) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut child = child(program, data, &format!("{kind} key"));
    let said = acknowledged(&mut child);
    assert!(child.wait().unwrap().success());
    said
}
