//! Changes of the system clock and suspended machines: deadlines and leases use elapsed (monotonic) time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use adjutant::runs::RunRegistry;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use crate::processes::process_tree::send_signal;
use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::fake_claude::fake_claude;
use crate::support::idle_processes::{call_agent, wait_for_idle_process, wait_until_gone};
use crate::support::mcp::{McpClient, result_text};
use crate::support::skip::or_skip;
use crate::support::wait::wait_until;

/// LD_PRELOAD library that shifts `CLOCK_REALTIME` by the seconds in a file; monotonic clocks are unchanged.
const SHIFT_LIBRARY_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    const char *path = getenv("CLOCK_IS_SHIFTED_BY");
    if (result != 0 || clock != CLOCK_REALTIME || path == NULL) return (int)result;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char digits[32] = {0};
    if (read(file, digits, sizeof digits - 1) > 0) now->tv_sec += atol(digits);
    close(file);
    return 0;
}
"#;

/// Builds [`SHIFT_LIBRARY_SOURCE`] once. `None`, with a message, if there is no C compiler.
fn build_shift_library() -> Option<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    let build = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = folder.join("clock.c");
        let (library, new) = (folder.join("clock.so"), folder.join(std::process::id().to_string()));
        fs::write(&source, SHIFT_LIBRARY_SOURCE).expect("the source");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&new).arg(&source);
        if compiler.status().is_ok_and(|status| status.success()) {
            // Renamed into place: a concurrent test run may be using the existing library.
            fs::rename(&new, &library).expect("the library");
            return Ok(library);
        }
        Err("there is no C compiler")
    };
    or_skip(BUILT.get_or_init(build).clone())
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Takes its time\n{more}\n---\nYou take your time.\n")
}

fn begin_run(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    client.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

const HOUR: i64 = 3_600;

#[test_case(-HOUR; "set back an hour")]
#[test_case(8 * HOUR; "suspended for eight hours")]
fn f6_deadlines_and_leases_use_elapsed_time(seconds: i64) {
    let Some(library) = build_shift_library() else { return };
    let context = TestContext::new();
    context.agent("late", &agent("late", "timeout_ms: 2000"));
    context.agent("patient", &agent("patient", "timeout_ms: 60000\nidle_timeout_ms: 60000"));
    context.agent("keeper", &agent("keeper", "session: true\nkeep_alive_ms: 2000"));
    let shift = context.home().join("shift");
    let shifted = |mut command: Command| {
        command.env("ADJUTANT_CLAUDE", fake_claude()).env("RUST_LOG", "error");
        command.env("LD_PRELOAD", &library).env("CLOCK_IS_SHIFTED_BY", &shift);
        command
    };
    let mut client = McpClient::connect(shifted(context.adjutant(["serve"])));
    let first = call_agent(&mut client, "keeper", "FAKE result one");
    let late = begin_run(&mut client, "late", "FAKE say half\nFAKE hang-mid-turn");
    let patient =
        begin_run(&mut client, "patient", "FAKE say half\nFAKE sleep 1\nFAKE result whole");
    let registry = RunRegistry::at(&context.root().join("data"));
    wait_until("both to be at work", || {
        let entries = registry.list().unwrap();
        let writing = entries.iter().filter(|entry| entry.progress.doing == "writing");
        (writing.count() == 2).then_some(())
    });
    // A suspended machine runs nothing; after it resumes the clock has jumped.
    send_signal(client.pid(), Signal::SIGSTOP);
    fs::write(&shift, seconds.to_string()).unwrap();
    send_signal(client.pid(), Signal::SIGCONT);

    // The session continues in its live process, which is stopped after its idle time.
    let second = call_agent(&mut client, "keeper", "FAKE recall");
    assert_eq!(second["session_id"], first["session_id"], "{second}");
    assert_eq!(second["result"], "FAKE result one");
    let kept = wait_for_idle_process(&context);
    let answer = client.answer(patient);
    assert_eq!(answer["structuredContent"]["result"], "whole", "not ended too early: {answer}");
    let answer = client.answer(late);
    assert!(result_text(&answer).starts_with("TIMEOUT: "), "{answer}");
    let took = answer.pointer("/_meta/adjutant~1error/duration_ms").and_then(Value::as_u64);
    assert!(took.is_some_and(|took| (2_000..20_000).contains(&took)), "{answer}");
    wait_until_gone(kept);

    // An edit takes effect at once, whatever its modification time, and another process may lease the session.
    context.agent("keeper", &agent("keeper", "session: true\nenv: { PLUM: \"1\" }"));
    let edited = call_agent(&mut client, "keeper", "FAKE report");
    assert!(edited["result"].as_str().unwrap().contains("PLUM"), "{edited}");
    let mut run = shifted(context.adjutant(["run", "keeper", "FAKE result two", "--json"]));
    let elsewhere = report(&run.output().unwrap());
    assert_eq!(elsewhere["session_id"], first["session_id"], "{elsewhere}");

    let line = context.audit_entries().pop().unwrap();
    let written: jiff::Timestamp = line["time"].as_str().unwrap().parse().unwrap();
    let away = SystemTime::from(written).duration_since(SystemTime::now());
    let away = away.unwrap_or_else(|earlier| earlier.duration());
    let expected = Duration::from_secs(seconds.unsigned_abs());
    assert!(away.abs_diff(expected) < Duration::from_mins(5), "the clock was shifted: {line}");
}
