//! The store as a call uses it: conversations begin, go on, wait, and survive what happens to their files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_case::test_case;
use uuid::Uuid;

use super::super::file::store_schema;
use super::super::lease::CompletedTurn;
use super::super::name::SessionKey;
use super::*;
use crate::base::RunId;

const TURN: CompletedTurn = CompletedTurn { turns: 1, cost_usd: 0.01 };

struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
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

    fn begin(&self, agent: &str) -> Begin {
        Begin {
            agent: agent.parse().unwrap(),
            key: SessionKey::default(),
            fresh: false,
            folder: "/work/here".into(),
            config_dir: self.folder.path().join("claude"),
            new_id: Uuid::new_v4(),
            contract: "sha256:1".to_owned(),
            run: RunId::new(),
            patience: Duration::from_secs(20),
        }
    }

    /// One call from beginning to end.
    async fn call(&self, store: &SessionStore, agent: &str) -> (Uuid, Start, Vec<String>) {
        let mut lease = store.begin(self.begin(agent)).await.unwrap();
        let start = lease.start();
        lease.completed(TURN).await;
        (lease.session_id(), start, lease.notes().to_vec())
    }

    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains(".damaged-2")).collect()
    }

    fn transcript(&self, id: Uuid, lines: &str) {
        let folder = self.folder.path().join("claude/projects/-work-here");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{id}.jsonl")), lines).unwrap();
    }
}

fn keyed(begin: Begin, key: &str) -> Begin {
    Begin { key: key.parse().unwrap(), ..begin }
}

#[tokio::test]
async fn a_conversation_goes_on_also_in_another_process() {
    let project = Project::new();
    let (first, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((start, notes), (Start::Create, vec![]));
    let (second, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((second, start, notes), (first, Start::Resume, vec![]));
    let entry = &project.json()["conversations"][0];
    assert_eq!(entry["turns"], 2);
    assert_eq!(entry["cost_usd"], 0.02);
    assert_eq!(entry["state"], "ready");
}

#[tokio::test]
async fn keys_keep_conversations_apart() {
    let (project, store) = (Project::new(), Project::new());
    let store = store.store();
    let one = store.begin(keyed(project.begin("reviewer"), "pr-1")).await.unwrap();
    let two = store.begin(keyed(project.begin("reviewer"), "pr-2")).await.unwrap();
    assert_ne!(one.session_id(), two.session_id());
}

#[tokio::test]
async fn the_id_is_on_the_disk_before_anything_starts() {
    let project = Project::new();
    let lease = project.store().begin(project.begin("reviewer")).await.unwrap();
    let entry = &project.json()["conversations"][0];
    assert_eq!(entry["session_id"], lease.session_id().to_string());
    assert_eq!(entry["state"], "starting");
}

#[tokio::test]
async fn a_first_call_that_never_ended_is_not_gone_on_with() {
    let project = Project::new();
    let lost = project.store().begin(project.begin("reviewer")).await.unwrap().session_id();
    project.transcript(lost, r#"{"type":"user","message":{"role":"user","content":"hello"}}"#);
    let (id, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_ne!(id, lost);
    assert_eq!(start, Start::Create);
    assert!(notes[0].contains("never completed"), "{notes:?}");
    assert_eq!(project.json()["conversations"][0]["replaces"], lost.to_string());
}

#[tokio::test]
async fn a_first_turn_that_only_the_transcript_has_is_not_lost() {
    let project = Project::new();
    let kept = project.store().begin(project.begin("reviewer")).await.unwrap().session_id();
    let line = json!({"type": "assistant", "isSidechain": false,
        "message": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "done"}]}});
    project.transcript(kept, &format!("{line}\n"));
    let (id, start, notes) = project.call(&project.store(), "reviewer").await;
    assert_eq!((id, start), (kept, Start::Resume));
    assert!(notes[0].contains("goes on from its transcript"), "{notes:?}");
}

#[tokio::test]
async fn a_changed_contract_goes_on_with_a_note() {
    let (project, store) = (Project::new(), Project::new().store());
    let (first, ..) = project.call(&store, "reviewer").await;
    let begin = Begin { contract: "sha256:2".to_owned(), ..project.begin("reviewer") };
    let lease = store.begin(begin).await.unwrap();
    assert_eq!((lease.session_id(), lease.start()), (first, Start::Resume));
    assert!(lease.notes()[0].contains("under the new contract"), "{:?}", lease.notes());
}

#[tokio::test]
async fn another_folder_means_another_conversation_and_a_note() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let lease = store
        .begin(Begin { folder: "/elsewhere".into(), ..project.begin("reviewer") })
        .await
        .unwrap();
    assert_eq!(lease.start(), Start::Create);
    assert_ne!(lease.session_id(), first);
    assert!(lease.notes()[0].contains("`/work/here`"), "{:?}", lease.notes());
}

#[tokio::test]
async fn fresh_starts_over_on_purpose() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let lease = store.begin(Begin { fresh: true, ..project.begin("reviewer") }).await.unwrap();
    assert_eq!((lease.start(), lease.notes()), (Start::Create, &[][..]));
    assert_ne!(lease.session_id(), first);
}

#[tokio::test]
async fn a_forgotten_conversation_is_restarted_once() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let mut lease = store.begin(project.begin("reviewer")).await.unwrap();
    let fresh = lease.restart_fresh("No conversation found").await.unwrap();
    assert_ne!(fresh, first);
    assert_eq!(lease.start(), Start::Create);
    assert!(lease.notes()[0].contains("No conversation found"));
    assert_eq!(project.json()["conversations"][0]["session_id"], fresh.to_string());
    let again = lease.restart_fresh("No conversation found").await.unwrap_err();
    assert!(matches!(again, SessionError::AlreadyRestarted { .. }));
}

#[tokio::test]
async fn a_failed_call_costs_but_changes_nothing_else() {
    let project = Project::new();
    let store = project.store();
    let (first, ..) = project.call(&store, "reviewer").await;
    let mut lease = store.begin(project.begin("reviewer")).await.unwrap();
    lease.failed(0.005).await;
    drop(lease);
    let entry = project.json()["conversations"][0].clone();
    assert_eq!((&entry["turns"], &entry["cost_usd"]), (&json!(1), &json!(0.015)));
    assert_eq!(store.begin(project.begin("reviewer")).await.unwrap().session_id(), first);
}

#[tokio::test]
async fn the_run_before_tells_whether_a_live_process_is_up_to_date() {
    let project = Project::new();
    let (one, two) = (project.store(), project.store());
    let begin = project.begin("reviewer");
    let first = begin.run;
    one.begin(begin).await.unwrap().completed(TURN).await;
    let begin = project.begin("reviewer");
    let second = begin.run;
    let mut lease = two.begin(begin).await.unwrap();
    assert_eq!(lease.last_run(), Some(first));
    lease.completed(TURN).await;
    drop(lease);
    assert_eq!(one.begin(project.begin("reviewer")).await.unwrap().last_run(), Some(second));
}

#[tokio::test]
async fn what_earlier_processes_spent_is_read_from_the_transcript() {
    let project = Project::new();
    let store = project.store();
    let (id, ..) = project.call(&store, "reviewer").await;
    let line = r#"{"type":"cost-state","sessionId":"x","totalCostUSD":0.5}"#;
    project.transcript(
        id,
        &format!("{}\n{line}\n{{\"type\":\"mode\"}}\n", line.replace("0.5", "0.25")),
    );
    let lease = store.begin(project.begin("reviewer")).await.unwrap();
    assert!((lease.counted_before() - 0.5).abs() < 1e-9);
}

#[tokio::test]
async fn calls_wait_in_the_order_they_came_from_two_stores() {
    let project = Project::new();
    let stores = [project.store(), project.store()];
    let first = stores[0].begin(project.begin("reviewer")).await.unwrap();
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..6usize {
        let (store, begin, sender) =
            (stores[number % 2].clone(), project.begin("reviewer"), sender.clone());
        tokio::spawn(async move {
            let mut lease = store.begin(begin).await.unwrap();
            sender.send(number).unwrap();
            lease.completed(TURN).await;
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
async fn impatience_is_told_who_has_it() {
    let project = Project::new();
    let held = project.store().begin(project.begin("reviewer")).await.unwrap();
    let begin = Begin { patience: Duration::from_millis(30), ..project.begin("reviewer") };
    let run = held.conversation().last_run;
    let busy = project.store().begin(begin).await.unwrap_err().to_string();
    assert!(busy.contains(&format!("process {}", std::process::id())), "{busy}");
    assert!(busy.contains(&run.to_string()), "{busy}");
    assert_eq!(
        fs::read_dir(project.data().join("leases")).unwrap().count(),
        2,
        "its ticket is gone"
    );
}

#[tokio::test]
async fn one_who_gives_up_waiting_lets_the_next_pass_not_sooner_and_not_later() {
    let project = Project::new();
    let store = project.store();
    let held = store.begin(project.begin("reviewer")).await.unwrap();
    let given_up = {
        let (store, begin) = (store.clone(), project.begin("reviewer"));
        tokio::spawn(async move { store.begin(begin).await.map(|_| ()) })
    };
    wait_for_tickets(&project, 2).await;
    let (other, begin) = (store.clone(), project.begin("reviewer"));
    let last = tokio::spawn(async move { other.begin(begin).await.unwrap().session_id() });
    wait_for_tickets(&project, 3).await;
    given_up.abort();
    given_up.await.unwrap_err();
    tokio::task::yield_now().await;
    assert!(!last.is_finished(), "the first holder still has it");
    drop(held);
    last.await.unwrap();
}

#[tokio::test]
async fn files_are_private_and_as_the_schema_says() {
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

/// H1: whatever stands there, the sound entries are kept, the rest is set aside, and it is said.
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
async fn damage_is_set_aside_and_sound_entries_kept(spoil: fn(&str) -> String, kept: usize) {
    let project = Project::new();
    project.call(&project.store(), "a").await;
    project.call(&project.store(), "b").await;
    let spoilt = spoil(&fs::read_to_string(project.file()).unwrap());
    project.write(&spoilt);

    let lease = project.store().begin(project.begin("c")).await.unwrap();
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
    let target = project.folder.path().join("elsewhere.json");
    fs::rename(project.file(), &target).unwrap();
    symlink(&target, project.file()).unwrap();
    let before = fs::read(&target).unwrap();
    let (_, start, notes) = project.call(&project.store(), "a").await;
    assert_eq!(start, Start::Resume, "what it pointed to is sound");
    assert!(notes[0].contains("symbolic link"), "{notes:?}");
    assert_eq!(fs::read(&target).unwrap(), before);
    assert!(fs::symlink_metadata(project.file()).unwrap().is_file());
    assert!(fs::symlink_metadata(&project.set_aside()[0]).unwrap().is_symlink());
}

#[test_case(|path| fs::create_dir(path).unwrap(); "a folder")]
#[test_case(|path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(); "a fifo")]
#[test_case(|path| fs::File::create(path).unwrap().set_len(3 << 30).unwrap(); "three gigabytes")]
#[tokio::test]
async fn what_is_no_store_is_moved_out_of_the_way(put: fn(&Path)) {
    let project = Project::new();
    fs::create_dir_all(project.data()).unwrap();
    put(&project.file());
    let (_, _, notes) = project.call(&project.store(), "a").await;
    assert!(notes[0].contains("was damaged"), "{notes:?}");
    assert_eq!(project.set_aside().len(), 1);
    assert_eq!(project.call(&project.store(), "a").await.1, Start::Resume);
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
    assert_eq!(start, Start::Resume);
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
    assert_eq!((again, start), (id, Start::Resume));
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
async fn where_nothing_can_be_written_calls_still_work_and_say_so() {
    let project = Project::new();
    fs::write(project.data(), "a file where the folder should be").unwrap();
    let store = project.store();
    let (id, _, notes) = project.call(&store, "a").await;
    assert!(notes.iter().any(|note| note.contains("could not be kept")), "{notes:?}");
    assert_eq!(project.call(&store, "a").await.0, id, "in this process it goes on");

    let held = store.begin(project.begin("a")).await.unwrap();
    let impatient = Begin { patience: Duration::from_millis(20), ..project.begin("a") };
    assert!(matches!(store.begin(impatient).await, Err(SessionError::Busy { .. })));
    drop(held);

    fs::remove_file(project.data()).unwrap();
    project.call(&store, "b").await;
    let names: Vec<_> =
        store.list().conversations.iter().map(|l| l.conversation.name().to_string()).collect();
    assert_eq!(names, ["a", "b"], "what could not be written before is written now");
    assert_eq!(project.json()["conversations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_large_store_is_journalled_and_folded() {
    let project = Project::new();
    let store = project.store();
    fill(&store, 300);
    project.call(&store, "a").await;
    let journal = project.data().join("sessions.journal");
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    let count = || project.json()["conversations"].as_array().unwrap().len();
    assert_eq!(count(), 300, "not rewritten for every call");
    assert_eq!(
        project.call(&project.store(), "a").await.1,
        Start::Resume,
        "another process reads the journal"
    );

    // A line that was torn in writing is no damage; one that came during a fold is kept.
    let torn = fs::read_to_string(&journal).unwrap() + "{\"put\":{\"agent\":\"b";
    fs::write(&journal, torn).unwrap();
    store.fold_now().unwrap();
    assert_eq!(count(), 301);
    assert_eq!(fs::metadata(&journal).unwrap().len(), 0);
    assert_eq!(project.call(&project.store(), "a").await, project.call(&store, "a").await);
}

#[tokio::test]
async fn what_is_read_after_the_end_is_up_to_date() {
    let project = Project::new();
    let store = project.store();
    fill(&store, 300);
    project.call(&store, "a").await;
    store.settle().await;
    assert_eq!(project.json()["conversations"].as_array().unwrap().len(), 301);
}

#[tokio::test]
async fn lines_that_come_while_a_fold_is_written_are_kept() {
    let project = Project::new();
    let (store, other) = (project.store(), project.store());
    fill(&store, 300);
    project.call(&store, "a").await;
    let fold = store.records().plan_fold().unwrap();
    let staged = fold.stage(&store.inner.paths).unwrap();
    let (id, ..) = project.call(&other, "b").await;
    store.records().finish_fold(&fold, staged).unwrap();
    for store in [&store, &other, &project.store()] {
        assert_eq!(project.call(store, "b").await.0, id);
        assert_eq!(store.list().conversations.len(), 302);
    }
}

#[tokio::test]
async fn a_damaged_journal_is_set_aside_too() {
    let project = Project::new();
    let store = project.store();
    fill(&store, 300);
    let (id, ..) = project.call(&store, "a").await;
    let journal = project.data().join("sessions.journal");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("garbage\n{text}")).unwrap();
    let (again, _, notes) = project.call(&project.store(), "a").await;
    assert_eq!(again, id);
    assert!(notes[0].contains("`data/sessions.journal` was damaged"), "{notes:?}");
    assert_eq!(project.set_aside().len(), 1);
}

fn fill(store: &SessionStore, count: usize) {
    let changes = (0..count).map(|number| {
        let begin = Project::new().begin(&format!("agent-{number:05}"));
        Change::Put(Arc::new(super::super::decide::anew(None, &begin, moment(), None).conversation))
    });
    store.records().save(changes.collect()).unwrap();
    store.fold_now().unwrap();
}

#[tokio::test]
async fn forgetting_leaves_what_is_in_use() {
    let project = Project::new();
    let store = project.store();
    project.call(&store, "a").await;
    let held = store.begin(project.begin("b")).await.unwrap();
    let names = ["a", "b", "c"].map(|name| name.parse().unwrap());
    let forgotten = project.store().forget(&names).unwrap();
    assert_eq!(forgotten.conversations[0].name(), names[0]);
    assert_eq!(forgotten.busy[0].0, names[1]);
    assert_eq!(forgotten.unknown, [names[2].clone()]);
    drop(held);
    let left = store.list().conversations;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].conversation.name(), names[1]);
}

#[tokio::test]
async fn what_a_crash_left_staged_is_swept() {
    let project = Project::new();
    fs::create_dir_all(project.data()).unwrap();
    fs::write(project.data().join(".staged-abc"), "half").unwrap();
    project.call(&project.store(), "a").await;
    assert!(!project.data().join(".staged-abc").exists());
}
