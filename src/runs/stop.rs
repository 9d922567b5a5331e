//! Stops a run from another process, and supervisors of a dead server.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::run_registry::{RunEntry, RunRegistry};
use crate::process::{ProcessIdentity, ProcessStat};

/// Time for the server to stop the run with an interrupt and a report, before its supervisor is signalled.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the supervisor after each signal.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Result of [`stop_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopOutcome {
    /// The run has ended.
    Ended,
    /// The run survived two signals to its supervisor.
    Survived,
}

/// Requests the stop from the run's server, then from its supervisor. Blocks until the run has ended, at most 9 s.
pub(crate) fn stop_run(registry: &RunRegistry, entry: &RunEntry) -> std::io::Result<StopOutcome> {
    registry.request_stop(entry.run)?;
    let is_over = || !registry.contains(entry.run) || !entry.is_alive();
    if wait_until(SERVER_TIMEOUT, is_over) {
        return Ok(StopOutcome::Ended);
    }
    // Read the entry again: the run may have been queued, without a supervisor, when `entry` was read.
    let supervisor = registry
        .list()?
        .into_iter()
        .find(|now| now.run == entry.run)
        .and_then(|now| now.supervisor);
    Ok(if supervisor.is_some_and(|supervisor| stop_supervisor(&supervisor)) {
        StopOutcome::Ended
    } else {
        StopOutcome::Survived
    })
}

/// Sends SIGTERM to a supervisor, twice if needed (the second skips the grace period). Returns true if it has exited.
pub(crate) fn stop_supervisor(supervisor: &ProcessIdentity) -> bool {
    for _ in 0..2 {
        if !signal(supervisor, Signal::SIGTERM)
            || wait_until(SUPERVISOR_TIMEOUT, || !supervisor.is_alive())
        {
            return true;
        }
    }
    false
}

/// Sends a signal to exactly this process; returns false if the process is gone.
fn signal(stamp: &ProcessIdentity, signal: Signal) -> bool {
    let stat = i32::try_from(stamp.pid).ok().and_then(ProcessStat::read);
    // INVARIANT: the identity is compared after `ProcessStat::read`, and `signal` compares the start time again.
    stat.is_some_and(|stat| stamp.is_alive() && stat.signal(signal))
}

fn wait_until(timeout: Duration, is_true: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !is_true() {
        if started.elapsed() >= timeout {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
    true
}
