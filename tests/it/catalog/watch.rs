//! The catalog follows changes on disk; a reader never sees a partial change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use adjutant::catalog::{Catalog, Snapshot};
use adjutant::config::Settings;

use crate::support::TestContext;

const WATCH_TIMEOUT: Duration = Duration::from_secs(20);

fn settings(context: &TestContext) -> Settings {
    Settings::resolve(Some(&context.root())).expect("a project")
}

fn agent(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nYou are {description}.\n")
}

fn description(snapshot: &Snapshot, name: &str) -> Option<String> {
    Some(snapshot.get(name)?.agent()?.description.clone())
}

/// Waits until the watched catalog satisfies `wanted`; only the watcher reads the disk.
fn wait_for(catalog: &Catalog, what: &str, wanted: impl Fn(&Snapshot) -> bool) {
    let started = Instant::now();
    while !wanted(&catalog.snapshot()) {
        assert!(started.elapsed() < WATCH_TIMEOUT, "the catalog never showed: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_watcher_sees_added_edited_renamed_and_deleted_agents() {
    let context = TestContext::new();
    context.agent("one", &agent("first"));
    let catalog = Catalog::open(&settings(&context));
    let _watching = catalog.watch();
    let agents = context.root().join("agents");

    context.agent("two", &agent("second"));
    wait_for(&catalog, "a new agent", |all| description(all, "two").is_some());

    context.agent("one", &agent("edited"));
    wait_for(&catalog, "an edit", |all| description(all, "one").as_deref() == Some("edited"));

    fs::write(agents.join("one/.agent.md.swp"), agent("saved")).expect("an editor's file");
    fs::rename(agents.join("one/.agent.md.swp"), agents.join("one/agent.md")).expect("a save");
    wait_for(&catalog, "a save by rename", |all| {
        description(all, "one").as_deref() == Some("saved")
    });

    fs::rename(agents.join("two"), agents.join("three")).expect("a rename");
    wait_for(&catalog, "a rename", |all| {
        description(all, "three").is_some() && all.get("two").is_none()
    });

    fs::remove_dir_all(agents.join("three")).expect("a deletion");
    wait_for(&catalog, "a deletion", |all| all.get("three").is_none());

    context.write("agents/defaults.yaml", "max_runs: 2\n");
    wait_for(&catalog, "new defaults", |all| all.orchestration().max_runs == 2);

    fs::remove_dir_all(&agents).expect("all gone");
    wait_for(&catalog, "nothing", |all| all.entries().is_empty());
    context.agent("four", &agent("fourth"));
    wait_for(&catalog, "a folder made anew", |all| description(all, "four").is_some());
}

#[test]
fn the_watcher_sees_an_agents_symlink_created_later() {
    let context = TestContext::new();
    let catalog = Catalog::open(&settings(&context));
    let _watching = catalog.watch();
    let real = context.root().join("team/agents");
    fs::create_dir_all(&real).expect("a folder");
    std::os::unix::fs::symlink("team/agents", context.root().join("agents")).expect("a symlink");
    context.write("team/agents/one/agent.md", agent("first"));
    wait_for(&catalog, "an agent behind a symlink", |all| description(all, "one").is_some());
    context.write("team/agents/one/agent.md", agent("edited"));
    wait_for(&catalog, "its edit", |all| description(all, "one").as_deref() == Some("edited"));
}

#[test]
fn a_call_sees_an_edit_without_a_watcher() {
    let context = TestContext::new();
    context.agent("one", &agent("first"));
    let catalog = Catalog::open(&settings(&context));
    let mut changes = catalog.changed();
    assert_eq!(description(&catalog.current("one"), "one").as_deref(), Some("first"));
    assert!(!changes.has_changed().expect("the catalog lives"));
    context.agent("one", &agent("edited"));
    assert_eq!(description(&catalog.current("one"), "one").as_deref(), Some("edited"));
    assert!(changes.has_changed().expect("the catalog lives"));
    changes.mark_unchanged();
    context.agent("two", &agent("second"));
    assert_eq!(description(&catalog.current("two"), "two").as_deref(), Some("second"));
    context.write("agents/defaults.yaml", "model: haiku\n");
    let model = catalog.current("one").get("one").and_then(|one| one.agent()?.model.clone());
    assert_eq!(model.as_deref(), Some("haiku"));
    // A1: an invalid agent name is not looked up on disk.
    assert!(catalog.current("../../home").get("../../home").is_none());
}

#[test]
fn the_next_call_sees_a_repaired_agent() {
    let context = TestContext::new();
    let agents = context.root().join("agents");
    fs::create_dir_all(&agents).expect("a folder");
    std::os::unix::fs::symlink(context.home(), agents.join("one")).expect("a symlink outside");
    let catalog = Catalog::open(&settings(&context));
    assert!(catalog.current("one").get("one").is_some_and(|one| one.agent().is_none()));
    fs::remove_file(agents.join("one")).expect("the symlink goes");
    context.agent("one", &agent("first"));
    assert_eq!(description(&catalog.current("one"), "one").as_deref(), Some("first"));
}

/// Two saves of the same length within one tick of the file system's clock have the same size and modification time.
#[test]
fn edits_within_one_clock_tick_are_all_seen() {
    let context = TestContext::new();
    context.agent("one", &agent("v000"));
    let catalog = Catalog::open(&settings(&context));
    for number in 0..300 {
        let wanted = format!("v{number:03}");
        context.agent("one", &agent(&wanted));
        assert_eq!(description(&catalog.current("one"), "one"), Some(wanted));
    }
}

/// A writer replaces description, limit and permission together 399 times while a reader checks that they match.
#[test]
fn a_reader_never_sees_a_partly_changed_agent() {
    let context = TestContext::new();
    let version = |number: usize| {
        let padding = "x".repeat(number % 7 * 1_000);
        format!(
            "---\ndescription: v{number}\nmax_turns: {}\npermissions:\n  allow: [\"Bash(v{number}:*)\"]\n---\n\
             {padding}v{number}",
            number + 1
        )
    };
    context.agent("one", &version(0));
    let catalog = Catalog::open(&settings(&context));
    let _watching = catalog.watch();
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (done, agents) = (Arc::clone(&done), context.root().join("agents/one"));
        thread::spawn(move || {
            for number in 1..400 {
                let staged = agents.join(".staged");
                fs::write(&staged, version(number)).expect("a staged file");
                fs::rename(&staged, agents.join("agent.md")).expect("a save");
            }
            done.store(true, Ordering::Release);
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    while !done.load(Ordering::Acquire) {
        let snapshot = catalog.current("one");
        let entry = snapshot.get("one").expect("it is always there");
        let agent = entry.agent().unwrap_or_else(|| panic!("never broken: {:?}", entry.reason()));
        let number: u32 = agent.description[1..].parse().expect("a version");
        assert_eq!(agent.limits.max_turns, Some(number + 1));
        assert_eq!(agent.permissions.allow[0].to_string(), format!("Bash(v{number}:*)"));
        assert!(agent.prompt.ends_with(&format!("v{number}")));
        seen.insert(number);
    }
    writer.join().expect("the writer ends well");
    assert!(seen.len() > 1, "the reader saw changes");
    let last = catalog.current("one");
    assert_eq!(description(&last, "one").as_deref(), Some("v399"));
}
