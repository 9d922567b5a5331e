//! Every misbehaviour, ended in every way.

use std::future::Future;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adjutant::worker::{Process, ProcessEnd, Urgency, start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::family::{
    MISBEHAVIOURS, Member, Misbehaviour, assembled, assert_gone_at_once, assert_gone_soon, launch,
    wait_until,
};

/// Starts a family, lets `end` end it, and returns how long that took.
async fn ended<F: Future<Output = ()>>(
    bad: &Misbehaviour,
    end: impl FnOnce(Process) -> F,
) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let launch = launch(folder.path(), bad.script);
    let run = launch.run.to_string();
    let process = start(launch).await.unwrap();
    let keeper = Member::of(process.keeper().unwrap().pid).unwrap();
    let mut family = assembled(folder.path(), &run, bad.members);
    family.push(keeper);
    let started = Instant::now();
    end(process).await;
    let took = started.elapsed();
    assert_gone_soon(bad.name, &family, &run);
    took
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_end_leaves_nothing_when_it_returns() {
    for bad in MISBEHAVIOURS {
        let folder = tempfile::tempdir().unwrap();
        let launch = launch(folder.path(), bad.script);
        let run = launch.run.to_string();
        let mut process = start(launch).await.unwrap();
        let mut family = assembled(folder.path(), &run, bad.members);
        family.push(Member::of(process.keeper().unwrap().pid).unwrap());
        process.end(Urgency::Polite { grace: Duration::from_millis(300) }).await;
        assert_gone_at_once(bad.name, &family, &run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_end_leaves_nothing_and_does_not_wait() {
    for bad in MISBEHAVIOURS {
        let took = ended(bad, async |mut process| {
            assert_eq!(process.end(Urgency::Now).await, ProcessEnd::Signaled(9), "{}", bad.name);
        });
        assert!(took.await < Duration::from_secs(4), "{}: no grace was asked for", bad.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_process_leaves_nothing() {
    for bad in MISBEHAVIOURS {
        ended(bad, async |process| drop(process)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_crashes_leaves_nothing() {
    for bad in MISBEHAVIOURS {
        ended(bad, async |mut process| {
            signal(process.pid(), Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Signaled(9), "{}", bad.name);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_keeper_leaves_nothing() {
    for bad in MISBEHAVIOURS {
        ended(bad, async |mut process| {
            signal(process.keeper().unwrap().pid, Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Lost, "{}", bad.name);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_told_by_a_signal_ends_its_run() {
    for bad in MISBEHAVIOURS {
        ended(bad, async |mut process| {
            signal(process.keeper().unwrap().pid, Signal::SIGTERM);
            assert!(matches!(process.wait().await, ProcessEnd::Signaled(_)), "{}", bad.name);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_keeper_is_no_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let launch = launch(folder.path(), "setsid sleep 1000 & touch ready; sleep 1000; :");
    let run = launch.run.to_string();
    let mut process = start(launch).await.unwrap();
    let family = assembled(folder.path(), &run, 3);
    signal(process.keeper().unwrap().pid, Signal::SIGSTOP);
    assert_eq!(process.end(Urgency::Now).await, ProcessEnd::Lost);
    assert_gone_soon("stopped keeper", &family, &run);
}

#[test]
fn a_killed_server_leaves_nothing() {
    for bad in MISBEHAVIOURS {
        let folder = tempfile::tempdir().unwrap();
        let mut server = stand_in(folder.path(), bad.script);
        let run = wait_until("the run", || std::fs::read_to_string(folder.path().join("run")).ok());
        let family = assembled(folder.path(), &run, bad.members);
        server.kill().unwrap();
        server.wait().unwrap();
        assert_gone_soon(bad.name, &family, &run);
    }
}

/// A process that starts a family as a server does and can be killed: this test program once more.
fn stand_in(folder: &Path, script: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::ways_to_end::stands_in_for_a_server", "--ignored"])
        .env("STAND_IN_FOLDER", folder)
        .env("STAND_IN_SCRIPT", script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "it is the other half of the test above, which kills it"]
async fn stands_in_for_a_server() {
    let folder = std::env::var_os("STAND_IN_FOLDER").unwrap();
    let launch = launch(Path::new(&folder), &std::env::var("STAND_IN_SCRIPT").unwrap());
    let run = launch.run.to_string();
    let mut process = start(launch).await.unwrap();
    let unfinished = Path::new(&folder).join("run.tmp");
    std::fs::write(&unfinished, run).unwrap();
    std::fs::rename(unfinished, Path::new(&folder).join("run")).unwrap();
    process.wait().await;
}
