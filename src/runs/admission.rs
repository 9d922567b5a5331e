//! How many runs at once: in all, per agent, on this machine, and while there is memory.
//!
//! Those who must wait stand in line: the agents take turns, and within one agent the first comes first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::machine::MachineCap;
use super::memory;
use crate::base::{AgentName, FileLock};

/// Between two looks at things that nobody tells us about: slots of other processes, and memory.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Memory that is short for a moment is waited for, not longer.
const MEMORY_PATIENCE: Duration = Duration::from_secs(2);

/// How many at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Runs at once in this process.
    pub max_runs: u32,
    /// How many may wait; more are refused.
    pub max_waiting: u32,
    /// Runs at once of all Adjutant processes of this user on this machine, if there is a limit.
    pub machine: Option<MachineCap>,
    /// Bytes of memory that must be available for a new process; 0 for no such limit.
    pub memory_floor: u64,
}

/// Why a run was not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The line is full.
    #[error(
        "{running} runs are going on and {waiting} wait already: wait for one to end (`adjutant runs list`), or raise `max_runs` or `max_queue` in agents/defaults.yaml"
    )]
    LineFull {
        /// How many run.
        running: u32,
        /// How many wait.
        waiting: u32,
    },
    /// Too little memory.
    #[error(
        "only {available_mib} MiB of memory are available and a new run needs {floor_mib}: end something, or lower `min_free_memory_mb` in agents/defaults.yaml"
    )]
    LowMemory {
        /// What there is.
        available_mib: u64,
        /// What there must be.
        floor_mib: u64,
    },
}

/// How many run and wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Let in and not yet over.
    pub running: u32,
    /// In line.
    pub waiting: u32,
}

/// The door. Clones are the same door.
#[derive(Clone, Debug)]
pub struct Admission {
    door: Arc<Mutex<Door>>,
}

/// Leave to run one process; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _seat: Seat,
    _slot: Option<FileLock>,
}

impl Admission {
    /// A door with these limits.
    pub fn new(limits: AdmissionLimits) -> Self {
        let door = Door {
            limits,
            running: 0,
            waiting: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            tickets: 0,
        };
        Self { door: Arc::new(Mutex::new(door)) }
    }

    /// Changes the limits for whoever comes or waits; nobody who runs is sent away.
    pub fn set_limits(&self, limits: AdmissionLimits) {
        lock(&self.door).limits = limits;
        call_next(&self.door);
    }

    /// How many run and wait now.
    pub fn counts(&self) -> Counts {
        let door = lock(&self.door);
        Counts { running: door.running, waiting: door.waiting }
    }

    /// Waits until this agent may run once more. Dropping the future gives the place in line away.
    pub async fn admit(
        &self,
        agent: &AgentName,
        per_agent: Option<u32>,
    ) -> Result<Permit, Refused> {
        let seat = self.seat(agent, per_agent.unwrap_or(u32::MAX)).await?;
        let (floor, machine) = {
            let door = lock(&self.door);
            (door.limits.memory_floor, door.limits.machine.clone())
        };
        enough_memory(floor).await?;
        let slot = match machine {
            Some(cap) => free_slot(&cap).await,
            None => None,
        };
        Ok(Permit { _seat: seat, _slot: slot })
    }

    async fn seat(&self, agent: &AgentName, most: u32) -> Result<Seat, Refused> {
        let (called, place) = {
            let mut door = lock(&self.door);
            if door.may_enter_at_once(agent, most) {
                door.enter(agent);
                return Ok(Seat::new(&self.door, agent));
            }
            let (running, waiting) = (door.running, door.waiting);
            if waiting >= door.limits.max_waiting {
                return Err(Refused::LineFull { running, waiting });
            }
            door.stand_in_line(agent, most)
        };
        let _place = Place { door: &self.door, agent, ticket: place };
        // The other end is dropped only with the door itself, which we hold.
        called.await.map_err(|_| Refused::LineFull { running: 0, waiting: 0 })
    }
}

#[derive(Debug)]
struct Door {
    limits: AdmissionLimits,
    running: u32,
    waiting: u32,
    /// Only agents that run or wait.
    lines: HashMap<AgentName, Line>,
    /// Agents that wait, the next first.
    turns: VecDeque<AgentName>,
    tickets: u64,
}

#[derive(Debug, Default)]
struct Line {
    running: u32,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    most: u32,
    call: oneshot::Sender<Seat>,
}

impl Door {
    /// INVARIANT: whoever in line could enter has been called already, so passing them takes nothing from them.
    fn may_enter_at_once(&self, agent: &AgentName, most: u32) -> bool {
        let line = self.lines.get(agent);
        let first = line.is_none_or(|line| line.waiters.is_empty() && line.running < most);
        first && most > 0 && self.running < self.limits.max_runs
    }

    fn enter(&mut self, agent: &AgentName) {
        self.running += 1;
        self.lines.entry(agent.clone()).or_default().running += 1;
    }

    fn leave(&mut self, agent: &AgentName) {
        self.running = self.running.saturating_sub(1);
        if let Some(line) = self.lines.get_mut(agent) {
            line.running = line.running.saturating_sub(1);
        }
        self.forget_if_idle(agent);
    }

    fn stand_in_line(&mut self, agent: &AgentName, most: u32) -> (oneshot::Receiver<Seat>, u64) {
        let (call, called) = oneshot::channel();
        self.tickets += 1;
        let ticket = self.tickets;
        let line = self.lines.entry(agent.clone()).or_default();
        if line.waiters.is_empty() {
            self.turns.push_back(agent.clone());
        }
        line.waiters.push_back(Waiter { ticket, most, call });
        self.waiting += 1;
        (called, ticket)
    }

    /// The next who may enter: of the first agent in turn whose own limit permits it.
    fn next(&mut self) -> Option<(AgentName, Waiter)> {
        if self.running >= self.limits.max_runs {
            return None;
        }
        let may = |agent: &AgentName| {
            let line = self.lines.get(agent)?;
            Some(line.running < line.waiters.front()?.most)
        };
        let turn = self.turns.iter().position(|agent| may(agent) == Some(true))?;
        let agent = self.turns.remove(turn)?;
        let line = self.lines.get_mut(&agent)?;
        let waiter = line.waiters.pop_front()?;
        if !line.waiters.is_empty() {
            self.turns.push_back(agent.clone());
        }
        self.waiting = self.waiting.saturating_sub(1);
        Some((agent, waiter))
    }

    fn step_out_of_line(&mut self, agent: &AgentName, ticket: u64) {
        let Some(line) = self.lines.get_mut(agent) else { return };
        let before = line.waiters.len();
        line.waiters.retain(|waiter| waiter.ticket != ticket);
        let gone = before - line.waiters.len();
        self.waiting = self.waiting.saturating_sub(u32::try_from(gone).unwrap_or(0));
        if gone > 0 && line.waiters.is_empty() {
            self.turns.retain(|waiting| waiting != agent);
        }
        self.forget_if_idle(agent);
    }

    fn forget_if_idle(&mut self, agent: &AgentName) {
        if self.lines.get(agent).is_some_and(|line| line.running == 0 && line.waiters.is_empty()) {
            self.lines.remove(agent);
        }
    }
}

/// A place among those who run.
#[derive(Debug)]
struct Seat {
    door: Arc<Mutex<Door>>,
    agent: AgentName,
}

impl Seat {
    fn new(door: &Arc<Mutex<Door>>, agent: &AgentName) -> Self {
        Self { door: Arc::clone(door), agent: agent.clone() }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.door).leave(&self.agent);
        call_next(&self.door);
    }
}

/// A place in line, given away when dropped; after the call there is none left to give.
struct Place<'a> {
    door: &'a Arc<Mutex<Door>>,
    agent: &'a AgentName,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.door).step_out_of_line(self.agent, self.ticket);
    }
}

/// Calls everybody in line who may enter. A seat for somebody who has just left comes back by being dropped,
/// and that takes the lock: so it is not held here.
fn call_next(door: &Arc<Mutex<Door>>) {
    loop {
        let called = {
            let mut open = lock(door);
            let Some((agent, waiter)) = open.next() else { return };
            open.enter(&agent);
            (waiter.call, Seat::new(door, &agent))
        };
        let _ = called.0.send(called.1);
    }
}

async fn enough_memory(floor: u64) -> Result<(), Refused> {
    let started = Instant::now();
    while let Some(available) = memory::available().filter(|available| *available < floor) {
        if started.elapsed() >= MEMORY_PATIENCE {
            return Err(Refused::LowMemory {
                available_mib: available >> 20,
                floor_mib: floor >> 20,
            });
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// A slot among all processes of this user. A folder that cannot be used costs the limit, never the run.
async fn free_slot(cap: &MachineCap) -> Option<FileLock> {
    loop {
        match cap.try_slot() {
            Ok(Some(slot)) => return Some(slot),
            Ok(None) => sleep(LOOK_AGAIN).await,
            Err(error) => {
                let folder = cap.folder().display();
                tracing::warn!(%folder, %error, "the limit of runs on this machine is not kept");
                return None;
            }
        }
    }
}

fn lock(door: &Mutex<Door>) -> MutexGuard<'_, Door> {
    door.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
