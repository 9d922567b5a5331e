//! End to end: a client calls agents through `adjutant serve`, and their `claude` is hard to stop.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use adjutant::runs::{RunEntry, RunRegistry};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use super::process_tree::{TreeProcess, assert_gone_within_5_s, processes_of_run, send_signal};
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::mask;
use crate::support::wait::wait_until;

/// Shell commands that a `claude` runs before it starts, and the number of processes of its run.
struct ClaudeCase {
    name: &'static str,
    before: &'static str,
    min_processes: usize,
}

const CLAUDE_CASES: &[ClaudeCase] = &[
    ClaudeCase { name: "ignores SIGTERM", before: "trap '' TERM HUP INT", min_processes: 1 },
    ClaudeCase {
        name: "a child in its own session that ignores SIGTERM and holds the pipes",
        before: "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' &",
        min_processes: 3,
    },
    ClaudeCase {
        name: "double fork",
        before: "(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &)",
        min_processes: 3,
    },
    ClaudeCase {
        name: "200 children",
        before: "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done",
        min_processes: 201,
    },
    ClaudeCase {
        name: "a server that ignores the end of its input",
        before: "sh -c 'trap \"\" TERM; while :; do sleep 1; done' < /dev/null &",
        min_processes: 3,
    },
    ClaudeCase { name: "stopped", before: "sleep 1000 &", min_processes: 2 },
];

/// A server with one call for each case; no call ends by itself.
struct RunningCalls {
    context: TestContext,
    client: McpClient,
    calls: Vec<RunningCall>,
}

struct RunningCall {
    name: &'static str,
    request_id: u64,
    entry: RunEntry,
    tree: Vec<TreeProcess>,
}

impl RunningCalls {
    fn start(all: &[ClaudeCase], timeout_ms: u32) -> Self {
        let context = project(all, timeout_ms);
        let mut client = McpClient::connect(serve_command(&context));
        let calls: Vec<u64> = (0..all.len())
            .map(|number| start_call(&mut client, &format!("bad-{number}")))
            .collect();
        let registry = RunRegistry::at(&context.root().join("data"));
        let acts = all.iter().zip(calls).enumerate();
        let calls = acts
            .map(|(number, (bad, call))| {
                RunningCall::wait_until_running(bad, call, &format!("bad-{number}"), &registry)
            })
            .collect();
        Self { context, client, calls }
    }

    /// Asserts that no process, registry entry or run directory is left.
    fn assert_clean(&self) {
        for act in &self.calls {
            assert_gone_within_5_s(act.name, &act.tree, &act.entry.run.to_string());
        }
        let data = self.context.root().join("data");
        for place in ["runs", "tmp"] {
            wait_until(&format!("an empty `{place}`"), || {
                (fs::read_dir(data.join(place)).unwrap().count() == 0).then_some(())
            });
        }
    }

    /// Asserts that the event log has this outcome for every run.
    fn assert_recorded(&self, outcome: &str) {
        for act in &self.calls {
            let recorded = wait_until("the record", || self.outcome(act));
            assert_eq!(recorded, outcome, "{}", act.name);
        }
    }

    fn outcome(&self, act: &RunningCall) -> Option<String> {
        let run = act.entry.run.to_string();
        let ends = self.context.events_named("RunEnded");
        let event = ends.iter().find(|event| event["run_id"] == run)?;
        let outcome = event.pointer("/details/outcome").or(event.get("outcome"));
        Some(outcome?.as_str()?.to_owned())
    }
}

impl RunningCall {
    /// Waits until the agent has written output and its process tree is complete.
    fn wait_until_running(
        bad: &ClaudeCase,
        request_id: u64,
        agent: &str,
        registry: &RunRegistry,
    ) -> Self {
        let entry = wait_until(agent, || {
            let speaks =
                |entry: &RunEntry| entry.agent == agent && entry.progress.doing == "writing";
            registry.list().unwrap().into_iter().find(speaks)
        });
        let run = entry.run.to_string();
        let mut tree = wait_until("the family", || {
            let found = processes_of_run(&run);
            (found.len() >= bad.min_processes).then_some(found)
        });
        tree.extend(TreeProcess::of(entry.supervisor.as_ref().unwrap().pid));
        if bad.name == "stopped" {
            send_signal(entry.pid.unwrap(), Signal::SIGSTOP);
        }
        Self { name: bad.name, request_id, entry, tree }
    }
}

/// A project with one agent per case; its `claude` runs the commands of the case first.
fn project(all: &[ClaudeCase], timeout_ms: u32) -> TestContext {
    let context = TestContext::new();
    let mut cases = String::new();
    for (number, bad) in all.iter().enumerate() {
        cases.push_str(&format!(
            "{number}) {};;\n",
            bad.before.trim_end_matches('&').to_owned() + background_suffix(bad)
        ));
        let settings = format!("timeout_ms: {timeout_ms}\nenv: {{ MISBEHAVE: \"{number}\" }}");
        let name = format!("bad-{number}");
        context.agent(
            &name,
            &format!("---\nname: {name}\ndescription: \"waits\"\n{settings}\n---\nYou wait.\n"),
        );
    }
    let fake = fake_claude();
    let script = format!(
        "#!/bin/sh\ncase \"$MISBEHAVE\" in\n{cases}esac\nexec '{}' \"$@\"\n",
        fake.display()
    );
    let claude = context.home().join("claude");
    fs::write(&claude, script).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    context
}

/// Ends a background command: `&;;` is not valid shell syntax.
fn background_suffix(bad: &ClaudeCase) -> &'static str {
    if bad.before.ends_with('&') { "&\n" } else { "" }
}

fn serve_command(context: &TestContext) -> std::process::Command {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", context.home().join("claude")).env("RUST_LOG", "error");
    command
}

fn start_call(client: &mut McpClient, agent: &str) -> u64 {
    let arguments =
        json!({ "agent_name": agent, "prompt": "FAKE say halfway\nFAKE hang-mid-turn" });
    client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

#[test]
fn f1_deadline_answers_the_caller_and_leaves_no_process() {
    // Long enough for a busy machine to start 200 children.
    let timeout = 15_000;
    let mut running = RunningCalls::start(CLAUDE_CASES, timeout);
    for act in &running.calls {
        let answer = running.client.answer(act.request_id);
        let name = act.name;
        let expected = format!(
            "TIMEOUT: `{agent}` had no answer within {timeout} ms. \
             Ask for less, or raise `timeout_ms` in [ROOT]/agents/{agent}/agent.md.\n\
             cost_usd: 0\n\n\
             partial (what `{agent}` had written, not its answer):\nhalfway",
            agent = act.entry.agent
        );
        assert_eq!(mask(result_text(&answer)), expected, "{name}");
        // The documented limit is 2 s; the test allows 5 s because the machine may be busy.
        let took =
            answer.pointer("/_meta/adjutant~1error/duration_ms").and_then(Value::as_u64).unwrap();
        assert!(took < u64::from(timeout) + 5_000, "{name}: {took} ms");
    }
    running.assert_clean();
    running.assert_recorded("TIMEOUT");
}

#[test]
fn f1_cancelled_calls_leave_no_process() {
    let mut running = RunningCalls::start(CLAUDE_CASES, 600_000);
    for act in &running.calls {
        running.client.notify(
            "notifications/cancelled",
            json!({ "requestId": act.request_id, "reason": "enough" }),
        );
    }
    running.assert_clean();
    running.assert_recorded("CANCELLED");
}

#[test]
fn f1_disconnected_client_leaves_no_process() {
    let mut running = RunningCalls::start(CLAUDE_CASES, 600_000);
    running.client.disconnect();
    running.client.wait_for_exit();
    running.assert_clean();
    running.assert_recorded("CANCELLED");
}

#[test]
fn f1_killed_server_leaves_no_process_and_the_next_server_reports_its_runs() {
    let mut running = RunningCalls::start(CLAUDE_CASES, 600_000);
    running.client.child().kill().unwrap();
    running.client.child().wait().unwrap();
    for act in &running.calls {
        assert_gone_within_5_s(act.name, &act.tree, &act.entry.run.to_string());
    }
    let _next = McpClient::connect(serve_command(&running.context));
    running.assert_clean();
    running.assert_recorded("INTERRUPTED");
}

#[test_case(Signal::SIGTERM; "sigterm")]
#[test_case(Signal::SIGINT; "sigint")]
fn f1_server_signalled_twice_leaves_no_process(kind: Signal) {
    let mut running = RunningCalls::start(CLAUDE_CASES, 600_000);
    // Two pending signals of one kind would be delivered once.
    send_signal(running.client.pid(), kind);
    wait_until("the first to be seen", || {
        pending_signals(running.client.pid()).eq("0000000000000000").then_some(())
    });
    send_signal(running.client.pid(), kind);
    running.client.wait_for_exit();
    running.assert_clean();
    running.assert_recorded("CANCELLED");
}

fn pending_signals(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t"));
    pending.unwrap_or("0000000000000000").to_owned()
}

#[test]
fn stopped_run_is_reported_as_cancelled() {
    let mut running = RunningCalls::start(&CLAUDE_CASES[1..2], 600_000);
    let run = running.calls[0].entry.run.to_string();
    let output = running.context.run(["runs", "stop", &run]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = running.client.answer(running.calls[0].request_id);
    assert!(
        result_text(&answer).starts_with("CANCELLED: the run was stopped by `adjutant runs stop`"),
        "{answer}"
    );
    running.assert_clean();
}
