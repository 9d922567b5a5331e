//! Signals: a server that receives SIGTERM or SIGINT finishes its calls; Ctrl-C stops `adjutant run`.

use std::process::{Command, Stdio};

use adjutant::runs::{RunEntry, RunRegistry};
use nix::sys::signal::Signal;
use serde_json::json;
use test_case::test_case;

use super::process_tree::{TreeProcess, assert_gone_within_5_s, send_signal};
use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::wait::wait_until;

fn project() -> TestContext {
    let context = TestContext::new();
    context.agent("slow", "---\nname: slow\ndescription: Takes its time\n---\nYou are slow.\n");
    context
}

fn with_fake_claude(mut command: Command) -> Command {
    command.env("ADJUTANT_CLAUDE", fake_claude());
    command
}

/// Waits for the running run until its process has written output.
fn wait_for_running_run(context: &TestContext) -> RunEntry {
    let registry = RunRegistry::at(&context.root().join("data"));
    wait_until("the run to be at work", || {
        registry
            .list()
            .unwrap()
            .into_iter()
            .find(|entry| entry.pid.is_some() && entry.progress.doing == "writing")
    })
}

#[test_case(Signal::SIGTERM; "sigterm")]
#[test_case(Signal::SIGINT; "sigint")]
fn server_finishes_the_running_call_on_sigterm_or_sigint(kind: Signal) {
    let context = project();
    let mut client = McpClient::connect(with_fake_claude(context.adjutant(["serve"])));
    let arguments =
        json!({ "agent_name": "slow", "prompt": "FAKE say half\nFAKE sleep 4\nFAKE result whole" });
    let call = client
        .send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }));
    wait_for_running_run(&context);
    send_signal(client.pid(), kind);
    let answer = client.answer(call);
    assert_eq!(answer["structuredContent"]["result"], "whole", "{answer}");
    assert!(client.wait_for_exit().success());
}

#[test]
fn ctrl_c_stops_a_run_and_reports_its_partial_answer() {
    let context = project();
    let prompt = "FAKE say half\nFAKE hang-mid-turn";
    let mut command = with_fake_claude(context.adjutant(["run", "slow", prompt, "--json"]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let entry = wait_for_running_run(&context);
    let family = [TreeProcess::of(entry.pid.unwrap()).expect("it runs")];
    send_signal(child.id(), Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report = report(&output);
    assert_eq!(
        (&report["error"]["code"], &report["partial"]),
        (&json!("CANCELLED"), &json!("half"))
    );
    assert_gone_within_5_s("the run", &family, &entry.run.to_string());
}
