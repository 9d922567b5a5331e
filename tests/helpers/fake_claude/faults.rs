//! What a `claude` should not do.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio, exit};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};
use serde_json::{Value, json};

use crate::script::Directive;
use crate::write;

const MEGABYTE: usize = 1 << 20;

/// Does what has to be done before anything is read; returns what is for the turns.
pub fn at_start(directives: Vec<Directive>, arguments: &[String]) -> Vec<Directive> {
    directives.into_iter().filter(|directive| !done_at_start(directive, arguments)).collect()
}

fn done_at_start(directive: &Directive, arguments: &[String]) -> bool {
    match directive.name.as_str() {
        "hang-at-start" => hang(),
        "slow-start" => sleep(directive),
        "exit-at-start" => end(&directive.rest),
        "refuse-flag" => refuse_flag(&directive.rest, arguments),
        "noise" => noise(),
        "ignore-signals" => ignore_signals(),
        "leave-grandchild" => leave_grandchildren(&directive.rest),
        _ => return false,
    }
    true
}

fn refuse_flag(refused: &str, arguments: &[String]) {
    if arguments.iter().any(|argument| argument.split('=').next() == Some(refused)) {
        end(&format!("1 error: unknown option '{refused}'"));
    }
}

/// What breaks a turn, or strains its reader.
pub fn in_turn(directive: &Directive, result: &mut Value) {
    match directive.name.as_str() {
        "sleep" => sleep(directive),
        "hang-mid-turn" => hang(),
        "torn-line" => torn(result),
        "no-result" => exit(0),
        "exit" => end(&directive.rest),
        "crash" => raise(Signal::SIGKILL).unwrap(),
        "noise" => noise(),
        "flood-lines" => flood_lines(directive.number()),
        "flood-forever" => flood_forever(),
        "flood-stderr" => flood(&mut io::stderr().lock(), directive),
        "long-line" => long_line(directive),
        "long-result" => result["result"] = "x".repeat(bytes(directive)).into(),
        "ignore-signals" => ignore_signals(),
        "leave-grandchild" => leave_grandchildren(&directive.rest),
        other => panic!("the fake claude does not know `{other}`"),
    }
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}

fn sleep(directive: &Directive) {
    thread::sleep(Duration::from_secs_f64(directive.number()));
}

/// `CODE TEXT`.
fn end(told: &str) -> ! {
    let (code, text) = told.split_once(' ').unwrap_or((told, ""));
    eprintln!("{text}");
    exit(code.parse().unwrap_or(1))
}

fn torn(result: &Value) -> ! {
    let line = result.to_string();
    print!("{}", &line[..line.len() / 2]);
    io::stdout().flush().unwrap();
    exit(0)
}

fn noise() {
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

fn flood(sink: &mut impl Write, directive: &Directive) {
    let line = format!("{}\n", "e".repeat(1023));
    for _ in 0..bytes(directive) / 1024 {
        sink.write_all(line.as_bytes()).unwrap();
    }
}

fn long_line(directive: &Directive) {
    let mut stdout = io::stdout().lock();
    let piece = vec![b'x'; MEGABYTE];
    for _ in 0..bytes(directive) / MEGABYTE {
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
fn bytes(directive: &Directive) -> usize {
    directive.number() as usize * MEGABYTE
}

/// Blocked signals stay blocked in children, and need no handler.
fn ignore_signals() {
    let mut ignored = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        ignored.add(signal);
    }
    ignored.thread_block().unwrap();
    write(&json!({"type": "brand_new", "text": "signals are ignored"}));
}

/// One in a session of its own, one whose parent is gone, one beside us; all hold our output open.
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
