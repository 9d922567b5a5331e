//! The turn of a run in a started process: sends the prompt, waits for the result or for a limit, repeats for
//! follow-ups.

use std::io;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::judge::{OutputContract, api_failure};
use super::launch::PreparedLaunch;
use super::limits::{LimitHit, RunLimits};
use super::processes::{AgentProcess, RunObservations};
use super::usage_meter::UsageMeter;
use crate::claude::{ClaudeHandle, OpenError, ResultFrame, TurnEnd, TurnProgress, TurnResult};
use crate::process::{ProcessEnd, SpawnError};
use crate::util::{one_line, shorten};

/// Time for an interrupted turn to send its result, which has the cost.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(600);

/// Outcome of the last turn of a run.
pub(crate) struct TurnOutcome {
    pub(crate) end: RunEnd,
    pub(crate) progress: TurnProgress,
    /// Last output on stderr; empty while the process is running.
    pub(crate) stderr: String,
    /// The process, still running after a result. The caller must stop it or put it into the pool.
    pub(crate) process: Option<AgentProcess>,
    pub(crate) seen: RunObservations,
}

impl TurnOutcome {
    /// Outcome of a run whose process did not become ready.
    pub(crate) fn not_started(end: RunEnd, stderr: String) -> Self {
        let (progress, seen) = (TurnProgress::default(), RunObservations::default());
        Self { end, progress, stderr, process: None, seen }
    }

    /// Returns `true` if the turn ended with a successful result, even if the answer does not fit the
    /// schema.
    pub(crate) fn is_completed(&self) -> bool {
        matches!(&self.end, RunEnd::Result(result) if result.is_success())
    }
}

pub(crate) enum RunEnd {
    NotStarted(SpawnError),
    /// The description of the sandbox could not be written.
    NotSandboxed(io::Error),
    /// The process started but did not become ready.
    NotReady(OpenError, ProcessEnd),
    /// The turn ended with a result, which may report an error.
    Result(Box<ResultFrame>),
    /// The turn ended without a result: end of stream, read error or wrong session.
    NoResult(TurnResult, ProcessEnd),
    /// A limit was exceeded, and the interrupted turn still sent its result: the session can be resumed.
    Interrupted(LimitHit),
    /// A limit was exceeded, and the process was stopped without a result.
    Stopped(LimitHit),
}

impl RunEnd {
    /// Returns the `reason` of the `SessionEnd` event.
    pub(crate) fn session_end_reason(&self) -> &'static str {
        match self {
            Self::NotStarted(_) | Self::NotSandboxed(_) | Self::NotReady(..) => "not_started",
            Self::Result(_) => "other",
            Self::NoResult(..) => "process_ended",
            Self::Interrupted(stop) | Self::Stopped(stop) => match stop {
                LimitHit::Deadline => "timeout",
                LimitHit::IdleTimeout => "idle_timeout",
                LimitHit::Cancelled => "cancelled",
                LimitHit::ControlFileReplaced(_) => "control_file_replaced",
                LimitHit::UsageLimit(_) => "limit",
            },
        }
    }
}

/// Sends the message of the run and follow-ups to its results, until one needs none or a limit is exceeded.
///
/// After a result the process is still running, in [`TurnOutcome::process`]; after any other end it has exited.
pub(crate) async fn run_turn(launch: &PreparedLaunch<'_>, process: AgentProcess) -> TurnOutcome {
    let (run, limits) = (launch.run, &launch.limits);
    let began = Instant::now();
    let control = process.control.clone();
    let task = launch.task(&control).await;
    let message = run.request.message(task, &run.caller.name, run.id);
    let mut follow_ups = FollowUps::new(&message, &launch.output_contract, &limits.meter);
    let mut outcome = exchange(process, &message, limits, &mut follow_ups).await;
    outcome.seen = control.observations();
    let mut draft = run.draft();
    if let Some(said) = follow_ups.retried_error {
        let said = shorten(&one_line(&said), 200);
        draft.notes.push(format!("The API failed once ({said}), and was asked again."));
    }
    if !outcome.is_completed() {
        draft.notes.extend(limits.meter.last_api_error());
    }
    outcome.seen.clock.add_phases(began, &mut draft.timing);
    draft.add_process(&launch.registered.recorder, &outcome);
    outcome
}

/// Runs turns until a result needs no follow-up, or until a limit is exceeded.
async fn exchange(
    mut process: AgentProcess,
    message: &str,
    limits: &RunLimits,
    follow_ups: &mut FollowUps<'_>,
) -> TurnOutcome {
    let mut message = message.to_owned();
    let mut before = TurnProgress::default();
    loop {
        process.control.prompt_sent(&message);
        let (ended, progress) = run_single_turn(&mut process, &message, limits).await;
        let cost_usd = progress.cost_usd;
        let progress = add_usage(&before, progress);
        let seen = RunObservations::default();
        let end = match ended {
            Ok(TurnResult::Result(result)) => {
                process.control.turn_stopped(&result);
                if let Some(next) = follow_ups.follow_up(&result) {
                    (message, before) = (next, progress);
                    continue;
                }
                let (end, stderr) = (RunEnd::Result(result), String::new());
                return TurnOutcome { end, progress, stderr, process: Some(process), seen };
            }
            Ok(ending) => {
                limits.meter.turn_finished(cost_usd);
                let end = process.stop_after(&ending).await;
                RunEnd::NoResult(ending, end)
            }
            Err(stopped) => {
                process.stop().await;
                stopped
            }
        };
        let stderr = process.process.stderr_tail();
        return TurnOutcome { end, progress, stderr, process: None, seen };
    }
}

/// Runs one turn until its result or until a limit is exceeded.
async fn run_single_turn(
    open: &mut AgentProcess,
    message: &str,
    limits: &RunLimits,
) -> (Result<TurnResult, RunEnd>, TurnProgress) {
    let handle = open.client.handle();
    let turn = open.client.turn(message);
    tokio::pin!(turn);
    tokio::select! {
        TurnEnd { result, progress } = &mut turn => match limits.meter.over() {
            // A tool was denied because of the limit; such a turn ends like an answered one.
            Some(failure) => (Err(RunEnd::Interrupted(LimitHit::UsageLimit(failure))), progress),
            None => (Ok(result), progress),
        },
        path = open.control.control_file_replaced() => {
            // Without the grace period of an interrupt: the path is writable until the process has ended.
            (Err(RunEnd::Stopped(LimitHit::ControlFileReplaced(path))), handle.progress())
        }
        stop = limits.exceeded(open.control.activity()) => {
            let end = interrupt(&handle, turn, stop).await;
            (Err(end), handle.progress())
        }
    }
}

/// Adds the usage of an earlier turn of the same run; the text of the later turn counts.
fn add_usage(before: &TurnProgress, mut now: TurnProgress) -> TurnProgress {
    now.cost_usd += before.cost_usd;
    now.turns += before.turns;
    now.usage += before.usage;
    now
}

/// Interrupts the turn and waits up to 600 ms for its result.
async fn interrupt(
    handle: &ClaudeHandle,
    turn: impl Future<Output = TurnEnd>,
    stop: LimitHit,
) -> RunEnd {
    handle.interrupt();
    match timeout(INTERRUPT_TIMEOUT, turn).await {
        Ok(TurnEnd { result: TurnResult::Result(_), .. }) => RunEnd::Interrupted(stop),
        Ok(_) | Err(_) => RunEnd::Stopped(stop),
    }
}

/// Follow-ups of one run in one session.
struct FollowUps<'a> {
    message: &'a str,
    meter: &'a UsageMeter,
    contract: &'a OutputContract,
    /// Feedbacks on invalid answers that may still be given.
    retries: u32,
    /// Text of the API error that was retried.
    retried_error: Option<String>,
}

impl<'a> FollowUps<'a> {
    fn new(message: &'a str, contract: &'a OutputContract, meter: &'a UsageMeter) -> Self {
        Self { message, meter, contract, retries: contract.retries, retried_error: None }
    }

    /// Returns the follow-up to a result, if any.
    fn follow_up(&mut self, result: &ResultFrame) -> Option<String> {
        if !result.is_success() {
            return self.retry_after_api_error(result);
        }
        let feedback = self.contract.feedback(result)?;
        self.retries = self.retries.checked_sub(1)?;
        Some(feedback)
    }

    /// Repeats the message once after a transient API error.
    ///
    /// Not after a tool call: the tool could run twice.
    fn retry_after_api_error(&mut self, result: &ResultFrame) -> Option<String> {
        if self.meter.tool_was_used()
            || self.retried_error.is_some()
            || !api_failure(result).is_transient()
        {
            return None;
        }
        self.retried_error = Some(result.result.clone().unwrap_or_default());
        Some(self.message.to_owned())
    }
}
