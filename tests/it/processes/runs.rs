//! `adjutant runs`, from another terminal than the one that runs.

use std::process::Output;
use std::time::Duration;

use adjutant::worker::{Process, ProcessEnd, RunBoard, RunProgress, Urgency, start};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::family::{assembled, assert_gone_at_once, assert_gone_soon, launch};
use super::stand_in::StandIn;
use crate::support::TestContext;

const SCRIPT: &str = "setsid sleep 1000 & touch ready; sleep 1000; :";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn begun(context: &TestContext) -> (Process, String) {
    let launch = launch(&context.root(), SCRIPT);
    let run = launch.run.to_string();
    let process = start(launch).await.unwrap();
    (process, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_listed_and_a_server_that_is_told_stops_it() {
    let context = TestContext::new();
    let (mut process, run) = begun(&context).await;
    let family = assembled(&context.root(), &run, 3);
    let board = RunBoard::at(&context.root().join("data"));
    let posting = board.post(run.parse().unwrap(), "web-search", "main").unwrap();
    posting.started(&process);
    posting.update(|now| {
        *now = RunProgress { doing: "Bash: curl\u{1b}[2J".into(), turns: 3, cost_usd: 0.125 }
    });

    let listed = async || -> Vec<Value> {
        let output = context.run(["runs", "list", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    while listed().await[0]["progress"]["turns"] != 3 {
        tokio::task::yield_now().await;
    }
    let card = &listed().await[0];
    assert_eq!(
        (card["agent"].as_str(), card["pid"].as_u64()),
        (Some("web-search"), Some(process.pid().into()))
    );
    let table = text(&context.run(["runs", "list"]).stdout);
    assert!(
        table.contains(&run) && table.contains("$0.1") && table.contains("Bash: curl [2J"),
        "{table}"
    );

    let mut command = context.adjutant(["runs", "stop", &run[24..]]);
    let stopping = spawn_blocking(move || command.output().unwrap());
    posting.stop_requested().await;
    process.end(Urgency::Polite { grace: Duration::from_millis(200) }).await;
    assert!(posting.stop_was_requested(), "so that the server can say why");
    drop(posting);
    let output: Output = stopping.await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), format!("run {run} of `web-search` is over\n"));
    assert_gone_at_once("stopped", &family, &run);
    assert_eq!(text(&context.run(["runs", "list"]).stderr), "nothing is running\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_even_if_its_server_does_not_listen() {
    let context = TestContext::new();
    let (mut process, run) = begun(&context).await;
    let family = assembled(&context.root(), &run, 3);
    let posting = RunBoard::at(&context.root().join("data"))
        .post(run.parse().unwrap(), "deaf", "main")
        .unwrap();
    posting.started(&process);
    let mut command = context.adjutant(["runs", "stop", &run]);
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(process.wait().await, ProcessEnd::Signaled(15));
    assert!(posting.stop_was_requested());
    assert_gone_soon("stopped", &family, &run);
}

#[test]
fn an_unknown_or_ambiguous_run_is_said_so() {
    let context = TestContext::new();
    let output = context.run(["runs", "stop", "abc"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "error: no run `abc` is going on: `adjutant runs list` shows what is\n"
    );
    let board = RunBoard::at(&context.root().join("data"));
    let _two = [0, 1].map(|_| board.post(adjutant::base::RunId::new(), "a", "main").unwrap());
    let output = context.run(["runs", "stop", "0"]);
    assert_eq!(text(&output.stderr), "error: `0` could be any of 2 runs: give more of the id\n");
}

#[test]
fn a_run_of_a_killed_server_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = StandIn::start(folder.path(), SCRIPT, 3);
    let board = RunBoard::at(&server.data());
    assert_eq!(board.list().len(), 1);
    server.kill();
    assert_eq!(board.list(), []);
    assert_gone_soon("killed server", &server.family, &server.run);
}
