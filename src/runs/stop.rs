//! Ending a run from another terminal, and ending what is left of a dead server's runs.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::board::{RunBoard, RunCard};
use super::stamp::ProcessStamp;
use super::tree::{Reach, Stat};

/// How long a server has to end its run itself, with an interrupt and a report, before its keeper is told.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a keeper has after each signal.
const KEEPER_PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// How an attempt to stop a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It is over.
    Over,
    /// It was asked twice and is still there.
    StillThere,
}

/// Asks a run's server to stop it, and its keeper if the server does not. Blocks until the run is over.
pub fn stop_run(board: &RunBoard, card: &RunCard) -> std::io::Result<Stopped> {
    board.request_stop(card.run)?;
    let is_over = || !board.has(card.run) || !card.is_alive();
    if wait_for(SERVER_PATIENCE, is_over) {
        return Ok(Stopped::Over);
    }
    // The keeper in the card now: the run may have waited for its turn when it was first read.
    let keeper =
        board.list().into_iter().find(|now| now.run == card.run).and_then(|now| now.keeper);
    Ok(if keeper.is_some_and(|keeper| end_keeper(&keeper)) {
        Stopped::Over
    } else {
        Stopped::StillThere
    })
}

/// Tells a keeper to end its tree, a second time without grace; says whether it is gone.
pub(super) fn end_keeper(keeper: &ProcessStamp) -> bool {
    for _ in 0..2 {
        if !signal(keeper, Signal::SIGTERM) || wait_for(KEEPER_PATIENCE, || !keeper.is_alive()) {
            return true;
        }
    }
    false
}

/// Signals exactly this process; `false` if it is gone.
fn signal(stamp: &ProcessStamp, signal: Signal) -> bool {
    let stat = i32::try_from(stamp.pid).ok().and_then(Stat::read);
    // INVARIANT: the stamp is compared after the look at the process, and the signal once more with that look.
    stat.is_some_and(|stat| stamp.is_alive() && stat.signal(signal))
}

fn wait_for(patience: Duration, is_true: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !is_true() {
        if started.elapsed() >= patience {
            return false;
        }
        thread::sleep(LOOK);
    }
    true
}
