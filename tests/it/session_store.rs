//! Robustness of the session store: killed writers, concurrent writers, unwritable disks.
//!
//! The writers are separate processes: this test binary, started again with the test [`writer`].

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use adjutant::sessions::{CompletedTurn, LeaseRequest, SessionStore};
use adjutant::util::RunId;
use serde_json::Value;

const DATA_VARIABLE: &str = "SESSION_WRITER_DATA";
const WORK_VARIABLE: &str = "SESSION_WRITER_WORK";

/// The writer process: completes turns of sessions and prints each completed turn to stdout. Does nothing by itself.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn writer() {
    let (Some(data), Ok(work)) = (env::var_os(DATA_VARIABLE), env::var(WORK_VARIABLE)) else {
        return;
    };
    let mut words = work.split(' ');
    let (kind, key) = (words.next().unwrap(), words.next().unwrap().to_owned());
    if kind == "as-nobody" && nix::unistd::geteuid().is_root() {
        nix::unistd::setuid(65_534.into()).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run_writer(&SessionStore::open(Path::new(&data)), kind, &key));
}

async fn run_writer(store: &SessionStore, kind: &str, key: &str) {
    let time = if kind == "hammer" { hammer_duration() } else { Duration::from_mins(1) };
    let until = Instant::now() + time;
    let mut stdout = std::io::stdout();
    for number in 0.. {
        let shared = kind == "hammer" && number % 8 == 0;
        let begin = lease_request(if shared { "shared" } else { key });
        let mut lease = store.lease(begin).await.unwrap();
        lease.record_completed(CompletedTurn { turns: 1, cost_usd: 0.0 }).await;
        let notes = lease.notes().join("; ");
        let conversation = lease.session();
        let (key, turns) = (&conversation.key, conversation.turns);
        writeln!(stdout, "\ndone {key} {turns} {notes}").unwrap();
        stdout.flush().unwrap();
        drop(lease);
        if number % 5 == 4 && kind == "fold" {
            store.compact_now().unwrap();
        }
        // A `hammer` writes to its own session at least once, however slow the machine is.
        let is_over_time = Instant::now() > until && number > 0;
        if is_over_time || kind == "once" || kind == "as-nobody" {
            return;
        }
    }
}

/// 1.5 s by default, to keep the test suite fast; `ADJUTANT_TEST_HAMMER_SECONDS=10` runs longer.
fn hammer_duration() -> Duration {
    let seconds = env::var("ADJUTANT_TEST_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

fn lease_request(key: &str) -> LeaseRequest {
    LeaseRequest {
        agent: "worker".parse().unwrap(),
        key: key.parse().unwrap(),
        fresh: false,
        working_dir: "/work".into(),
        config_dir: "/nowhere/claude".into(),
        new_session_id: uuid::Uuid::new_v4(),
        agent_digest: "sha256:0".to_owned(),
        run: RunId::new(),
        timeout: Duration::from_mins(1),
    }
}

fn start_writer(data: &Path, work: &str) -> Child {
    spawn_writer(Command::new(env::current_exe().unwrap()), data, work)
}

fn spawn_writer(mut program: Command, data: &Path, work: &str) -> Child {
    program
        .args(["--exact", "session_store::writer", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DATA_VARIABLE, data)
        .env(WORK_VARIABLE, work)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The completed turns that a writer printed, by key, and its notes.
fn read_acknowledged_turns(child: &mut Child) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    parse_acknowledged_turns(&text)
}

fn parse_acknowledged_turns(text: &str) -> (BTreeMap<String, u64>, Vec<String>) {
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

/// The turns of every session in `sessions.json` and the journal.
fn stored_turns(data: &Path) -> BTreeMap<String, u64> {
    let listing = SessionStore::open(data).list().unwrap();
    assert_eq!(listing.notes, Vec::<String>::new(), "the store is as it should be");
    let entries = listing.sessions.iter().map(|listed| &listed.session);
    entries.map(|entry| (entry.key.to_string(), entry.turns)).collect()
}

fn sessions_in_file(data: &Path) -> usize {
    let text = fs::read(data.join("sessions.json")).unwrap();
    let whole: Value =
        serde_json::from_slice(&text).expect("`sessions.json` is whole at any moment");
    whole["conversations"].as_array().unwrap().len()
}

/// Stores enough sessions that updates go to the journal.
fn fill_store(data: &Path) {
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

/// F4: 250 kills while `sessions.json` is rewritten, 250 while the journal is written and compacted.
#[test]
fn f4_killed_writers_do_not_corrupt_the_store_or_lose_completed_turns() {
    thread::scope(|scope| {
        scope.spawn(|| kill_writers("turns", 250));
        scope.spawn(|| kill_writers("fold", 250));
    });
}

fn kill_writers(kind: &str, kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    if kind == "fold" {
        fill_store(&data);
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..kills {
        let mut child = start_writer(&data, &format!("{kind} key-{}", number % 3));
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // The first printed turn shows that the writer works; the kill follows at a random time within 12 ms.
        let mut text = String::new();
        while !text.contains("\ndone ") && lines.read_line(&mut text).unwrap() > 0 {}
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(Duration::from_micros((random >> 33) % 12_000));
        child.kill().unwrap();
        lines.read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        // An incomplete last line is not an acknowledgement.
        let whole_lines = text.rsplit_once('\n').unwrap().0;
        expected.extend(parse_acknowledged_turns(whole_lines).0);
        sessions_in_file(&data);
        let recorded = stored_turns(&data);
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

/// H4: every update of every process is stored, and no two processes hold the same session at once.
#[test]
fn h4_eight_concurrent_processes_lose_no_update() {
    for large in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        if large {
            fill_store(&data);
        }
        let mut writers: Vec<Child> =
            (0..8).map(|number| start_writer(&data, &format!("hammer own-{number}"))).collect();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for writer in &mut writers {
            let (turns, notes) = read_acknowledged_turns(writer);
            assert!(writer.wait().unwrap().success());
            assert_eq!(notes, Vec::<String>::new());
            for (key, turns) in turns {
                let most = expected.entry(key).or_default();
                *most = turns.max(*most);
            }
        }
        let mut recorded = stored_turns(&data);
        recorded.retain(|key, _| expected.contains_key(key));
        assert_eq!(recorded, expected);
        assert_eq!(expected.len(), 9, "eight of their own, and one that all shared");
    }
}

/// H1: a full disk, simulated by the limit on file size, which needs no privileges.
#[test]
fn h1_full_disk_adds_a_note_and_leaves_the_store_intact() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(
        run_writer_once(Command::new(env::current_exe().unwrap()), &data, "once").0["key"],
        1
    );
    let before = fs::read(data.join("sessions.json")).unwrap();

    let mut limited = Command::new("bash");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap());
    let (turns, notes) = run_writer_once(limited, &data, "once");
    assert_eq!(turns["key"], 2, "the call itself goes on from what is known");
    let reason = format!(
        "the conversation could not be kept: `data/sessions.json` could not be written: File too large (os error 27) at \
         path \"{}/.staged-sessions.json-",
        data.display()
    );
    let text = &notes[0];
    assert_eq!(text.matches(reason.as_str()).count(), 2, "once for each try: {text}");
    assert_eq!(fs::read(data.join("sessions.json")).unwrap(), before);
    assert_eq!(
        run_writer_once(Command::new(env::current_exe().unwrap()), &data, "once").0["key"],
        2
    );
}

/// H1: a read-only directory.
#[test]
fn h1_read_only_directory_adds_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    run_writer_once(Command::new(env::current_exe().unwrap()), &data, "once");
    // The writer runs as `nobody`, because root could write anyway.
    for path in [folder.path().to_path_buf(), data.clone(), data.join("sessions.json")] {
        let _ = nix::unistd::chown(&path, Some(65_534.into()), None);
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
    let (turns, notes) =
        run_writer_once(Command::new(env::current_exe().unwrap()), &data, "as-nobody");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(turns["key"], 2);
    let kept = notes[0].contains("could not be kept") && notes[0].contains("ermission denied");
    assert!(kept, "{notes:?}");
}

/// H1: an existing store that cannot be read for lack of permission.
#[test]
fn h1_unreadable_store_is_an_error_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let store = data.join("sessions.json");
    run_writer_once(Command::new(env::current_exe().unwrap()), &data, "once");
    // The writer runs as `nobody`, because root could read anyway.
    for path in [folder.path(), &data, &store, &data.join("sessions.lock")] {
        let _ = nix::unistd::chown(path, Some(65_534.into()), None);
    }
    let before = fs::read(&store).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o000)).unwrap();
    let program = Command::new(env::current_exe().unwrap());
    let mut writer = spawn_writer(program, &data, "as-nobody key");
    let (turns, _) = read_acknowledged_turns(&mut writer);
    assert!(!writer.wait().unwrap().success(), "the call failed, it did not begin anew");
    assert_eq!(turns, BTreeMap::new());
    fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read(&store).unwrap(), before);
}

fn run_writer_once(
    program: Command,
    data: &Path,
    kind: &str,
) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut child = spawn_writer(program, data, &format!("{kind} key"));
    let said = read_acknowledged_turns(&mut child);
    assert!(child.wait().unwrap().success());
    said
}
