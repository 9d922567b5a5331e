//! Every misbehaviour, ended in every way.

use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

use adjutant::worker::{Process, ProcessEnd, Urgency, start};
use nix::sys::signal::Signal;

use super::family::{
    MISBEHAVIOURS, Member, Misbehaviour, assembled, assert_gone_at_once, assert_gone_soon, launch,
    signal,
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

/// All misbehaviours side by side: most of the time goes into waiting.
fn with_each(act: impl AsyncFn(&'static Misbehaviour) + Sync) {
    thread::scope(|scope| {
        for bad in MISBEHAVIOURS {
            let act = &act;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build();
                runtime.unwrap().block_on(act(bad));
            });
        }
    });
}

#[test]
fn f1_a_polite_end_leaves_nothing_when_it_returns() {
    with_each(async |bad| {
        let folder = tempfile::tempdir().unwrap();
        let launch = launch(folder.path(), bad.script);
        let run = launch.run.to_string();
        let mut process = start(launch).await.unwrap();
        let mut family = assembled(folder.path(), &run, bad.members);
        family.push(Member::of(process.keeper().unwrap().pid).unwrap());
        process.end(Urgency::Polite { grace: Duration::from_millis(300) }).await;
        assert_gone_at_once(bad.name, &family, &run);
    });
}

#[test]
fn f1_an_urgent_end_leaves_nothing_and_does_not_wait() {
    with_each(async |bad| {
        let took = ended(bad, async |mut process| {
            assert_eq!(process.end(Urgency::Now).await, ProcessEnd::Signaled(9), "{}", bad.name);
        });
        assert!(took.await < Duration::from_secs(4), "{}: no grace was asked for", bad.name);
    });
}

#[test]
fn f1_a_dropped_process_leaves_nothing() {
    with_each(async |bad| {
        ended(bad, async |process| drop(process)).await;
    });
}

#[test]
fn f1_a_program_that_crashes_leaves_nothing() {
    with_each(async |bad| {
        let crash = async |mut process: Process| {
            signal(process.pid(), Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Signaled(9), "{}", bad.name);
        };
        ended(bad, crash).await;
    });
}

#[test]
fn f1_a_killed_keeper_leaves_nothing() {
    with_each(async |bad| {
        let kill_keeper = async |mut process: Process| {
            signal(process.keeper().unwrap().pid, Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Lost, "{}", bad.name);
        };
        ended(bad, kill_keeper).await;
    });
}

#[test]
fn f1_a_keeper_told_by_a_signal_ends_its_run() {
    with_each(async |bad| {
        let tell_keeper = async |mut process: Process| {
            signal(process.keeper().unwrap().pid, Signal::SIGTERM);
            assert!(matches!(process.wait().await, ProcessEnd::Signaled(_)), "{}", bad.name);
        };
        ended(bad, tell_keeper).await;
    });
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
