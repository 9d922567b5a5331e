//! The turn of a run in a started process: sends the prompt, waits for the result or for a limit, repeats for
//! follow-ups.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::deliver::ReportDraft;
use super::judge::{OutputContract, api_failure, turn_was_completed};
use super::launch::PreparedLaunch;
use super::limits::{LimitHit, RunLimits};
use super::pipeline::Run;
use super::processes::{AgentProcess, RunObservations, StartError};
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

impl From<Box<StartError>> for TurnOutcome {
    fn from(not_open: Box<StartError>) -> Self {
        let StartError { end: ended, stderr } = *not_open;
        Self {
            end: ended,
            progress: TurnProgress::default(),
            stderr,
            process: None,
            seen: RunObservations::default(),
        }
    }
}

pub(crate) enum RunEnd {
    NotStarted(SpawnError),
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
            Self::NotStarted(_) | Self::NotReady(..) => "not_started",
            Self::Result(_) => "other",
            Self::NoResult(..) => "process_ended",
            Self::Interrupted(stop) | Self::Stopped(stop) => match stop {
                LimitHit::Deadline => "timeout",
                LimitHit::IdleTimeout => "idle_timeout",
                LimitHit::Cancelled => "cancelled",
                LimitHit::UsageLimit(_) => "limit",
            },
        }
    }
}

/// Response of a turn to an interrupt.
#[derive(Clone, Copy)]
enum InterruptResult {
    Received,
    Missing,
}

impl InterruptResult {
    fn run_end(self, stop: LimitHit) -> RunEnd {
        match self {
            Self::Received => RunEnd::Interrupted(stop),
            Self::Missing => RunEnd::Stopped(stop),
        }
    }
}

/// Sends the message of the run and follow-ups to its results, until one needs none or a limit is exceeded.
///
/// After a result the process is still running, in [`TurnOutcome::process`]; after any other end it has exited.
pub(crate) async fn run_turn(
    run: &Run,
    launch: &PreparedLaunch<'_>,
    process: AgentProcess,
    draft: &mut ReportDraft,
) -> TurnOutcome {
    let began = std::time::Instant::now();
    let control = Arc::clone(&process.control);
    let task = launch.task(run, &control, draft).await;
    let message = run.request.message(task, &run.caller.name, run.id);
    let mut follow_ups = FollowUps::new(&message, &launch.output_contract, &launch.limits.meter);
    let (end, progress, process) =
        exchange(process, &message, &launch.limits, &mut follow_ups).await;
    if let Some(said) = follow_ups.retried_error {
        let said = shorten(&one_line(&said), 200);
        draft.notes.push(format!("The API failed once ({said}), and was asked again."));
    }
    let (process, stderr) = match process {
        Ok(process) => (Some(process), String::new()),
        Err(stderr) => (None, stderr),
    };
    let outcome = TurnOutcome { end, progress, stderr, process, seen: control.observations() };
    if !turn_was_completed(&outcome) {
        draft.notes.extend(launch.limits.meter.last_api_error());
    }
    outcome.seen.clock.add_phases(began, &mut draft.timing);
    draft.add_process(&launch.registered.recorder, &outcome);
    outcome
}

/// Process after its last turn: still running, or the end of its stderr.
type ProcessAfterTurn = Result<AgentProcess, String>;

/// Runs turns until a result needs no follow-up, or until a limit is exceeded.
async fn exchange(
    mut process: AgentProcess,
    message: &str,
    limits: &RunLimits,
    follow_ups: &mut FollowUps<'_>,
) -> (RunEnd, TurnProgress, ProcessAfterTurn) {
    let mut message = message.to_owned();
    let mut before = TurnProgress::default();
    loop {
        process.control.prompt_sent(&message);
        let (ended, progress) = run_single_turn(&mut process, &message, limits).await;
        let cost_usd = progress.cost_usd;
        let progress = add_usage(&before, progress);
        let result = match ended {
            Ok(TurnResult::Result(result)) => result,
            Ok(ending) => {
                limits.meter.turn_aborted(cost_usd);
                let end = process.stop_after(&ending).await;
                return (
                    RunEnd::NoResult(ending, end),
                    progress,
                    Err(process.process.stderr_tail()),
                );
            }
            Err((stop, last_word)) => {
                process.stop().await;
                return (last_word.run_end(stop), progress, Err(process.process.stderr_tail()));
            }
        };
        process.control.turn_stopped(&result);
        match follow_ups.follow_up(&result) {
            None => return (RunEnd::Result(result), progress, Ok(process)),
            Some(next) => message = next,
        }
        before = progress;
    }
}

/// Runs one turn until its result or until a limit is exceeded.
async fn run_single_turn(
    open: &mut AgentProcess,
    message: &str,
    limits: &RunLimits,
) -> (Result<TurnResult, (LimitHit, InterruptResult)>, TurnProgress) {
    let handle = open.client.handle();
    let turn = open.client.turn(message);
    tokio::pin!(turn);
    tokio::select! {
        TurnEnd { result, progress } = &mut turn => match limits.meter.over() {
            // A tool was denied because of the limit; such a turn ends like an answered one.
            Some(failure) => (Err((LimitHit::UsageLimit(failure), InterruptResult::Received)), progress),
            None => (Ok(result), progress),
        },
        stop = limits.exceeded(open.control.activity()) => {
            let last_word = interrupt(&handle, turn).await;
            (Err((stop, last_word)), handle.progress())
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
async fn interrupt(handle: &ClaudeHandle, turn: impl Future<Output = TurnEnd>) -> InterruptResult {
    handle.interrupt();
    match timeout(INTERRUPT_TIMEOUT, turn).await {
        Ok(TurnEnd { result: TurnResult::Result(_), .. }) => InterruptResult::Received,
        Ok(_) | Err(_) => InterruptResult::Missing,
    }
}

/// Returns the feedback on an invalid answer, while retries are left.
type RetryFeedback<'a> = Box<dyn FnMut(&ResultFrame) -> Option<String> + Send + 'a>;

/// Follow-ups of one run in one session.
pub(crate) struct FollowUps<'a> {
    message: String,
    meter: &'a Arc<UsageMeter>,
    retry_feedback: RetryFeedback<'a>,
    /// Text of the API error that was retried.
    pub(crate) retried_error: Option<String>,
}

impl<'a> FollowUps<'a> {
    pub(crate) fn new(
        message: &str,
        wanted: &'a OutputContract,
        meter: &'a Arc<UsageMeter>,
    ) -> Self {
        Self {
            message: message.to_owned(),
            meter,
            retry_feedback: Box::new(wanted.retry_feedback()),
            retried_error: None,
        }
    }

    /// Returns the follow-up to a result, if any.
    pub(crate) fn follow_up(&mut self, result: &ResultFrame) -> Option<String> {
        if result.is_success() {
            (self.retry_feedback)(result)
        } else {
            self.retry_after_api_error(result)
        }
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
        Some(self.message.clone())
    }
}
