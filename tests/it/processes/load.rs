//! Many calls through one server: all answered, never more at once than the limit, nothing piling up.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};

const LIMIT: usize = 8;

fn project() -> (TestContext, McpClient) {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", format!("max_runs: {LIMIT}\nmax_queue: 400\n"));
    let body = "---\nname: echo\ndescription: \"echoes\"\ntimeout_ms: 280000\n---\nYou echo.\n";
    context.agent("echo", body);
    let mut command: Command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude()).env("RUST_LOG", "error");
    let client = McpClient::connect(command);
    (context, client)
}

fn begin(client: &mut McpClient) -> u64 {
    let arguments = json!({ "agent_name": "echo", "prompt": "FAKE result done" });
    client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

/// How many children a process has: a server's are its keepers.
fn children(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

/// Descriptors, threads and KiB of memory.
fn holdings(pid: u32) -> (usize, usize, usize) {
    let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    (count("fd"), count("task"), memory.unwrap().trim().parse().unwrap())
}

#[test]
fn f5_of_two_hundred_calls_at_once_eight_run_and_all_are_answered() {
    let (context, mut client) = project();
    let first = begin(&mut client);
    client.answer(first);
    let pid = client.pid();
    let before = holdings(pid);
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut most = 0;
            while !over.load(Ordering::SeqCst) {
                most = most.max(children(pid));
                thread::sleep(Duration::from_millis(2));
            }
            most
        })
    };
    let calls: Vec<u64> = (0..200).map(|_| begin(&mut client)).collect();
    for call in calls {
        let answer = client.answer(call);
        assert!(text(&answer).contains("done"), "{answer}");
    }
    over.store(true, Ordering::SeqCst);
    let most = watch.join().unwrap();
    assert!((2..=LIMIT).contains(&most), "{most} processes at once");
    let after = holdings(pid);
    assert!(after.0 <= before.0 + 2, "descriptors: {before:?}, then {after:?}");
    assert!(after.2 < before.2 + 64 * 1024, "memory in KiB: {before:?}, then {after:?}");
    assert_eq!(children(pid), 0, "no zombie, no keeper");
    for place in ["runs", "tmp"] {
        let left = fs::read_dir(context.root().join("data").join(place)).unwrap().count();
        assert_eq!(left, 0, "{place}");
    }
}

#[test]
#[ignore = "takes minutes; `cargo test --test it processes::load -- --ignored --nocapture` prints the figures"]
fn after_a_thousand_runs_a_server_is_as_after_ten() {
    let (_context, mut client) = project();
    let mut early = (0, 0, 0);
    for number in 1..=1000 {
        let call = begin(&mut client);
        assert!(text(&client.answer(call)).contains("done"));
        if number == 10 {
            early = holdings(client.pid());
        }
    }
    let late = holdings(client.pid());
    println!("descriptors, threads, KiB after 10 runs {early:?}, after 1000 {late:?}");
    assert!(late.0 <= early.0 && late.1 <= early.1 + 2, "{early:?}, then {late:?}");
    assert!(late.2 < early.2 + 8 * 1024, "{early:?}, then {late:?}");
}
