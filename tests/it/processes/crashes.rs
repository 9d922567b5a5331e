//! Servers and keepers that are killed without warning, alone and together.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use adjutant::base::RunId;
use adjutant::worker::{Cleaned, ProcessStamp, RunBoard, clean_leftovers};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::family::{MISBEHAVIOURS, Member, Misbehaviour, assert_gone_soon, signal, wait_until};
use super::stand_in::{KilledOnDrop, StandIn};

#[test]
fn f1_a_killed_server_leaves_nothing() {
    let kill_its_server = |bad: &Misbehaviour| {
        let folder = tempfile::tempdir().unwrap();
        let mut server = StandIn::start(folder.path(), bad.script, bad.members);
        server.kill();
        assert_gone_soon(bad.name, &server.family, &server.run);
        assert_gone_soon("its keeper", &[server.keeper.clone()], &server.run);
    };
    thread::scope(|scope| {
        for bad in MISBEHAVIOURS {
            scope.spawn(|| kill_its_server(bad));
        }
    });
}

/// A process without the marker, whose parent is gone: only an heir can find it.
const HIDES: &str = "(env -i setsid sleep 1000 & echo $! > hidden); touch ready; sleep 1000; :";

#[test]
fn what_a_killed_keeper_leaves_is_ended_by_its_heir() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = StandIn::start(folder.path(), HIDES, 2);
    let hidden = hidden(&server);
    signal(server.keeper.pid, Signal::SIGKILL);
    wait_until("the end of the run", || folder.path().join("over").exists().then_some(()));
    let all = [&server.family[..], &[hidden, server.keeper.clone()]].concat();
    assert_gone_soon("killed keeper", &all, &server.run);
    assert!(server.process.0.try_wait().unwrap().is_none(), "the server goes on");
}

#[test]
fn children_that_were_there_before_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let stranger_file = folder.path().join("stranger");
    let before = format!("sleep 1000 & echo $! > '{}'; exec \"$@\"", stranger_file.display());
    let mut server = StandIn::start_by(
        folder.path(),
        "touch ready; sleep 1000; :",
        2,
        &["sh", "-c", &before, "sh"],
    );
    let stranger = pid_in(&stranger_file);
    signal(server.keeper.pid, Signal::SIGKILL);
    wait_until("the end of the run", || folder.path().join("over").exists().then_some(()));
    assert_gone_soon("killed keeper", &server.family, &server.run);
    assert!(stranger.is_there(), "a shell's own job is no orphan of ours");
    server.kill();
    signal(stranger.pid, Signal::SIGKILL);
}

#[test]
fn a_program_dies_with_its_keeper_without_anybodys_help() {
    let folder = tempfile::tempdir().unwrap();
    let server = StandIn::start(folder.path(), "touch ready; sleep 1000; :", 2);
    let program = RunBoard::at(&server.data()).list()[0].pid.unwrap();
    let program = ProcessStamp::of(program).unwrap();
    // A stopped server helps nobody, and does not collect anybody either.
    signal(server.process.0.id(), Signal::SIGSTOP);
    signal(server.keeper.pid, Signal::SIGKILL);
    wait_until("the program's end", || (!program.is_alive()).then_some(()));
}

#[test]
fn the_next_start_ends_what_a_crash_of_both_left_and_says_so() {
    // Every server that starts on this machine looks for leftovers, those of other tests too.
    let found = (0..5).any(|_| a_crash_of_both_is_found());
    assert!(found, "others may have been quicker once, not always");
}

fn a_crash_of_both_is_found() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & touch ready; sleep 1000; :";
    let mut server = StandIn::start(folder.path(), script, 4);
    // A stopped keeper cannot see its server go.
    signal(server.keeper.pid, Signal::SIGSTOP);
    server.kill();
    signal(server.keeper.pid, Signal::SIGKILL);
    wait_until("the keeper's end", || (!server.keeper.is_there()).then_some(()));

    let cleaned = clean_leftovers(&server.data(), |_| Ok(()));

    assert_gone_soon("crash of both", &server.family, &server.run);
    let said: Vec<_> = cleaned.iter().map(ToString::to_string).collect();
    let expected =
        format!("run {} of agent `stand-in` was cut off when its server ended", server.run);
    assert!(said.contains(&expected), "{said:?}");
    assert!(cleaned.iter().any(|c| matches!(c, Cleaned::Folder(_))), "{said:?}");
    for place in ["runs", "tmp"] {
        assert_eq!(fs::read_dir(server.data().join(place)).unwrap().count(), 0, "{place}");
    }
    cleaned.iter().any(|c| matches!(c, Cleaned::Processes(run) if run.to_string() == server.run))
}

#[test]
fn the_next_start_leaves_living_runs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = StandIn::start(folder.path(), "setsid sleep 1000 & touch ready; sleep 1000; :", 3);
    let cleaned = clean_leftovers(&server.data(), |_| Ok(()));
    let own = |c: &Cleaned| match c {
        Cleaned::Processes(run) => run.to_string() == server.run,
        Cleaned::Run(_) | Cleaned::Folder(_) => true,
    };
    assert!(!cleaned.iter().any(own), "{cleaned:?}");
    assert!(server.family.iter().all(Member::is_there));
}

/// A crash left a card, and the pids on it are those of others by now: of a keeper, a program, and a whole group.
#[test]
fn f2_a_pid_that_is_anothers_by_now_is_not_hit() {
    let data = tempfile::tempdir().unwrap();
    let strangers = [0, 1, 2].map(|_| {
        let mut command = Command::new("sleep");
        KilledOnDrop(command.arg("1000").process_group(0).spawn().unwrap())
    });
    let [server, keeper, program] = strangers.each_ref().map(|stranger| stranger.0.id());
    let run = RunId::new();
    let posting = RunBoard::at(data.path()).post(run, "earlier", "main").unwrap();
    let file = data.path().join(format!("runs/{run}.json"));
    let mut card: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let earlier = |pid| {
        let ProcessStamp { started, .. } = ProcessStamp::of(pid).unwrap();
        let (boot, ticks) = started.rsplit_once('-').unwrap();
        let started = format!("{boot}-{}", ticks.parse::<u64>().unwrap() - 1);
        json!({ "pid": pid, "started": started })
    };
    card["server"] = earlier(server);
    card["keeper"] = earlier(keeper);
    card["pid"] = json!(program);
    fs::write(&file, card.to_string()).unwrap();

    let cleaned = clean_leftovers(data.path(), |_| Ok(()));

    let is_it = |c: &Cleaned| matches!(c, Cleaned::Run(card) if card.run == run);
    assert!(cleaned.iter().any(is_it) && !file.exists(), "{cleaned:?}");
    for mut stranger in strangers {
        assert_eq!(stranger.0.try_wait().unwrap(), None, "a stranger was hit");
    }
    drop(posting);
}

fn hidden(server: &StandIn) -> Member {
    pid_in(&server.folder.join("hidden"))
}

fn pid_in(file: &std::path::Path) -> Member {
    let pid = wait_until("a pid", || fs::read_to_string(file).ok()?.trim().parse().ok());
    Member::of(pid).unwrap()
}
