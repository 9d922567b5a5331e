//! Cost of a supervisor: time to start and stop a process through it, and the memory it uses.
//!
//! `cargo bench --bench processes`; the figures are in `docs/processes.md`.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a measurement prints what it found"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use adjutant::process::{
    ProcessSpec, StopMode, SymlinkPolicy, set_supervisor_program, spawn_process,
};
use adjutant::util::RunId;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

const ROUNDS: u32 = 200;

#[tokio::main]
async fn main() {
    set_supervisor_program(env!("CARGO_BIN_EXE_adjutant"));
    let mut direct = Vec::new();
    let mut started = Vec::new();
    let mut whole = Vec::new();
    let before = child_cpu_time();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        Command::new("true").status().expect("`true` runs");
        direct.push(begin.elapsed());
        let begin = Instant::now();
        let mut process = spawn_process(process_spec("true", "")).await.expect("`true` starts");
        started.push(begin.elapsed());
        process.wait().await;
        whole.push(begin.elapsed());
    }
    let processor = child_cpu_time().saturating_sub(before);
    let (direct, started, whole) = (median(direct), median(started), median(whole));
    println!("`true`, started and collected directly        {direct:>9.2?}");
    println!("the same through a supervisor, until it runs      {started:>9.2?}");
    println!("the same through a supervisor, until all is over  {whole:>9.2?}");
    println!(
        "so a supervisor costs                             {:>9.2?}",
        whole.saturating_sub(direct)
    );
    println!("processor time of one round, both together    {:>9.2?}", processor / ROUNDS);
    memory().await;
}

fn child_cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system says");
    let of = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    of(usage.user_time()) + of(usage.system_time())
}

async fn memory() {
    let mut process = spawn_process(process_spec("sleep", "1000")).await.expect("`sleep` starts");
    let supervisor = process.supervisor().expect("it has a supervisor").pid;
    let rollup = fs::read_to_string(format!("/proc/{supervisor}/smaps_rollup")).expect("Linux");
    let kibibytes = |name: &str| -> u64 {
        let lines = rollup.lines().filter_map(|line| {
            line.strip_prefix(name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        lines.sum()
    };
    // Clean pages belong to the program file, which the server and all supervisors share.
    let own = kibibytes("Private_Dirty:") + kibibytes("Shared_Dirty:");
    println!("memory of a supervisor, shared pages counted      {:>6} KiB", kibibytes("Rss:"));
    println!("memory that only this supervisor uses         {own:>6} KiB");
    process.stop(StopMode::Kill).await;
}

fn process_spec(program: &str, argument: &str) -> ProcessSpec {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ProcessSpec {
        label: "measured".to_owned(),
        run: RunId::new(),
        program: program.into(),
        arguments: vec![argument.into()],
        environment: vec![("PATH".into(), path)],
        working_dir: Path::new("/").to_owned(),
        symlinks: SymlinkPolicy::Follow,
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
