//! Admission control: limits on concurrent runs in this process, per agent and per machine, and a memory floor.
//!
//! Waiting runs are served round robin between agents and first in, first out within an agent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::machine_limit::MachineLimit;
use crate::process::memory;
use crate::store::FileLock;
use crate::util::{AgentName, Mutex};

/// Poll interval for conditions without notification: slots of other processes, and available memory.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Wait for memory before a run is rejected with [`AdmissionError::LowMemory`].
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);

/// Limits for concurrent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionLimits {
    /// Concurrent runs in this process.
    pub max_runs: u32,
    /// Waiting runs in this process; further ones are rejected.
    pub max_waiting: u32,
    /// Limit for all Adjutant processes of this user on this machine, if any.
    pub machine: Option<MachineLimit>,
    /// Bytes of memory that must be available to start a process; 0 disables the check.
    pub memory_floor: u64,
}

/// Reasons why a run was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// The queue is full.
    #[error("{running} runs are going on and {waiting} wait already")]
    QueueFull { running: u32, waiting: u32 },
    /// Less memory than the floor was available for 2 s.
    #[error("only {available_mib} MiB of memory are available and a new run needs {floor_mib}")]
    LowMemory { available_mib: u64, floor_mib: u64 },
}

impl AdmissionError {
    /// Returns advice for the user.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::QueueFull { .. } => {
                "wait for one to end (`adjutant runs list`), or raise `max_runs` or `max_queue` in agents/defaults.yaml"
            }
            Self::LowMemory { .. } => {
                "end something, or lower `min_free_memory_mb` in agents/defaults.yaml"
            }
        }
    }
}

/// Numbers of running and waiting runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// Admitted and not finished.
    pub running: u32,
    pub waiting: u32,
}

/// Admission control of one process. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    state: Arc<Mutex<AdmissionState>>,
}

/// Permission to run one process; released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _running: RunningSlot,
    _machine_slot: Option<FileLock>,
}

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits) -> Self {
        let locked = AdmissionState {
            limits,
            running: 0,
            waiting: 0,
            queues: HashMap::new(),
            rotation: VecDeque::new(),
            last_ticket: 0,
        };
        Self { state: Arc::new(Mutex::new(locked)) }
    }

    /// Replaces the limits for waiting and future runs. Running ones are not stopped.
    pub(crate) fn set_limits(&self, limits: AdmissionLimits) {
        self.state.lock().limits = limits;
        start_waiting(&self.state);
    }

    pub(crate) fn counts(&self) -> AdmissionCounts {
        let locked = self.state.lock();
        AdmissionCounts { running: locked.running, waiting: locked.waiting }
    }

    /// Waits without limit until the agent may start a run.
    ///
    /// Fails immediately if the queue is full, and after 2 s if memory is low. Cancel-safe: dropping the future gives
    /// up the position in the queue.
    pub(crate) async fn admit(
        &self,
        agent: &AgentName,
        per_agent: Option<u32>,
    ) -> Result<Permit, AdmissionError> {
        let running_slot = self.wait_for_slot(agent, per_agent.unwrap_or(u32::MAX)).await?;
        let (floor, machine) = {
            let locked = self.state.lock();
            (locked.limits.memory_floor, locked.limits.machine.clone())
        };
        wait_for_memory(floor).await?;
        let slot = match machine {
            Some(cap) => wait_for_machine_slot(&cap).await,
            None => None,
        };
        Ok(Permit { _running: running_slot, _machine_slot: slot })
    }

    async fn wait_for_slot(
        &self,
        agent: &AgentName,
        max_running: u32,
    ) -> Result<RunningSlot, AdmissionError> {
        let (called, place) = {
            let mut locked = self.state.lock();
            if locked.can_start_now(agent, max_running) {
                locked.add_running(agent);
                return Ok(RunningSlot::new(&self.state, agent));
            }
            let (running, waiting) = (locked.running, locked.waiting);
            if waiting >= locked.limits.max_waiting {
                return Err(AdmissionError::QueueFull { running, waiting });
            }
            locked.enqueue(agent, max_running)
        };
        let _place = QueuePosition { state: &self.state, agent, ticket: place };
        // The sender is dropped only with the state, which `self` holds.
        called.await.map_err(|_| AdmissionError::QueueFull { running: 0, waiting: 0 })
    }
}

#[derive(Debug)]
struct AdmissionState {
    limits: AdmissionLimits,
    running: u32,
    waiting: u32,
    /// Agents with running or waiting runs.
    queues: HashMap<AgentName, AgentQueue>,
    /// Agents with waiting runs, the next first.
    rotation: VecDeque<AgentName>,
    last_ticket: u64,
}

#[derive(Debug, Default)]
struct AgentQueue {
    running: u32,
    waiting: VecDeque<WaitingRun>,
}

#[derive(Debug)]
struct WaitingRun {
    ticket: u64,
    max_running: u32,
    start: oneshot::Sender<RunningSlot>,
}

impl AdmissionState {
    /// INVARIANT: waiting runs that could start have been started already, so a new run that starts at once overtakes
    /// nobody.
    fn can_start_now(&self, agent: &AgentName, most: u32) -> bool {
        let line = self.queues.get(agent);
        let first = line.is_none_or(|line| line.waiting.is_empty() && line.running < most);
        first && most > 0 && self.running < self.limits.max_runs
    }

    fn add_running(&mut self, agent: &AgentName) {
        self.running += 1;
        self.queues.entry(agent.clone()).or_default().running += 1;
    }

    fn remove_running(&mut self, agent: &AgentName) {
        self.running = self.running.saturating_sub(1);
        if let Some(line) = self.queues.get_mut(agent) {
            line.running = line.running.saturating_sub(1);
        }
        self.remove_if_idle(agent);
    }

    fn enqueue(
        &mut self,
        agent: &AgentName,
        max_running: u32,
    ) -> (oneshot::Receiver<RunningSlot>, u64) {
        let (call, called) = oneshot::channel();
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let line = self.queues.entry(agent.clone()).or_default();
        if line.waiting.is_empty() {
            self.rotation.push_back(agent.clone());
        }
        line.waiting.push_back(WaitingRun { ticket, max_running, start: call });
        self.waiting += 1;
        (called, ticket)
    }

    /// Removes the next waiting run: of the first agent in the rotation whose own limit permits a start.
    fn dequeue(&mut self) -> Option<(AgentName, WaitingRun)> {
        if self.running >= self.limits.max_runs {
            return None;
        }
        let may = |agent: &AgentName| {
            let line = self.queues.get(agent)?;
            Some(line.running < line.waiting.front()?.max_running)
        };
        let turn = self.rotation.iter().position(|agent| may(agent) == Some(true))?;
        let agent = self.rotation.remove(turn)?;
        let line = self.queues.get_mut(&agent)?;
        let waiter = line.waiting.pop_front()?;
        if !line.waiting.is_empty() {
            self.rotation.push_back(agent.clone());
        }
        self.waiting = self.waiting.saturating_sub(1);
        Some((agent, waiter))
    }

    fn cancel_waiting(&mut self, agent: &AgentName, ticket: u64) {
        let Some(line) = self.queues.get_mut(agent) else { return };
        let before = line.waiting.len();
        line.waiting.retain(|waiter| waiter.ticket != ticket);
        let gone = before - line.waiting.len();
        self.waiting = self.waiting.saturating_sub(u32::try_from(gone).unwrap_or(0));
        if gone > 0 && line.waiting.is_empty() {
            self.rotation.retain(|waiting| waiting != agent);
        }
        self.remove_if_idle(agent);
    }

    fn remove_if_idle(&mut self, agent: &AgentName) {
        if self.queues.get(agent).is_some_and(|line| line.running == 0 && line.waiting.is_empty()) {
            self.queues.remove(agent);
        }
    }
}

/// One running run in the counts; subtracted when dropped.
#[derive(Debug)]
struct RunningSlot {
    state: Arc<Mutex<AdmissionState>>,
    agent: AgentName,
}

impl RunningSlot {
    fn new(locked: &Arc<Mutex<AdmissionState>>, agent: &AgentName) -> Self {
        Self { state: Arc::clone(locked), agent: agent.clone() }
    }
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        self.state.lock().remove_running(&self.agent);
        start_waiting(&self.state);
    }
}

/// Position in the queue, given up when dropped. Without effect once the run was started.
struct QueuePosition<'a> {
    state: &'a Arc<Mutex<AdmissionState>>,
    agent: &'a AgentName,
    ticket: u64,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.state.lock().cancel_waiting(self.agent, self.ticket);
    }
}

/// Starts all waiting runs that the limits permit.
///
/// The lock is not held while the slot is sent: if the receiver is gone, the slot is dropped, which takes the lock.
fn start_waiting(locked: &Arc<Mutex<AdmissionState>>) {
    loop {
        let called = {
            let mut open = locked.lock();
            let Some((agent, waiter)) = open.dequeue() else { return };
            open.add_running(&agent);
            (waiter.start, RunningSlot::new(locked, &agent))
        };
        let _ = called.0.send(called.1);
    }
}

async fn wait_for_memory(floor: u64) -> Result<(), AdmissionError> {
    let started = Instant::now();
    while let Some(available) = memory::available_bytes().filter(|available| *available < floor) {
        if started.elapsed() >= MEMORY_TIMEOUT {
            return Err(AdmissionError::LowMemory {
                available_mib: available >> 20,
                floor_mib: floor >> 20,
            });
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits for a slot of the machine-wide limit. If its directory cannot be used, logs a warning and continues without.
async fn wait_for_machine_slot(cap: &MachineLimit) -> Option<FileLock> {
    loop {
        match cap.try_acquire() {
            Ok(Some(slot)) => return Some(slot),
            Ok(None) => sleep(POLL_INTERVAL).await,
            Err(error) => {
                let folder = cap.folder().display();
                tracing::warn!(%folder, %error, "the limit of runs on this machine is not kept");
                return None;
            }
        }
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
