//! Servers and supervisors killed with SIGKILL, each alone and both together.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{fs, thread};

use adjutant::process::ProcessIdentity;
use adjutant::runs::{CrashRemnant, RunRegistry, clean_up};
use adjutant::util::RunId;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::process_tree::{
    PROCESS_TREE_CASES, ProcessTreeCase, TreeProcess, assert_gone_within_5_s, send_signal,
};
use super::server_process::{KillOnDrop, ServerProcess};
use crate::support::wait::wait_until;

#[test]
fn f1_a_killed_server_leaves_nothing() {
    let kill_its_server = |bad: &ProcessTreeCase| {
        let folder = tempfile::tempdir().unwrap();
        let mut server = ServerProcess::start(folder.path(), bad.script, bad.min_processes);
        server.kill();
        assert_gone_within_5_s(bad.name, &server.tree, &server.run);
        assert_gone_within_5_s("its supervisor", &[server.supervisor.clone()], &server.run);
    };
    thread::scope(|scope| {
        for bad in PROCESS_TREE_CASES {
            scope.spawn(|| kill_its_server(bad));
        }
    });
}

/// Starts a process without the run marker whose parent exits: only the subreaper above can find it.
const HIDDEN_ORPHAN_SCRIPT: &str =
    "(env -i setsid sleep 1000 & echo $! > hidden); touch ready; sleep 1000; :";

#[test]
fn server_kills_the_orphans_of_a_killed_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(folder.path(), HIDDEN_ORPHAN_SCRIPT, 2);
    let hidden = hidden_orphan(&server);
    send_signal(server.supervisor.pid, Signal::SIGKILL);
    wait_until("the end of the run", || folder.path().join("over").exists().then_some(()));
    let all = [&server.tree[..], &[hidden, server.supervisor.clone()]].concat();
    assert_gone_within_5_s("killed keeper", &all, &server.run);
    assert!(server.process.0.try_wait().unwrap().is_none(), "the server goes on");
}

#[test]
fn children_that_existed_before_the_server_are_not_killed() {
    let folder = tempfile::tempdir().unwrap();
    let other_file = folder.path().join("stranger");
    let before = format!("sleep 1000 & echo $! > '{}'; exec \"$@\"", other_file.display());
    let mut server = ServerProcess::start_below(
        folder.path(),
        "touch ready; sleep 1000; :",
        2,
        &["sh", "-c", &before, "sh"],
    );
    let other = process_from_pid_file(&other_file);
    send_signal(server.supervisor.pid, Signal::SIGKILL);
    wait_until("the end of the run", || folder.path().join("over").exists().then_some(()));
    assert_gone_within_5_s("killed keeper", &server.tree, &server.run);
    assert!(other.exists(), "a shell's own job is no orphan of ours");
    server.kill();
    send_signal(other.pid, Signal::SIGKILL);
}

#[test]
fn program_dies_with_its_supervisor_even_if_the_server_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), "touch ready; sleep 1000; :", 2);
    let program = RunRegistry::at(&server.data_dir()).list().unwrap()[0].pid.unwrap();
    let program = ProcessIdentity::of(program).unwrap();
    // A stopped server cannot stop the program or reap a process.
    send_signal(server.process.0.id(), Signal::SIGSTOP);
    send_signal(server.supervisor.pid, Signal::SIGKILL);
    wait_until("the program's end", || (!program.is_alive()).then_some(()));
}

#[test]
fn next_start_kills_and_reports_the_remnants_of_a_crash_of_both() {
    // Servers of parallel tests look for crash remnants too, and may clean up first.
    let found = (0..30).any(|_| crash_of_both_is_cleaned());
    assert!(found, "others may have been quicker once, not always");
}

fn crash_of_both_is_cleaned() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & touch ready; sleep 1000; :";
    let mut server = ServerProcess::start(folder.path(), script, 4);
    // A stopped supervisor does not see its server exit.
    send_signal(server.supervisor.pid, Signal::SIGSTOP);
    server.kill();
    send_signal(server.supervisor.pid, Signal::SIGKILL);
    wait_until("the exit of the supervisor", || (!server.supervisor.exists()).then_some(()));

    let cleaned = clean_up(&server.data_dir(), |_| Ok(()));

    assert_gone_within_5_s("crash of both", &server.tree, &server.run);
    let said: Vec<_> = cleaned.iter().map(ToString::to_string).collect();
    let expected =
        format!("run {} of agent `stand-in` was cut off when its server ended", server.run);
    assert!(said.contains(&expected), "{said:?}");
    assert!(cleaned.iter().any(|c| matches!(c, CrashRemnant::Dir(_))), "{said:?}");
    for place in ["runs", "tmp"] {
        assert_eq!(fs::read_dir(server.data_dir().join(place)).unwrap().count(), 0, "{place}");
    }
    cleaned
        .iter()
        .any(|c| matches!(c, CrashRemnant::Processes(run) if run.to_string() == server.run))
}

#[test]
fn next_start_does_not_touch_running_runs() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        ServerProcess::start(folder.path(), "setsid sleep 1000 & touch ready; sleep 1000; :", 3);
    let cleaned = clean_up(&server.data_dir(), |_| Ok(()));
    let own = |c: &CrashRemnant| match c {
        CrashRemnant::Processes(run) => run.to_string() == server.run,
        CrashRemnant::Run(_) | CrashRemnant::Dir(_) => true,
    };
    assert!(!cleaned.iter().any(own), "{cleaned:?}");
    assert!(server.tree.iter().all(TreeProcess::exists));
}

/// A registry entry of a crashed server whose pids (server, supervisor, process group) now belong to other processes.
#[test]
fn f2_a_reused_pid_is_not_killed() {
    let data = tempfile::tempdir().unwrap();
    let others = [0, 1, 2].map(|_| {
        let mut command = Command::new("sleep");
        KillOnDrop(command.arg("1000").process_group(0).spawn().unwrap())
    });
    let [server, supervisor, program] = others.each_ref().map(|other| other.0.id());
    let run = RunId::new();
    let registration = RunRegistry::at(data.path()).register(run, "earlier", "main").unwrap();
    let file = data.path().join(format!("runs/{}.json", run.simple()));
    let mut entry: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let earlier = |pid| {
        let ProcessIdentity { started, .. } = ProcessIdentity::of(pid).unwrap();
        let (boot, ticks) = started.rsplit_once('-').unwrap();
        let started = format!("{boot}-{}", ticks.parse::<u64>().unwrap() - 1);
        json!({ "pid": pid, "started": started })
    };
    entry["server"] = earlier(server);
    entry["keeper"] = earlier(supervisor);
    entry["pid"] = json!(program);
    fs::write(&file, entry.to_string()).unwrap();

    let cleaned = clean_up(data.path(), |_| Ok(()));

    let is_it = |c: &CrashRemnant| matches!(c, CrashRemnant::Run(entry) if entry.run == run);
    assert!(cleaned.iter().any(is_it) && !file.exists(), "{cleaned:?}");
    for mut other in others {
        assert_eq!(other.0.try_wait().unwrap(), None, "a stranger was hit");
    }
    drop(registration);
}

fn hidden_orphan(server: &ServerProcess) -> TreeProcess {
    process_from_pid_file(&server.folder.join("hidden"))
}

fn process_from_pid_file(file: &std::path::Path) -> TreeProcess {
    let pid = wait_until("a pid", || fs::read_to_string(file).ok()?.trim().parse().ok());
    TreeProcess::of(pid).unwrap()
}
