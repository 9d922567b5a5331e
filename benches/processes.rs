//! What a keeper costs: time to start and end a process through it, and the memory it holds.
//!
//! `cargo bench --bench processes`; the figures stand in `docs/processes.md`.

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

use adjutant::base::RunId;
use adjutant::worker::{Launch, Links, Urgency, start, use_keeper_program};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

const ROUNDS: u32 = 200;

#[tokio::main]
async fn main() {
    use_keeper_program(env!("CARGO_BIN_EXE_adjutant"));
    let mut direct = Vec::new();
    let mut started = Vec::new();
    let mut whole = Vec::new();
    let before = processor_time_of_children();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        Command::new("true").status().expect("`true` runs");
        direct.push(begin.elapsed());
        let begin = Instant::now();
        let mut process = start(launch("true", "")).await.expect("`true` starts");
        started.push(begin.elapsed());
        process.wait().await;
        whole.push(begin.elapsed());
    }
    let processor = processor_time_of_children().saturating_sub(before);
    let (direct, started, whole) = (median(direct), median(started), median(whole));
    println!("`true`, started and collected directly        {direct:>9.2?}");
    println!("the same through a keeper, until it runs      {started:>9.2?}");
    println!("the same through a keeper, until all is over  {whole:>9.2?}");
    println!(
        "so a keeper costs                             {:>9.2?}",
        whole.saturating_sub(direct)
    );
    println!("processor time of one round, both together    {:>9.2?}", processor / ROUNDS);
    memory().await;
}

fn processor_time_of_children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system says");
    let of = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    of(usage.user_time()) + of(usage.system_time())
}

async fn memory() {
    let mut process = start(launch("sleep", "1000")).await.expect("`sleep` starts");
    let keeper = process.keeper().expect("it has a keeper").pid;
    let rollup = fs::read_to_string(format!("/proc/{keeper}/smaps_rollup")).expect("Linux");
    let kibibytes = |name: &str| -> u64 {
        let lines = rollup.lines().filter_map(|line| {
            line.strip_prefix(name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        lines.sum()
    };
    // Clean pages are the program's file, which the server and all keepers share.
    let own = kibibytes("Private_Dirty:") + kibibytes("Shared_Dirty:");
    println!("memory of a keeper, shared pages counted      {:>6} KiB", kibibytes("Rss:"));
    println!("memory that only this keeper uses             {own:>6} KiB");
    process.end(Urgency::Now).await;
}

fn launch(program: &str, argument: &str) -> Launch {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Launch {
        label: "measured".to_owned(),
        run: RunId::new(),
        program: program.into(),
        arguments: vec![argument.into()],
        environment: vec![("PATH".into(), path)],
        folder: Path::new("/").to_owned(),
        links: Links::Follow,
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
