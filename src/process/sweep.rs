//! Finding what a killed keeper left: processes that still carry the marker of their run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::tree::{self, Reach};
use crate::base::RunId;
use crate::config::env_vars;

const GIVE_UP: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(5);
/// An orphan's children are found only when it is dead, so one empty look proves nothing.
const EMPTY_LOOKS: u32 = 2;

/// Kills every process of a run, again and again until none is found. Blocks for milliseconds, seconds at most.
pub(super) fn end_run(run: RunId) {
    end_where(|_, marked| marked == run);
}

/// Kills every process whose pid and marker `is_over` accepts, and returns the runs that had any.
pub(super) fn end_where(is_over: impl Fn(i32, RunId) -> bool) -> Vec<RunId> {
    let give_up = Instant::now() + GIVE_UP;
    let mut found = Vec::new();
    let mut empty = 0;
    while empty < EMPTY_LOOKS && Instant::now() < give_up {
        let runs = kill_once(&is_over);
        empty = if runs.is_empty() { empty + 1 } else { 0 };
        found.extend(runs);
        thread::sleep(STEP);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn kill_once(is_over: &impl Fn(i32, RunId) -> bool) -> Vec<RunId> {
    let living = tree::every_process().filter(|process| !process.has_ended());
    living
        .filter_map(|process| {
            let run = marker(process.pid).filter(|run| is_over(process.pid, *run))?;
            process.signal(Signal::SIGKILL).then_some(run)
        })
        .collect()
}

/// The run a process was started for; `None` also where its environment may not be read.
pub(super) fn marker(pid: i32) -> Option<RunId> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        (name == env_vars::ADJUTANT_RUN).then(|| value.parse().ok())?
    })
}
