//! Agents that take all they can get: processes, output, room on the disk. Their limits hold, and others go on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use adjutant::worker::{RunBoard, RunCard};
use serde_json::{Value, json};

use super::family::{Member, assert_gone_soon, marked, wait_until};
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Takes what it gets\n{more}\n---\nYou take.\n")
}

fn begin(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

fn answer_of(client: &mut McpClient, agent: &str, prompt: &str) -> Value {
    let call = begin(client, agent, prompt);
    client.answer(call)
}

/// KiB of memory that a process has.
fn memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn f3_a_fork_bomb_and_output_without_end_meet_their_deadline_and_others_go_on() {
    let context = TestContext::new();
    // It grows far beyond its deadline, slowly enough for other tests. It would outlive this one if nobody ended it: so it
    // lasts no longer than the project, and four seconds at the most.
    let bomb = "bomb() { n=0; while [ -e agents ] && [ $n -lt 40 ]; do n=$((n + 1)); \
        sleep 60 & [ $1 -gt 0 ] && bomb $(($1 - 1)) & sleep 0.1; done; }\n\
        [ -n \"$BOMB\" ] && bomb 1 < /dev/null &\n";
    let claude = context.home().join("claude");
    fs::write(&claude, format!("#!/bin/sh\n{bomb}exec '{}' \"$@\"\n", fake_claude().display()))
        .unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    context.agent("bomb", &agent("bomb", "timeout_ms: 2500\nenv: { BOMB: \"1\" }"));
    context.agent("flood", &agent("flood", "timeout_ms: 2500"));
    context.agent("good", &agent("good", ""));
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", &claude).env("RUST_LOG", "error");
    let mut client = McpClient::connect(command);
    assert_eq!(answer_of(&mut client, "good", "FAKE result one")["isError"], false);
    let before = memory(client.pid());

    let calls = [
        begin(&mut client, "bomb", "FAKE say boom\nFAKE hang-mid-turn"),
        begin(&mut client, "flood", "FAKE say splash\nFAKE flood-forever"),
    ];
    let board = RunBoard::at(&context.root().join("data"));
    let card = |agent: &str| -> RunCard {
        wait_until(agent, || board.list().into_iter().find(|card| card.agent == agent))
    };
    let runs = ["bomb", "flood"].map(|agent| card(agent).run.to_string());
    let family: Vec<Member> = wait_until("a crowd", || {
        let crowd = marked(&runs[0]);
        (crowd.len() >= 40).then_some(crowd)
    });
    let good = answer_of(&mut client, "good", "FAKE result two");
    assert_eq!(good["structuredContent"]["result"], "two", "others go on: {good}");
    for call in calls {
        let answer = client.answer(call);
        assert!(text(&answer).starts_with("TIMEOUT: "), "{answer}");
    }
    for run in &runs {
        assert_gone_soon("greed", &family, run);
    }
    let after = memory(client.pid());
    assert!(after < before + 64 * 1024, "KiB of memory: {before}, then {after}");
}

/// No file of the server may pass 64 KiB, which a talkative agent's record does soon.
#[test]
fn f3_a_disk_that_an_agents_record_has_filled_stops_nobody_and_what_is_missing_is_said() {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", "audit: best_effort\n");
    context.agent("talker", &agent("talker", ""));
    context.agent("good", &agent("good", ""));
    let plain = context.adjutant(["serve"]);
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" serve"]).arg(plain.get_program());
    command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(context.root()).env("ADJUTANT_CLAUDE", fake_claude());
    let log = fs::File::create(context.home().join("log")).unwrap();
    let mut client = McpClient::connect_logging(command, log);
    let told =
        json!({ "tool_name": "Bash", "tool_use_id": "t", "tool_response": "x".repeat(2_000) });
    let much = format!("FAKE hook PostToolUse {told}\n").repeat(100) + "FAKE result much";
    let talker = answer_of(&mut client, "talker", &much);
    assert_eq!(talker["structuredContent"]["result"], "much", "{talker}");
    let record = context.root().join("data/events.jsonl");
    wait_until("a full disk", || (fs::metadata(&record).ok()?.len() > 60 << 10).then_some(()));
    for _ in 0..3 {
        let good = answer_of(&mut client, "good", "FAKE result fine");
        assert_eq!(good["structuredContent"]["result"], "fine", "others go on: {good}");
    }
    client.hang_up();
    assert!(client.ends().success());
    assert!(fs::metadata(&record).unwrap().len() <= 64 << 10, "the limit holds");
    let said = fs::read_to_string(context.home().join("log")).unwrap();
    assert!(said.contains("events cannot be recorded; runs go on"), "it is said: {said}");
    assert!(said.contains("events could not be recorded missing="), "and how many: {said}");
}
