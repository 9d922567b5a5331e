//! A clock that is set while Adjutant runs, and a machine that was suspended: deadlines and leases go by the time that has passed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use adjutant::worker::RunBoard;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use crate::processes::family::signal;
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};
use crate::support::stage::report;
use crate::support::waiting::{ask, gone, one_waits, wait_for};

/// Shifts the time of day by the seconds in a file; the time that has passed since some moment stays what it is.
const SHIFT: &str = r#"
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

/// The library that does so; `None`, said aloud, where there is no compiler.
fn shifting() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = folder.join("clock.c");
        let (library, new) = (folder.join("clock.so"), folder.join(std::process::id().to_string()));
        fs::write(&source, SHIFT).expect("the source");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&new).arg(&source);
        if compiler.status().is_ok_and(|status| status.success()) {
            // Another run of the tests may be using the one that is there.
            fs::rename(&new, &library).expect("the library");
            return Some(library);
        }
        eprintln!("SKIPPED, for want of a C compiler");
        None
    };
    BUILT.get_or_init(build).clone()
}

fn agent(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Takes its time\n{more}\n---\nYou take your time.\n")
}

fn begin(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    client.begin("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
}

const HOUR: i64 = 3_600;

#[test_case(-HOUR; "set back an hour")]
#[test_case(8 * HOUR; "suspended for eight hours")]
fn f6_deadlines_and_leases_go_by_the_time_that_has_passed(seconds: i64) {
    let Some(library) = shifting() else { return };
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
    let first = ask(&mut client, "keeper", "FAKE result one");
    let late = begin(&mut client, "late", "FAKE say half\nFAKE hang-mid-turn");
    let patient = begin(&mut client, "patient", "FAKE say half\nFAKE sleep 1\nFAKE result whole");
    let board = RunBoard::at(&context.root().join("data"));
    wait_for("both to be at work", || {
        let cards = board.list();
        let writing = cards.iter().filter(|card| card.progress.doing == "writing");
        (writing.count() == 2).then_some(())
    });
    // While a machine is suspended nothing runs; then the clock has jumped.
    signal(client.pid(), Signal::SIGSTOP);
    fs::write(&shift, seconds.to_string()).unwrap();
    signal(client.pid(), Signal::SIGCONT);

    // The conversation goes on in its process, which is let go when nobody has used it for a while.
    let second = ask(&mut client, "keeper", "FAKE recall");
    assert_eq!(second["session_id"], first["session_id"], "{second}");
    assert!(second["result"].as_str().unwrap().contains("FAKE result one"), "{second}");
    let kept = one_waits(&context);
    let answer = client.answer(patient);
    assert_eq!(answer["structuredContent"]["result"], "whole", "not ended too early: {answer}");
    let answer = client.answer(late);
    assert!(text(&answer).starts_with("TIMEOUT: "), "{answer}");
    let took = answer.pointer("/_meta/adjutant~1error/duration_ms").and_then(Value::as_u64);
    assert!(took.is_some_and(|took| (2_000..20_000).contains(&took)), "{answer}");
    gone(kept);

    // An edit counts at once, whatever the clock says of the file, and another program may have the conversation.
    context.agent("keeper", &agent("keeper", "session: true\nenv: { PLUM: \"1\" }"));
    let edited = ask(&mut client, "keeper", "FAKE report");
    assert!(edited["result"].as_str().unwrap().contains("PLUM"), "{edited}");
    let mut run = shifted(context.adjutant(["run", "keeper", "FAKE result two", "--json"]));
    let elsewhere = report(&run.output().unwrap());
    assert_eq!(elsewhere["session_id"], first["session_id"], "{elsewhere}");

    let line = context.audit().pop().unwrap();
    let written: jiff::Timestamp = line["time"].as_str().unwrap().parse().unwrap();
    let away = SystemTime::from(written).duration_since(SystemTime::now());
    let away = away.unwrap_or_else(|earlier| earlier.duration());
    let expected = Duration::from_secs(seconds.unsigned_abs());
    assert!(away.abs_diff(expected) < Duration::from_mins(5), "the clock was shifted: {line}");
}
