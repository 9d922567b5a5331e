//! Agents that exhaust processes, output or disk space: their limits hold and other runs are unaffected.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use adjutant::runs::{RunEntry, RunRegistry};
use serde_json::{Value, json};

use super::process_tree::{TreeProcess, assert_gone_within_5_s, processes_of_run};
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::mask;
use crate::support::wait::wait_until;

fn agent_file(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Takes what it gets\n{more}\n---\nYou take.\n")
}

fn start_call(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

fn call_agent(client: &mut McpClient, agent: &str, prompt: &str) -> Value {
    let call = start_call(client, agent, prompt);
    client.answer(call)
}

/// Resident memory of a process in KiB.
fn resident_kib(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn f3_fork_bomb_and_endless_output_end_at_the_deadline_and_other_runs_continue() {
    let context = TestContext::new();
    // The fork bomb grows far past its deadline, slowly enough for parallel tests. If nothing killed it, it would end
    // with the project, and after 4 s at most.
    let bomb = "bomb() { n=0; while [ -e agents ] && [ $n -lt 40 ]; do n=$((n + 1)); \
        sleep 60 & [ $1 -gt 0 ] && bomb $(($1 - 1)) & sleep 0.1; done; }\n\
        [ -n \"$BOMB\" ] && bomb 1 < /dev/null &\n";
    let claude = context.home().join("claude");
    fs::write(&claude, format!("#!/bin/sh\n{bomb}exec '{}' \"$@\"\n", fake_claude().display()))
        .unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    context.agent("bomb", &agent_file("bomb", "timeout_ms: 2500\nenv: { BOMB: \"1\" }"));
    context.agent("flood", &agent_file("flood", "timeout_ms: 2500"));
    context.agent("good", &agent_file("good", ""));
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", &claude).env("RUST_LOG", "error");
    let mut client = McpClient::connect(command);
    assert_eq!(call_agent(&mut client, "good", "FAKE result one")["isError"], false);
    let before = resident_kib(client.pid());

    let calls = [
        start_call(&mut client, "bomb", "FAKE say boom\nFAKE hang-mid-turn"),
        start_call(&mut client, "flood", "FAKE say splash\nFAKE flood-forever"),
    ];
    let registry = RunRegistry::at(&context.root().join("data"));
    let entry = |agent: &str| -> RunEntry {
        wait_until(agent, || {
            registry.list().unwrap().into_iter().find(|entry| entry.agent == agent)
        })
    };
    let runs = ["bomb", "flood"].map(|agent| entry(agent).run.to_string());
    let family: Vec<TreeProcess> = wait_until("a crowd", || {
        let children = processes_of_run(&runs[0]);
        (children.len() >= 40).then_some(children)
    });
    let good = call_agent(&mut client, "good", "FAKE result two");
    assert_eq!(good["structuredContent"]["result"], "two", "others go on: {good}");
    for call in calls {
        let answer = client.answer(call);
        assert!(result_text(&answer).starts_with("TIMEOUT: "), "{answer}");
    }
    for run in &runs {
        assert_gone_within_5_s("greed", &family, run);
    }
    let after = resident_kib(client.pid());
    assert!(after < before + 64 * 1024, "KiB of memory: {before}, then {after}");
}

/// The server's files are limited to 64 KiB, which the event log of a verbose agent reaches.
#[test]
fn f3_event_log_that_fills_the_disk_stops_no_run_and_lost_events_are_reported() {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", "audit: best_effort\n");
    context.agent("talker", &agent_file("talker", ""));
    context.agent("good", &agent_file("good", ""));
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
    let talker = call_agent(&mut client, "talker", &much);
    assert_eq!(talker["structuredContent"]["result"], "much", "{talker}");
    let record = context.root().join("data/events.jsonl");
    wait_until("a full disk", || (fs::metadata(&record).ok()?.len() > 60 << 10).then_some(()));
    for _ in 0..3 {
        let good = call_agent(&mut client, "good", "FAKE result fine");
        assert_eq!(good["structuredContent"]["result"], "fine", "others go on: {good}");
    }
    client.disconnect();
    assert!(client.wait_for_exit().success());
    assert!(fs::metadata(&record).unwrap().len() <= 64 << 10, "the limit holds");
    let said = fs::read_to_string(context.home().join("log")).unwrap();
    insta::assert_snapshot!(mask(&said), @r#"
    [TIME]  INFO adjutant::gateway::config::active: [ROOT]/.mcp.json: there is no such file: no servers
    [TIME]  INFO adjutant::gateway::config::active: [ROOT]/.mcp-gateway-rules.json: there is no such file: nobody is allowed anything
    [TIME]  WARN adjutant::events::log: events cannot be recorded; runs go on reason="File too large (os error 27)" file=[ROOT]/data/events.jsonl
    [TIME]  WARN adjutant::delegation::orchestrator: events could not be recorded missing=[COUNT] file=[ROOT]/data/events.jsonl
    "#);
}
