//! The whole way: a client calls an agent through `adjutant serve`, and the agent's `claude` misbehaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use adjutant::worker::{RunBoard, RunCard};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use super::family::{Member, assert_gone_soon, marked, signal, wait_until};
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};

/// What a `claude` does before it answers, and how many processes it has then.
struct Bad {
    name: &'static str,
    before: &'static str,
    members: usize,
}

const ALL: &[Bad] = &[
    Bad { name: "ignores SIGTERM", before: "trap '' TERM HUP INT", members: 1 },
    Bad {
        name: "a child in its own session that ignores SIGTERM and holds the pipes",
        before: "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' &",
        members: 3,
    },
    Bad {
        name: "double fork",
        before: "(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &)",
        members: 3,
    },
    Bad {
        name: "200 children",
        before: "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done",
        members: 201,
    },
    Bad {
        name: "a server that ignores the end of its input",
        before: "sh -c 'trap \"\" TERM; while :; do sleep 1; done' < /dev/null &",
        members: 3,
    },
    Bad { name: "stopped", before: "sleep 1000 &", members: 2 },
];

/// A server with one call for each misbehaviour, none of which comes to an end by itself.
struct Scene {
    context: TestContext,
    client: McpClient,
    acts: Vec<Act>,
}

struct Act {
    name: &'static str,
    call: u64,
    card: RunCard,
    family: Vec<Member>,
}

impl Scene {
    fn set(all: &[Bad], timeout_ms: u32) -> Self {
        let context = project(all, timeout_ms);
        let mut client = McpClient::connect(serve(&context));
        let calls: Vec<u64> =
            (0..all.len()).map(|number| begin(&mut client, &format!("bad-{number}"))).collect();
        let board = RunBoard::at(&context.root().join("data"));
        let acts = all.iter().zip(calls).enumerate();
        let acts = acts
            .map(|(number, (bad, call))| Act::begun(bad, call, &format!("bad-{number}"), &board))
            .collect();
        Self { context, client, acts }
    }

    /// Nothing is left: no process, no card, no private file.
    fn assert_clean(&self) {
        for act in &self.acts {
            assert_gone_soon(act.name, &act.family, &act.card.run.to_string());
        }
        let data = self.context.root().join("data");
        for place in ["runs", "tmp"] {
            wait_until(&format!("an empty `{place}`"), || {
                (fs::read_dir(data.join(place)).unwrap().count() == 0).then_some(())
            });
        }
    }

    /// The record says of every run that it ended like this.
    fn assert_recorded(&self, outcome: &str) {
        for act in &self.acts {
            let recorded = wait_until("the record", || self.outcome(act));
            assert_eq!(recorded, outcome, "{}", act.name);
        }
    }

    fn outcome(&self, act: &Act) -> Option<String> {
        let events = fs::read_to_string(self.context.root().join("data/events.jsonl")).unwrap();
        let run = act.card.run.to_string();
        let line = events.lines().find(|line| line.contains("RunEnded") && line.contains(&run))?;
        let event: Value = serde_json::from_str(line).unwrap();
        let outcome = event.pointer("/details/outcome").or(event.get("outcome"));
        Some(outcome?.as_str()?.to_owned())
    }
}

impl Act {
    /// Waits until the agent has said something and its family is there.
    fn begun(bad: &Bad, call: u64, agent: &str, board: &RunBoard) -> Self {
        let card = wait_until(agent, || {
            let speaks = |card: &RunCard| card.agent == agent && card.progress.doing == "writing";
            board.list().into_iter().find(speaks)
        });
        let run = card.run.to_string();
        let mut family = wait_until("the family", || {
            let found = marked(&run);
            (found.len() >= bad.members).then_some(found)
        });
        family.extend(Member::of(card.keeper.as_ref().unwrap().pid));
        if bad.name == "stopped" {
            signal(card.pid.unwrap(), Signal::SIGSTOP);
        }
        Self { name: bad.name, call, card, family }
    }
}

/// A project with an agent for each misbehaviour, which its `claude` does first.
fn project(all: &[Bad], timeout_ms: u32) -> TestContext {
    let context = TestContext::new();
    let mut cases = String::new();
    for (number, bad) in all.iter().enumerate() {
        cases.push_str(&format!(
            "{number}) {};;\n",
            bad.before.trim_end_matches('&').to_owned() + background(bad)
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

/// A command in the background ends with `&`, and `&;;` is no shell.
fn background(bad: &Bad) -> &'static str {
    if bad.before.ends_with('&') { "&\n" } else { "" }
}

fn serve(context: &TestContext) -> std::process::Command {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", context.home().join("claude")).env("RUST_LOG", "error");
    command
}

fn begin(client: &mut McpClient, agent: &str) -> u64 {
    let arguments =
        json!({ "agent_name": agent, "prompt": "FAKE say halfway\nFAKE hang-mid-turn" });
    client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

#[test]
fn f1_at_the_deadline_the_caller_has_its_answer_and_nothing_is_left() {
    // Long enough for a busy machine to get 200 children going.
    let timeout = 15_000;
    let mut scene = Scene::set(ALL, timeout);
    for act in &scene.acts {
        let answer = scene.client.answer(act.call);
        let name = act.name;
        assert!(text(&answer).starts_with("TIMEOUT: "), "{name}: {answer}");
        assert!(text(&answer).contains("halfway"), "what it had written comes along: {answer}");
        // Two seconds are the promise; a test machine may be busy.
        let took =
            answer.pointer("/_meta/adjutant~1error/duration_ms").and_then(Value::as_u64).unwrap();
        assert!(took < u64::from(timeout) + 5_000, "{name}: {took} ms");
    }
    scene.assert_clean();
    scene.assert_recorded("TIMEOUT");
}

#[test]
fn f1_cancelled_calls_leave_nothing() {
    let mut scene = Scene::set(ALL, 600_000);
    for act in &scene.acts {
        scene.client.notify(
            "notifications/cancelled",
            json!({ "requestId": act.call, "reason": "enough" }),
        );
    }
    scene.assert_clean();
    scene.assert_recorded("CANCELLED");
}

#[test]
fn f1_a_client_that_goes_away_leaves_nothing() {
    let mut scene = Scene::set(ALL, 600_000);
    scene.client.hang_up();
    scene.client.ends();
    scene.assert_clean();
    scene.assert_recorded("CANCELLED");
}

#[test]
fn f1_a_killed_server_leaves_nothing_and_the_next_one_says_so() {
    let mut scene = Scene::set(ALL, 600_000);
    scene.client.child().kill().unwrap();
    scene.client.child().wait().unwrap();
    for act in &scene.acts {
        assert_gone_soon(act.name, &act.family, &act.card.run.to_string());
    }
    let _next = McpClient::connect(serve(&scene.context));
    scene.assert_clean();
    scene.assert_recorded("INTERRUPTED");
}

#[test_case(Signal::SIGTERM; "sigterm")]
#[test_case(Signal::SIGINT; "sigint")]
fn f1_a_server_told_to_end_twice_leaves_nothing(kind: Signal) {
    let mut scene = Scene::set(ALL, 600_000);
    // Two that come together would count as one.
    signal(scene.client.pid(), kind);
    wait_until("the first to be seen", || {
        pending_signals(scene.client.pid()).eq("0000000000000000").then_some(())
    });
    signal(scene.client.pid(), kind);
    scene.client.ends();
    scene.assert_clean();
    scene.assert_recorded("CANCELLED");
}

fn pending_signals(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t"));
    pending.unwrap_or("0000000000000000").to_owned()
}

#[test]
fn a_stopped_run_is_reported_as_such() {
    let mut scene = Scene::set(&ALL[1..2], 600_000);
    let run = scene.acts[0].card.run.to_string();
    let output = scene.context.run(["runs", "stop", &run]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = scene.client.answer(scene.acts[0].call);
    assert!(
        text(&answer).starts_with("CANCELLED: the run was stopped by `adjutant runs stop`"),
        "{answer}"
    );
    scene.assert_clean();
}
