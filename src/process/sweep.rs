//! Kills processes that a killed supervisor left, found by the run id in their environment.

use std::collections::HashSet;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::Signal;

use super::proc_stat::ProcessStat;
use super::tree;
use crate::config::env_vars;
use crate::util::RunId;

const SWEEP_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Empty scans required: children of an orphan become visible only after the orphan is dead.
const REQUIRED_EMPTY_SCANS: u32 = 2;

/// A living process with a run id in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkedProcess {
    pub(crate) stat: ProcessStat,
    pub(crate) run: RunId,
}

/// Kills every process of one run, at most for 3 s.
pub(crate) fn kill_run(run: RunId) {
    kill_runs(&HashSet::from([run]));
}

/// Kills every process of these runs, repeatedly until none is found. Blocks for milliseconds, at most 3 s.
pub(crate) fn kill_runs(runs: &HashSet<RunId>) {
    kill_where(|mut marked| {
        marked.retain(|process| runs.contains(&process.run));
        marked
    });
}

/// Kills the marked processes that `select` returns, repeatedly, and returns their runs.
pub(crate) fn kill_where(select: impl Fn(Vec<MarkedProcess>) -> Vec<MarkedProcess>) -> Vec<RunId> {
    let give_up = Instant::now() + SWEEP_TIMEOUT;
    let mut found = Vec::new();
    let mut empty = 0;
    while empty < REQUIRED_EMPTY_SCANS && Instant::now() < give_up {
        let runs = kill_once(&select);
        empty = if runs.is_empty() { empty + 1 } else { 0 };
        found.extend(runs);
        thread::sleep(POLL_INTERVAL);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn kill_once(select: &impl Fn(Vec<MarkedProcess>) -> Vec<MarkedProcess>) -> Vec<RunId> {
    let living = tree::all_processes().filter(|process| !process.is_dead());
    let marked =
        living.filter_map(|stat| Some(MarkedProcess { stat, run: run_of(stat.pid)? })).collect();
    let mut selected = select(marked);
    selected.retain(|process| process.stat.signal(Signal::SIGKILL));
    selected.into_iter().map(|process| process.run).collect()
}

/// Returns the run id in the environment of a process; `None` if there is none or the environment is not readable.
pub(crate) fn run_of(pid: i32) -> Option<RunId> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        (name == env_vars::ADJUTANT_RUN).then(|| value.parse().ok())?
    })
}
