//! `adjutant runs`, called from another process than the server.

use std::process::Output;
use std::time::Duration;

use adjutant::process::{ProcessEnd, ProcessHandle, StopMode, spawn_process};
use adjutant::runs::{RunProgress, RunRegistry};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::process_tree::{assert_gone, assert_gone_within_5_s, process_spec, wait_for_tree};
use super::server_process::ServerProcess;
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;

const PROCESS_TREE_SCRIPT: &str = "setsid sleep 1000 & touch ready; sleep 1000; :";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn start_process(context: &TestContext) -> (ProcessHandle, String) {
    let launch = process_spec(&context.root(), PROCESS_TREE_SCRIPT);
    let run = launch.run.to_string();
    let process = spawn_process(launch).await.unwrap();
    (process, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_listed_and_stopped_by_its_server_on_request() {
    let context = TestContext::new();
    let (mut process, run) = start_process(&context).await;
    let family = wait_for_tree(&context.root(), &run, 3);
    let registry = RunRegistry::at(&context.root().join("data"));
    let registration = registry.register(run.parse().unwrap(), "web-search", "main").unwrap();
    registration.set_process(&process);
    registration.update(|now| {
        *now = RunProgress { doing: "Bash: curl\u{1b}[2J".into(), turns: 3, cost_usd: 0.125 }
    });

    let listed = async || -> Vec<Value> {
        let output = context.run(["runs", "list", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    while listed().await[0]["turns"] != 3 {
        tokio::task::yield_now().await;
    }
    let entry = &listed().await[0];
    assert_eq!(
        (entry["agent"].as_str(), entry["pid"].as_u64()),
        (Some("web-search"), Some(process.pid().into()))
    );
    let table = text(&context.run(["runs", "list"]).stdout);
    assert!(
        table.starts_with("RUN ")
            && table.contains("$0.1")
            && table.contains(&run[run.len() - 8..])
            && table.ends_with("  Bash: curl\n"),
        "{table}"
    );

    let mut command = context.adjutant(["runs", "stop", &run[24..]]);
    let stopping = spawn_blocking(move || command.output().unwrap());
    registration.wait_for_stop().await;
    process.stop(StopMode::Graceful { grace: Duration::from_millis(200) }).await;
    assert!(registration.is_stop_requested(), "so that the server can say why");
    drop(registration);
    let output: Output = stopping.await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), format!("run {run} of `web-search` is over\n"));
    assert_gone("stopped", &family, &run);
    assert_eq!(text(&context.run(["runs", "list"]).stderr), "nothing is running\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_stopped_even_if_its_server_does_not_respond() {
    let context = TestContext::new();
    let (mut process, run) = start_process(&context).await;
    let family = wait_for_tree(&context.root(), &run, 3);
    let registration = RunRegistry::at(&context.root().join("data"))
        .register(run.parse().unwrap(), "deaf", "main")
        .unwrap();
    registration.set_process(&process);
    let mut command = context.adjutant(["runs", "stop", &run]);
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(process.wait().await, ProcessEnd::Signaled(15));
    assert!(registration.is_stop_requested());
    assert_gone_within_5_s("stopped", &family, &run);
}

#[test]
fn unknown_or_ambiguous_run_is_an_error() {
    let context = TestContext::new();
    let output = context.run(["runs", "stop", "abc"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        text(&output.stderr),
        "error: no run `abc` is going on: `adjutant runs list` shows what is\n"
    );
    let registry = RunRegistry::at(&context.root().join("data"));
    let _two =
        [0, 1].map(|_| registry.register(adjutant::util::RunId::new(), "a", "main").unwrap());
    let output = context.run(["runs", "stop", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: `0` could be any of 2 runs: give more of the id: 0"),
        "{said}"
    );
}

#[test]
fn a_registry_that_cannot_be_used_is_reported_and_does_not_stop_a_run() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nYou help.\n");
    context.write("data/runs", "");
    let dir = context.root().join("data/runs").display().to_string();
    let listed = context.run(["runs", "list"]);
    let expected = format!("error: STORE_UNAVAILABLE: `{dir}` cannot be read: Not a directory");
    assert_eq!(listed.status.code(), Some(4));
    assert!(text(&listed.stderr).starts_with(&expected), "{listed:?}");
    let mut command = context.adjutant(["run", "helper", "FAKE result done", "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let note = format!("STORE_UNAVAILABLE: `{dir}` cannot be written: ");
    assert!(report["note"].as_str().unwrap().starts_with(&note), "{report}");
    assert_eq!(report["result"], "done");
}

#[test]
fn a_run_of_a_killed_server_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(folder.path(), PROCESS_TREE_SCRIPT, 3);
    let registry = RunRegistry::at(&server.data_dir());
    assert_eq!(registry.list().unwrap().len(), 1);
    server.kill();
    assert_eq!(registry.list().unwrap(), []);
    assert_gone_within_5_s("killed server", &server.tree, &server.run);
}
