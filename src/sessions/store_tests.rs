//! Tests of the session store through its public interface: start, resume, wait, damaged files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_case::test_case;
use uuid::Uuid;

use super::super::lease::CompletedTurn;
use super::super::session_name::SessionKey;
use super::super::table::store_schema;
use super::*;
use crate::util::RunId;

const TURN: CompletedTurn = CompletedTurn { turns: 1, cost_usd: 0.01 };

struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn store(&self) -> SessionStore {
        SessionStore::open(&self.data())
    }

    fn file(&self) -> PathBuf {
        self.data().join("sessions.json")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap()
    }

    fn write(&self, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.data()).unwrap();
        fs::write(self.file(), bytes).unwrap();
    }

    fn lease_request(&self, agent: &str) -> LeaseRequest {
        LeaseRequest {
            agent: agent.parse().unwrap(),
            key: SessionKey::default(),
            fresh: false,
            working_dir: "/work/here".into(),
            config_dir: self.dir.path().join("claude"),
            new_session_id: Uuid::new_v4(),
            agent_digest: "sha256:1".to_owned(),
            run: RunId::new(),
            timeout: Duration::from_secs(20),
        }
    }

    /// Runs one call from lease to completed turn.
    async fn call(&self, store: &SessionStore, agent: &str) -> (Uuid, StartMode, Vec<String>) {
        let mut lease = store.lease(self.lease_request(agent)).await.unwrap();
        let start = lease.start_mode();
        lease.record_completed(TURN).await;
        (lease.session_id(), start, lease.notes().to_vec())
    }

    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains(".damaged-2")).collect()
    }

    fn transcript(&self, id: Uuid, lines: &str) {
        let folder = self.dir.path().join("claude/projects/-work-here");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{id}.jsonl")), lines).unwrap();
    }
}

fn with_key(begin: LeaseRequest, key: &str) -> LeaseRequest {
    LeaseRequest { key: key.parse().unwrap(), ..begin }
}

#[tokio::test]
async fn a_session_is_resumed_in_another_process() {
    let project = Project::new();
    let (first, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((start, notes), (StartMode::Create, vec![]));
    let (second, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((second, start, notes), (first, StartMode::Resume, vec![]));
    let entry = &project.json()["conversations"][0];
    assert_eq!(entry["turns"], 2);
    assert_eq!(entry["cost_usd"], 0.02);
    assert_eq!(entry["state"], "ready");
}

#[tokio::test]
async fn keys_separate_sessions() {
    let (project, store) = (Project::new(), Project::new());
    let store = store.store();
    let one = store.lease(with_key(project.lease_request("reviewer"), "pr-1")).await.unwrap();
    let two = store.lease(with_key(project.lease_request("reviewer"), "pr-2")).await.unwrap();
    assert_ne!(one.session_id(), two.session_id());
}

#[tokio::test]
async fn the_session_id_is_written_before_the_process_starts() {
    let project = Project::new();
    let lease = project.store().lease(project.lease_request("reviewer")).await.unwrap();
    let entry = &project.json()["conversations"][0];
    assert_eq!(entry["session_id"], lease.session_id().to_string());
    assert_eq!(entry["state"], "starting");
}

#[tokio::test]
async fn a_session_without_a_completed_turn_is_not_resumed() {
    let project = Project::new();
    let lost = project.store().lease(project.lease_request("reviewer")).await.unwrap().session_id();
    project.transcript(lost, r#"{"type":"user","message":{"role":"user","content":"hello"}}"#);
    let (id, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_ne!(id, lost);
    assert_eq!(start, StartMode::Create);
    assert!(notes[0].contains("never completed"), "{notes:?}");
    assert_eq!(project.json()["conversations"][0]["replaces"], lost.to_string());
}

#[tokio::test]
async fn a_completed_turn_found_only_in_the_transcript_is_resumed() {
    let project = Project::new();
    let kept = project.store().lease(project.lease_request("reviewer")).await.unwrap().session_id();
    let line = json!({"type": "assistant", "isSidechain": false,
        "message": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "done"}]}});
    project.transcript(kept, &format!("{line}\n"));
    let (id, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((id, start), (kept, StartMode::Resume));
    assert!(notes[0].contains("goes on from its transcript"), "{notes:?}");
}

#[tokio::test]
async fn a_changed_agent_resumes_with_a_note() {
    let (project, store) = (Project::new(), Project::new().store());
    let (first, ..) = project.call(&store, "reviewer").await;
    let begin =
        LeaseRequest { agent_digest: "sha256:2".to_owned(), ..project.lease_request("reviewer") };
    let lease = store.lease(begin).await.unwrap();
    assert_eq!((lease.session_id(), lease.start_mode()), (first, StartMode::Resume));
    assert!(lease.notes()[0].contains("under the new contract"), "{:?}", lease.notes());
}

#[tokio::test]
async fn another_working_directory_starts_a_new_session_with_a_note() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let lease = store
        .lease(LeaseRequest {
            working_dir: "/elsewhere".into(),
            ..project.lease_request("reviewer")
        })
        .await
        .unwrap();
    assert_eq!(lease.start_mode(), StartMode::Create);
    assert_ne!(lease.session_id(), first);
    assert!(lease.notes()[0].contains("`/work/here`"), "{:?}", lease.notes());
}

#[tokio::test]
async fn fresh_starts_a_new_session() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let lease = store
        .lease(LeaseRequest { fresh: true, ..project.lease_request("reviewer") })
        .await
        .unwrap();
    assert_eq!((lease.start_mode(), lease.notes()), (StartMode::Create, &[][..]));
    assert_ne!(lease.session_id(), first);
}

#[tokio::test]
async fn a_session_unknown_to_claude_is_restarted_once() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let mut lease = store.lease(project.lease_request("reviewer")).await.unwrap();
    let fresh = lease.restart("No conversation found").await.unwrap();
    assert_ne!(fresh, first);
    assert_eq!(lease.start_mode(), StartMode::Create);
    assert!(lease.notes()[0].contains("No conversation found"));
    assert_eq!(project.json()["conversations"][0]["session_id"], fresh.to_string());
    let again = lease.restart("No conversation found").await.unwrap_err();
    assert!(matches!(again, SessionError::AlreadyRestarted { .. }));
}

#[tokio::test]
async fn a_failed_run_adds_its_cost_and_nothing_else() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let mut lease = store.lease(project.lease_request("reviewer")).await.unwrap();
    lease.record_failed(0.005).await;
    drop(lease);
    let entry = project.json()["conversations"][0].clone();
    assert_eq!((&entry["turns"], &entry["cost_usd"]), (&json!(1), &json!(0.015)));
    assert_eq!(store.lease(project.lease_request("reviewer")).await.unwrap().session_id(), first);
}

#[tokio::test]
async fn the_last_run_is_known_to_the_next_lease() {
    let project = Project::new();
    let (one, two) = (project.store(), project.store());
    let request = project.lease_request("reviewer");
    let first = request.run;
    one.lease(request).await.unwrap().record_completed(TURN).await;
    let begin = project.lease_request("reviewer");
    let second = begin.run;
    let mut lease = two.lease(begin).await.unwrap();
    assert_eq!(lease.last_run(), Some(first));
    lease.record_completed(TURN).await;
    drop(lease);
    assert_eq!(
        one.lease(project.lease_request("reviewer")).await.unwrap().last_run(),
        Some(second)
    );
}

#[tokio::test]
async fn the_restored_cost_is_read_from_the_transcript() {
    let project = Project::new();
    let store = project.store();
    let (id, ..) = project.call(&store, "reviewer").await;
    let line = r#"{"type":"cost-state","sessionId":"x","totalCostUSD":0.5}"#;
    project.transcript(
        id,
        &format!("{}\n{line}\n{{\"type\":\"mode\"}}\n", line.replace("0.5", "0.25")),
    );
    let lease = store.lease(project.lease_request("reviewer")).await.unwrap();
    assert!((lease.counted_before() - 0.5).abs() < 1e-9);
}

#[tokio::test]
async fn runs_of_two_stores_are_served_in_order_of_arrival() {
    let project = Project::new();
    let stores = [project.store(), project.store()];
    let first = stores[0].lease(project.lease_request("reviewer")).await.unwrap();
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..6usize {
        let (store, begin, sender) =
            (stores[number % 2].clone(), project.lease_request("reviewer"), sender.clone());
        tokio::spawn(async move {
            let mut lease = store.lease(begin).await.unwrap();
            sender.send(number).unwrap();
            lease.record_completed(TURN).await;
        });
        wait_for_tickets(&project, number + 2).await;
    }
    drop(first);
    let mut came = Vec::new();
    while came.len() < 6 {
        came.push(order.recv().await.unwrap());
    }
    assert_eq!(came, [0, 1, 2, 3, 4, 5]);
}

async fn wait_for_tickets(project: &Project, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let tickets = || fs::read_dir(project.data().join("leases")).unwrap().count() - 1;
    while tickets() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} tickets", tickets());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_timeout_names_the_holder() {
    let project = Project::new();
    let held = project.store().lease(project.lease_request("reviewer")).await.unwrap();
    let request =
        LeaseRequest { timeout: Duration::from_millis(30), ..project.lease_request("reviewer") };
    let run = held.session().last_run;
    let busy = project.store().lease(request).await.unwrap_err().to_string();
    assert!(busy.contains(&format!("process {}", std::process::id())), "{busy}");
    assert!(busy.contains(&run.to_string()), "{busy}");
    assert_eq!(
        fs::read_dir(project.data().join("leases")).unwrap().count(),
        2,
        "its ticket is gone"
    );
}

/// For example with too many open files: it is unknown if another process uses the session.
#[tokio::test]
async fn an_unreadable_queue_is_an_error() {
    let project = Project::new();
    let store = project.store();
    let held = store.lease(project.lease_request("a")).await.unwrap();
    // An unreadable ticket of another run: a symbolic link to itself.
    let leases = project.data().join("leases");
    let ticket = fs::read_dir(&leases).unwrap().flatten().map(|entry| entry.file_name());
    let ticket = ticket.filter_map(|name| name.into_string().ok());
    let ticket = ticket.filter(|name| name.ends_with(".1")).last().unwrap();
    drop(held);
    symlink(&ticket, leases.join(&ticket)).unwrap();
    let refused = store.lease(project.lease_request("a")).await;
    assert!(matches!(refused, Err(SessionError::QueueUnavailable { .. })), "{refused:?}");
    assert!(
        store
            .forget(&[SessionName { agent: "a".parse().unwrap(), key: SessionKey::default() }])
            .is_err(),
        "nor can it be forgotten"
    );
    fs::remove_file(leases.join(&ticket)).unwrap();
    project.call(&store, "a").await;
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_queue_order_intact() {
    let project = Project::new();
    let store = project.store();
    let held = store.lease(project.lease_request("reviewer")).await.unwrap();
    let given_up = {
        let (store, begin) = (store.clone(), project.lease_request("reviewer"));
        tokio::spawn(async move { store.lease(begin).await.map(|_| ()) })
    };
    wait_for_tickets(&project, 2).await;
    let (other, begin) = (store.clone(), project.lease_request("reviewer"));
    let last = tokio::spawn(async move { other.lease(begin).await.unwrap().session_id() });
    wait_for_tickets(&project, 3).await;
    given_up.abort();
    given_up.await.unwrap_err();
    tokio::task::yield_now().await;
    assert!(!last.is_finished(), "the first holder still has it");
    drop(held);
    last.await.unwrap();
}

#[tokio::test]
async fn files_are_private_and_match_the_schema() {
    let project = Project::new();
    project.call(&project.store(), "reviewer").await;
    assert_eq!(fs::metadata(project.file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(project.data()).unwrap().permissions().mode() & 0o777, 0o700);
    let validator = jsonschema::validator_for(&store_schema()).unwrap();
    let errors: Vec<_> = validator.iter_errors(&project.json()).map(|e| e.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert!(!validator.is_valid(&json!({"format": 1, "conversations": [{}]})));
}

#[test]
fn the_schema_in_the_documentation_is_the_one_in_force() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/sessions.schema.json");
    let text = serde_json::to_string_pretty(&store_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, text, "run `UPDATE_SCHEMAS=1 cargo test --lib the_schema_in` and commit");
}

/// H1: intact entries are kept, the damaged file is set aside, and a note reports it.
#[test_case(|text| text[..text.len() - 40].to_owned(), 1; "torn")]
#[test_case(|_| String::new(), 0; "empty")]
#[test_case(|_| "[]".to_owned(), 0; "of the wrong type")]
#[test_case(|_| "null".to_owned(), 0; "null")]
#[test_case(|text| text.replacen("\"turns\": 1", "\"turns\": \"one\"", 1), 1; "an entry of the wrong type")]
#[test_case(|text| text.replacen("\"turns\": 1", "\"turns\": -1", 1), 1; "a number that cannot be")]
#[test_case(|text| text.replacen("\"agent\": \"a\"", "\"agent\": \"../a\"", 1), 1; "a name that cannot be")]
#[test_case(|text| text.replacen("\"agent\": \"a\",", "\"agent\": \"a\"", 1), 1; "a comma missing")]
#[test_case(|text| text.replacen("\"turns\": 1", "\"turns\": 1, \"remark\": \"mine\"", 1), 2; "a remark by hand")]
#[test_case(|text| text.replacen("\"format\": 1", "\"format\": 0", 1), 2; "no such format")]
#[test_case(|text| text.replacen("\"format\": 1,", "", 1), 2; "no format")]
#[test_case(|text| text.replace("\"agent\": \"b\"", "\"agent\": \"a\""), 1; "one twice")]
#[test_case(|text| format!("{text}<<<<<<< merge"), 2; "something after it")]
#[test_case(|text| format!("{}{text}", "{\"a\":".repeat(50_000)), 2; "deeply nested before it")]
#[tokio::test]
async fn damaged_files_are_set_aside_and_intact_entries_kept(
    spoil: fn(&str) -> String,
    kept: usize,
) {
    let project = Project::new();
    project.call(&project.store(), "a").await;
    project.call(&project.store(), "b").await;
    let spoilt = spoil(&fs::read_to_string(project.file()).unwrap());
    project.write(&spoilt);

    let lease = project.store().lease(project.lease_request("c")).await.unwrap();
    assert!(lease.notes()[0].contains("was damaged"), "{:?}", lease.notes());
    assert!(lease.notes()[0].contains(&format!("{kept} sound")), "{:?}", lease.notes());
    let aside = project.set_aside();
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), spoilt);
    assert_eq!(aside.len(), 1);
    assert_eq!(project.json()["conversations"].as_array().unwrap().len(), kept + 1);
    assert_eq!(
        project.call(&project.store(), "d").await.2,
        Vec::<String>::new(),
        "it is said once"
    );
}

#[tokio::test]
async fn a_symbolic_link_is_not_followed_for_writing() {
    let project = Project::new();
    project.call(&project.store(), "a").await;
    let target = project.dir.path().join("elsewhere.json");
    fs::rename(project.file(), &target).unwrap();
    symlink(&target, project.file()).unwrap();
    let before = fs::read(&target).unwrap();
    let (_, start, notes) = project.call(&project.store(), "a").await;
    assert_eq!(start, StartMode::Resume, "what it pointed to is sound");
    assert!(notes[0].contains("symbolic link"), "{notes:?}");
    assert_eq!(fs::read(&target).unwrap(), before);
    assert!(fs::symlink_metadata(project.file()).unwrap().is_file());
    assert!(fs::symlink_metadata(&project.set_aside()[0]).unwrap().is_symlink());
}

#[test_case(|path| fs::create_dir(path).unwrap(), "it is not a regular file"; "a folder")]
#[test_case(
    |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
    "it is not a regular file"; "a fifo"
)]
#[test_case(
    |path| fs::File::create(path).unwrap().set_len(3 << 30).unwrap(),
    "it has 3221225472 bytes, more than the 268435456 that are read"; "three gigabytes"
)]
#[test_case(|path| symlink("nowhere", path).unwrap(), "No such file or directory (os error 2)"; "a dangling link")]
#[tokio::test]
async fn a_path_that_cannot_be_read_is_an_error_and_is_left_alone(put: fn(&Path), why: &str) {
    let project = Project::new();
    fs::create_dir_all(project.data()).unwrap();
    for file in ["sessions.json", "sessions.journal"] {
        let path = project.data().join(file);
        put(&path);
        let store = project.store();
        let error = store.lease(project.lease_request("a")).await.unwrap_err().to_string();
        assert_eq!(error, format!("`data/{file}` cannot be read: {why}"));
        assert_eq!(store.list().unwrap_err().to_string(), error);
        assert_eq!(project.set_aside(), Vec::<PathBuf>::new());
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    }
    assert_eq!(project.call(&project.store(), "a").await.1, StartMode::Create);
}

#[tokio::test]
async fn a_store_of_another_user_is_set_aside_with_its_entries_kept() {
    let project = Project::new();
    project.call(&project.store(), "a").await;
    let stranger = nix::unistd::Uid::from_raw(54_321);
    if nix::unistd::chown(&project.file(), Some(stranger), None).is_err() {
        return; // Only root can make a file another user's.
    }
    let (_, start, notes) = project.call(&project.store(), "a").await;
    assert_eq!(start, StartMode::Resume);
    assert!(notes[0].contains("another user"), "{notes:?}");
}

#[tokio::test]
async fn a_newer_format_is_read_and_never_written() {
    let project = Project::new();
    let (id, ..) = project.call(&project.store(), "a").await;
    let newer = fs::read_to_string(project.file())
        .unwrap()
        .replace("\"format\": 1", "\"format\": 2, \"mood\": \"fine\"");
    project.write(&newer);
    let store = project.store();
    let (again, start, notes) = project.call(&store, "a").await;
    assert_eq!((again, start), (id, StartMode::Resume));
    assert!(notes[0].contains("format 2, written by a newer Adjutant"), "{notes:?}");
    let (fresh, ..) = project.call(&store, "b").await;
    assert_eq!(project.call(&store, "b").await.0, fresh, "in this process it goes on");
    assert_eq!(fs::read_to_string(project.file()).unwrap(), newer);
    project.write(&newer[..newer.len() - 30]);
    project.call(&project.store(), "a").await;
    assert_eq!(
        fs::read_to_string(project.file()).unwrap(),
        newer[..newer.len() - 30],
        "not even when torn"
    );
}

#[tokio::test]
async fn unwritable_directories_produce_a_note_and_no_failure() {
    let project = Project::new();
    fs::write(project.data(), "a file where the folder should be").unwrap();
    let store = project.store();
    let (id, _, notes) = project.call(&store, "a").await;
    assert!(notes.iter().any(|note| note.contains("could not be kept")), "{notes:?}");
    assert_eq!(project.call(&store, "a").await.0, id, "in this process it goes on");

    let held = store.lease(project.lease_request("a")).await.unwrap();
    let impatient =
        LeaseRequest { timeout: Duration::from_millis(20), ..project.lease_request("a") };
    assert!(matches!(store.lease(impatient).await, Err(SessionError::Busy { .. })));
    drop(held);

    fs::remove_file(project.data()).unwrap();
    project.call(&store, "b").await;
    let names: Vec<_> =
        store.list().unwrap().sessions.iter().map(|l| l.session.name().to_string()).collect();
    assert_eq!(names, ["a", "b"], "what could not be written before is written now");
    assert_eq!(project.json()["conversations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn changes_of_a_large_store_go_to_the_journal_and_are_compacted() {
    let project = Project::new();
    let store = project.store();
    fill_store(&store, 300);
    project.call(&store, "a").await;
    let journal = project.data().join("sessions.journal");
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    let count = || project.json()["conversations"].as_array().unwrap().len();
    assert_eq!(count(), 300, "not rewritten for every call");
    assert_eq!(
        project.call(&project.store(), "a").await.1,
        StartMode::Resume,
        "another process reads the journal"
    );

    // A torn line is no damage; a line that arrives during a compaction is kept.
    let torn = fs::read_to_string(&journal).unwrap() + "{\"put\":{\"agent\":\"b";
    fs::write(&journal, torn).unwrap();
    store.compact_now().unwrap();
    assert_eq!(count(), 301);
    assert_eq!(fs::metadata(&journal).unwrap().len(), 0);
    assert_eq!(project.call(&project.store(), "a").await, project.call(&store, "a").await);
}

#[tokio::test]
async fn the_store_is_complete_after_shutdown() {
    let project = Project::new();
    let store = project.store();
    fill_store(&store, 300);
    project.call(&store, "a").await;
    store.flush().await;
    assert_eq!(project.json()["conversations"].as_array().unwrap().len(), 301);
}

#[tokio::test]
async fn a_damaged_journal_is_set_aside_too() {
    let project = Project::new();
    let store = project.store();
    fill_store(&store, 300);
    let (id, ..) = project.call(&store, "a").await;
    let journal = project.data().join("sessions.journal");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("garbage\n{text}")).unwrap();
    let (again, _, notes) = project.call(&project.store(), "a").await;
    assert_eq!(again, id);
    assert!(notes[0].contains("`data/sessions.journal` was damaged"), "{notes:?}");
    assert_eq!(project.set_aside().len(), 1);
}

fn fill_store(store: &SessionStore, count: usize) {
    let changes = (0..count).map(|number| {
        let begin = Project::new().lease_request(&format!("agent-{number:05}"));
        SessionChange::Put(Arc::new(
            super::super::resume::new_session(None, &begin, now_millis(), None).session,
        ))
    });
    store.inner.journal.append(changes.collect()).unwrap();
    store.compact_now().unwrap();
}

#[tokio::test]
async fn forgetting_skips_sessions_in_use() {
    let project = Project::new();
    let store = project.store();
    project.call(&store, "a").await;
    let held = store.lease(project.lease_request("b")).await.unwrap();
    let names = ["a", "b", "c"].map(|name| name.parse().unwrap());
    let forgotten = project.store().forget(&names).unwrap();
    assert_eq!(forgotten.removed[0].name(), names[0]);
    assert_eq!(forgotten.busy[0].0, names[1]);
    assert_eq!(forgotten.unknown, [names[2].clone()]);
    drop(held);
    let left = store.list().unwrap().sessions;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].session.name(), names[1]);
}

#[tokio::test]
async fn staged_files_of_a_crash_are_removed_and_young_ones_are_left_to_their_writers() {
    let project = Project::new();
    fs::create_dir_all(project.data()).unwrap();
    let staged = [".staged-old", ".staged-young"].map(|name| project.data().join(name));
    for path in &staged {
        fs::write(path, "half").unwrap();
    }
    let hour_ago = std::time::SystemTime::now() - Duration::from_hours(1);
    fs::File::options().append(true).open(&staged[0]).unwrap().set_modified(hour_ago).unwrap();
    project.call(&project.store(), "a").await;
    assert_eq!(staged.map(|path| path.exists()), [false, true]);
}
