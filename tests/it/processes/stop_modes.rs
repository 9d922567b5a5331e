//! Every hard-to-stop process tree, stopped in every way.

use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

use adjutant::process::{ProcessEnd, ProcessHandle, StopMode, spawn_process};
use nix::sys::signal::Signal;

use super::process_tree::{
    PROCESS_TREE_CASES, ProcessTreeCase, TreeProcess, assert_gone, assert_gone_within_5_s,
    process_spec, send_signal, wait_for_tree,
};

/// Starts a process tree, lets `end` stop it, asserts that it is gone, and returns the time that `end` took.
async fn time_to_stop<F: Future<Output = ()>>(
    bad: &ProcessTreeCase,
    end: impl FnOnce(ProcessHandle) -> F,
) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let launch = process_spec(folder.path(), bad.script);
    let run = launch.run.to_string();
    let process = spawn_process(launch).await.unwrap();
    let supervisor = TreeProcess::of(process.supervisor().unwrap().pid).unwrap();
    let mut family = wait_for_tree(folder.path(), &run, bad.min_processes);
    family.push(supervisor);
    let started = Instant::now();
    end(process).await;
    let took = started.elapsed();
    assert_gone_within_5_s(bad.name, &family, &run);
    took
}

/// Runs `act` for every case in parallel, because most of the time is waiting.
fn for_each_case(act: impl AsyncFn(&'static ProcessTreeCase) + Sync) {
    thread::scope(|scope| {
        for bad in PROCESS_TREE_CASES {
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
fn f1_graceful_stop_leaves_no_process_when_it_returns() {
    for_each_case(async |bad| {
        let folder = tempfile::tempdir().unwrap();
        let launch = process_spec(folder.path(), bad.script);
        let run = launch.run.to_string();
        let mut process = spawn_process(launch).await.unwrap();
        let mut family = wait_for_tree(folder.path(), &run, bad.min_processes);
        family.push(TreeProcess::of(process.supervisor().unwrap().pid).unwrap());
        process.stop(StopMode::Graceful { grace: Duration::from_millis(300) }).await;
        assert_gone(bad.name, &family, &run);
    });
}

#[test]
fn f1_immediate_stop_leaves_no_process_and_skips_the_grace_period() {
    for_each_case(async |bad| {
        let took = time_to_stop(bad, async |mut process| {
            assert_eq!(process.stop(StopMode::Kill).await, ProcessEnd::Signaled(9), "{}", bad.name);
        });
        assert!(took.await < Duration::from_secs(4), "{}: no grace was asked for", bad.name);
    });
}

#[test]
fn f1_dropped_process_handle_leaves_no_process() {
    for_each_case(async |bad| {
        time_to_stop(bad, async |process| drop(process)).await;
    });
}

#[test]
fn f1_crashed_program_leaves_no_process() {
    for_each_case(async |bad| {
        let crash = async |mut process: ProcessHandle| {
            send_signal(process.pid(), Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Signaled(9), "{}", bad.name);
        };
        time_to_stop(bad, crash).await;
    });
}

#[test]
fn f1_killed_supervisor_leaves_no_process() {
    for_each_case(async |bad| {
        let kill_supervisor = async |mut process: ProcessHandle| {
            send_signal(process.supervisor().unwrap().pid, Signal::SIGKILL);
            assert_eq!(process.wait().await, ProcessEnd::Lost, "{}", bad.name);
        };
        time_to_stop(bad, kill_supervisor).await;
    });
}

#[test]
fn f1_supervisor_stops_its_run_on_sigterm() {
    for_each_case(async |bad| {
        let request_stop = async |mut process: ProcessHandle| {
            send_signal(process.supervisor().unwrap().pid, Signal::SIGTERM);
            assert!(matches!(process.wait().await, ProcessEnd::Signaled(_)), "{}", bad.name);
        };
        time_to_stop(bad, request_stop).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_stopped_supervisor_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let launch = process_spec(folder.path(), "setsid sleep 1000 & touch ready; sleep 1000; :");
    let run = launch.run.to_string();
    let mut process = spawn_process(launch).await.unwrap();
    let family = wait_for_tree(folder.path(), &run, 3);
    send_signal(process.supervisor().unwrap().pid, Signal::SIGSTOP);
    assert_eq!(process.stop(StopMode::Kill).await, ProcessEnd::Lost);
    assert_gone_within_5_s("stopped keeper", &family, &run);
}
