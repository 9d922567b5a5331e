//! Signals: a server that is told to end lets its calls end first; Ctrl-C ends a run at once.

use std::process::{Command, Stdio};

use adjutant::worker::{RunBoard, RunCard};
use nix::sys::signal::Signal;
use serde_json::json;
use test_case::test_case;

use super::family::{Member, assert_gone_soon, signal, wait_until};
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::stage::report;

fn project() -> TestContext {
    let context = TestContext::new();
    context.agent("slow", "---\nname: slow\ndescription: Takes its time\n---\nYou are slow.\n");
    context
}

fn with_fake(mut command: Command) -> Command {
    command.env("ADJUTANT_CLAUDE", fake_claude());
    command
}

/// The run that is going on, once its process is there and has begun to write.
fn running(context: &TestContext) -> RunCard {
    let board = RunBoard::at(&context.root().join("data"));
    wait_until("the run to be at work", || {
        board.list().into_iter().find(|card| card.pid.is_some() && card.progress.doing == "writing")
    })
}

#[test_case(Signal::SIGTERM; "sigterm")]
#[test_case(Signal::SIGINT; "sigint")]
fn a_server_told_to_end_answers_the_call_that_is_running(kind: Signal) {
    let context = project();
    let mut client = McpClient::connect(with_fake(context.adjutant(["serve"])));
    let arguments =
        json!({ "agent_name": "slow", "prompt": "FAKE say half\nFAKE sleep 4\nFAKE result whole" });
    let call =
        client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    running(&context);
    signal(client.pid(), kind);
    let answer = client.answer(call);
    assert_eq!(answer["structuredContent"]["result"], "whole", "{answer}");
    assert!(client.ends().success());
}

#[test]
fn ctrl_c_ends_a_run_and_says_what_it_had_written() {
    let context = project();
    let prompt = "FAKE say half\nFAKE hang-mid-turn";
    let mut command = with_fake(context.adjutant(["run", "slow", prompt, "--json"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let card = running(&context);
    let family = [Member::of(card.pid.unwrap()).expect("it runs")];
    signal(child.id(), Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report = report(&output);
    assert_eq!((&report["code"], &report["partial"]), (&json!("CANCELLED"), &json!("half")));
    assert_gone_soon("the run", &family, &card.run.to_string());
}
