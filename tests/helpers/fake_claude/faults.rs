//! Faults of the fake `claude`.

use std::io::{self, Write};
use std::process::{Command, Stdio, exit};
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::{SigSet, Signal, raise};
use serde_json::{Value, json};

use crate::script::Directive;
use crate::write_frame;

const MEGABYTE: usize = 1 << 20;

/// Executes the directives that apply before stdin is read; returns the directives for the turns.
pub fn run_start_directives(directives: Vec<Directive>, arguments: &[String]) -> Vec<Directive> {
    directives.into_iter().filter(|directive| !run_start_directive(directive, arguments)).collect()
}

fn run_start_directive(directive: &Directive, arguments: &[String]) -> bool {
    match directive.name.as_str() {
        "hang-at-start" => hang(),
        "slow-start" => sleep(directive),
        "exit-at-start" => exit_with(&directive.argument),
        "refuse-flag" => refuse_flag(&directive.argument, arguments),
        "noise" => write_noise(),
        "ignore-signals" => ignore_signals(),
        "leave-grandchild" => leave_grandchildren(&directive.argument),
        _ => return false,
    }
    true
}

fn refuse_flag(refused: &str, arguments: &[String]) {
    if arguments.iter().any(|argument| argument.split('=').next() == Some(refused)) {
        exit_with(&format!("1 error: unknown option '{refused}'"));
    }
}

/// Executes a directive that breaks a turn, or loads the reader of the output.
pub fn run_fault(directive: &Directive, result: &mut Value) {
    match directive.name.as_str() {
        "sleep" => sleep(directive),
        "hang-mid-turn" => hang(),
        "torn-line" => write_half(result),
        "no-result" => exit(0),
        "exit" => exit_with(&directive.argument),
        "crash" => raise(Signal::SIGKILL).unwrap(),
        "noise" => write_noise(),
        "flood-lines" => flood_lines(directive.number()),
        "flood-forever" => flood_forever(),
        "flood-stderr" => write_flood(&mut io::stderr().lock(), directive),
        "long-line" => long_line(directive),
        "long-result" => result["result"] = "x".repeat(byte_count(directive)).into(),
        "ignore-signals" => ignore_signals(),
        "leave-grandchild" => leave_grandchildren(&directive.argument),
        other => panic!("the fake claude does not know `{other}`"),
    }
}

/// Blocks forever without reading, writing or exiting.
pub fn hang() -> ! {
    loop {
        thread::park();
    }
}

fn sleep(directive: &Directive) {
    thread::sleep(Duration::from_secs_f64(directive.number()));
}

/// Waits until the file exists.
pub fn wait_for_file(file: &str) {
    while !fs::exists(file).unwrap() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Exits with a code and a text on stderr; `told` is `CODE TEXT`.
fn exit_with(told: &str) -> ! {
    let (code, text) = told.split_once(' ').unwrap_or((told, ""));
    eprintln!("{text}");
    exit(code.parse().unwrap_or(1))
}

fn write_half(result: &Value) -> ! {
    let line = result.to_string();
    print!("{}", &line[..line.len() / 2]);
    io::stdout().flush().unwrap();
    exit(0)
}

fn write_noise() {
    println!("npm warn deprecated\n[1, 2\n\n{{\"type\": \"resu");
    io::stdout().lock().write_all(b"\xff\xfe\0\n{\"type\":\"brand_new\",\"x\":[{}]}\n").unwrap();
}

fn flood_lines(count: f64) {
    let mut stdout = io::BufWriter::with_capacity(MEGABYTE, io::stdout().lock());
    let mut written = 0.0;
    while written < count {
        if writeln!(stdout, r#"{{"type":"brand_new","number":{written},"text":"flood"}}"#).is_err()
        {
            exit(0);
        }
        written += 1.0;
    }
}

fn flood_forever() -> ! {
    let line = format!("{}\n", json!({"type": "brand_new", "text": "x".repeat(64 * 1024)}));
    let mut stdout = io::stdout().lock();
    while stdout.write_all(line.as_bytes()).is_ok() {}
    exit(0)
}

fn write_flood(sink: &mut impl Write, directive: &Directive) {
    let line = format!("{}\n", "e".repeat(1023));
    for _ in 0..byte_count(directive) / 1024 {
        sink.write_all(line.as_bytes()).unwrap();
    }
}

fn long_line(directive: &Directive) {
    let mut stdout = io::stdout().lock();
    let piece = vec![b'x'; MEGABYTE];
    for _ in 0..byte_count(directive) / MEGABYTE {
        if stdout.write_all(&piece).is_err() {
            exit(0);
        }
    }
    stdout.write_all(b"\n").unwrap();
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests ask for a few megabytes"
)]
fn byte_count(directive: &Directive) -> usize {
    directive.number() as usize * MEGABYTE
}

/// Blocks the signals: unlike a handler, a blocked mask is inherited by children.
fn ignore_signals() {
    let mut ignored = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        ignored.add(signal);
    }
    ignored.thread_block().unwrap();
    write_frame(&json!({"type": "brand_new", "text": "signals are ignored"}));
}

/// Starts three processes that outlive this one: in another process session, orphaned, and a plain child.
/// All of them hold stdout open.
fn leave_grandchildren(file: &str) {
    const SCRIPT: &str = r#"
        setsid sh -c 'echo $$ >> "$1"; exec sleep 100000' x "$1" &
        sh -c 'sh -c "echo \$\$ >> \"\$1\"; exec sleep 100000" x "$1" & exit 0' x "$1"
        sleep 100000 & echo $! >> "$1""#;
    let pids = format!("{file}.partial");
    fs::write(&pids, "").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "sh", &pids]).stdin(Stdio::null());
    assert!(shell.status().unwrap().success());
    while fs::read_to_string(&pids).unwrap().lines().count() < 3 {
        thread::sleep(Duration::from_millis(2));
    }
    fs::rename(&pids, file).unwrap();
}
