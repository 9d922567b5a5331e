//! Load: all calls are answered, concurrency stays at the limit, and no resource leaks.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use serde_json::json;
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::wait::wait_until;

const MAX_RUNS: usize = 8;

fn project() -> (TestContext, McpClient) {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", format!("max_runs: {MAX_RUNS}\nmax_queue: 400\n"));
    let body = "---\nname: echo\ndescription: \"echoes\"\ntimeout_ms: 280000\n---\nYou echo.\n";
    context.agent("echo", body);
    let mut command: Command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude()).env("RUST_LOG", "error");
    let client = McpClient::connect(command);
    (context, client)
}

fn start_call(client: &mut McpClient) -> u64 {
    let arguments = json!({ "agent_name": "echo", "prompt": "FAKE result done" });
    client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

/// Number of child processes: for a server, its supervisors.
fn child_count(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

/// Open descriptors, threads and resident memory in KiB.
fn resource_usage(pid: u32) -> (usize, usize, usize) {
    let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    (count("fd"), count("task"), memory.unwrap().trim().parse().unwrap())
}

#[test]
fn f5_of_200_concurrent_calls_eight_run_at_once_and_all_are_answered() {
    let (context, mut client) = project();
    let first = start_call(&mut client);
    client.answer(first);
    let pid = client.pid();
    let before = resource_usage(pid);
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut most = 0;
            while !over.load(Ordering::SeqCst) {
                most = most.max(child_count(pid));
                thread::sleep(Duration::from_millis(2));
            }
            most
        })
    };
    let calls: Vec<u64> = (0..200).map(|_| start_call(&mut client)).collect();
    for call in calls {
        let answer = client.answer(call);
        assert_eq!(answer["structuredContent"]["result"], "done", "{answer}");
    }
    over.store(true, Ordering::SeqCst);
    let most = watch.join().unwrap();
    assert!((2..=MAX_RUNS).contains(&most), "{most} processes at once");
    // A call is answered before its process has exited.
    wait_until("the end of every process", || (child_count(pid) == 0).then_some(()));
    let after = resource_usage(pid);
    assert!(after.0 <= before.0 + 2, "descriptors: {before:?}, then {after:?}");
    assert!(after.2 < before.2 + 64 * 1024, "memory in KiB: {before:?}, then {after:?}");
    for place in ["runs", "tmp"] {
        let folder = context.root().join("data").join(place);
        wait_until(place, || (fs::read_dir(&folder).unwrap().count() == 0).then_some(()));
    }
}

/// A `claude` that notes in `overlap` each process of an earlier run that is still there when it is started.
fn watching_claude(context: &TestContext) -> std::path::PathBuf {
    let script = format!(
        "#!/bin/sh\ncase $1 in --help | --version) exec {claude} \"$1\" ;; esac\ncd {root}\n\
         for pid in $(cat started children 2>/dev/null); do [ -d /proc/$pid ] && echo $pid >> overlap; done\n\
         echo $$ >> started\nexec {claude} \"$@\"\n",
        claude = fake_claude().display(),
        root = context.root().display(),
    );
    context.write("claude", script);
    let path = context.root().join("claude");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test_case("", "hello", "SUCCESS"; "a process that stays after its answer")]
#[test_case("timeout_ms: 4000\n", "FAKE hang-mid-turn", "TIMEOUT"; "a process that is killed at its deadline")]
fn the_next_run_is_admitted_when_the_last_process_of_the_run_before_is_gone(
    limits: &str,
    ending: &str,
    outcome: &str,
) {
    let context = TestContext::new();
    context.write("agents/defaults.yaml", "max_runs: 1\n");
    let first = format!(
        "---\nname: first\ndescription: Stays\n{limits}env: {{ FAKE_CLAUDE: linger }}\n---\nYou stay.\n"
    );
    context.agent("first", &first);
    context.agent("second", "---\nname: second\ndescription: Follows\n---\nYou follow.\n");
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", watching_claude(&context));
    let mut client = McpClient::connect(command);
    let children = context.root().join("children");
    let prompt =
        format!("FAKE ignore-signals\nFAKE leave-grandchild {}\n{ending}", children.display());
    let mut begin = |agent: &str, prompt: &str| {
        let arguments = json!({ "agent_name": agent, "prompt": prompt });
        client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
    };
    let first = begin("first", &prompt);
    wait_until("the first run", || context.events_named("RunStarted").pop());
    let second = begin("second", "FAKE result done");
    client.answer(first);
    let second = client.answer(second);
    assert_eq!(second["structuredContent"]["result"], "done", "{second}");
    let ended = context.events_named("RunEnded");
    assert_eq!(ended[0]["outcome"], outcome, "{ended:?}");
    let lines = |file: &str| {
        let text = fs::read_to_string(context.root().join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((lines("started").len(), lines("children").len()), (2, 3));
    assert_eq!(lines("overlap"), Vec::<String>::new(), "still there when the second run began");
}

#[test]
#[ignore = "takes minutes; `cargo test --test it processes::load -- --ignored --nocapture` prints the figures"]
fn server_resources_after_1000_runs_equal_those_after_10() {
    let (_context, mut client) = project();
    let mut early = (0, 0, 0);
    for number in 1..=1000 {
        let call = start_call(&mut client);
        assert_eq!(client.answer(call)["structuredContent"]["result"], "done");
        if number == 10 {
            early = resource_usage(client.pid());
        }
    }
    let late = resource_usage(client.pid());
    println!("descriptors, threads, KiB after 10 runs {early:?}, after 1000 {late:?}");
    assert!(late.0 <= early.0 && late.1 <= early.1 + 2, "{early:?}, then {late:?}");
    assert!(late.2 < early.2 + 8 * 1024, "{early:?}, then {late:?}");
}
