//! One turn in an open conversation: from the prompt to an end of our choosing or its own.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::open::{NotOpen, Open};
use crate::claude::{Ending, Handle, OpenError, Progress, ResultFrame, TurnEnd};
use crate::outcome::Failure;
use crate::worker::{ProcessEnd, StartFailed};

/// How long an interrupted turn may take to say its last word.
const LAST_WORD: Duration = Duration::from_millis(600);

/// Why a run was ended from outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// The deadline passed.
    Deadline,
    /// It was silent for too long.
    Idle,
    /// The caller, or Adjutant itself, does not want it any more.
    Cancelled,
    /// It has used more than it may, or the API will not have it.
    Over(Failure),
}

/// When a run is to be ended from outside.
pub(super) struct Leash {
    /// The end of the whole call.
    pub(super) deadline: Instant,
    /// The longest silence.
    pub(super) idle: Option<Duration>,
    /// Cancelled by the caller, a person or our own end.
    pub(super) cancel: CancellationToken,
    /// Says when it has used too much; a process that no run has yet uses nothing.
    pub(super) meter: Option<Arc<Meter>>,
}

impl Leash {
    /// Resolves when the run must end.
    pub(super) async fn pulled(&self, signs: watch::Receiver<std::time::Instant>) -> Stop {
        tokio::select! {
            () = sleep_until(self.deadline) => Stop::Deadline,
            () = self.cancel.cancelled() => Stop::Cancelled,
            () = self.silence(signs) => Stop::Idle,
            failure = self.overrun() => Stop::Over(failure),
        }
    }

    async fn overrun(&self) -> Failure {
        match &self.meter {
            Some(meter) => meter.overrun().await,
            None => pending().await,
        }
    }

    fn over(&self) -> Option<Failure> {
        self.meter.as_ref().and_then(|meter| meter.over())
    }

    async fn silence(&self, mut signs: watch::Receiver<std::time::Instant>) {
        let Some(longest) = self.idle else { return pending().await };
        loop {
            let until = Instant::from_std(*signs.borrow_and_update()) + longest;
            tokio::select! {
                () = sleep_until(until) => return,
                // The bridge, which sends the signs, lives as long as the conversation.
                changed = signs.changed() => if changed.is_err() { return pending().await },
            }
        }
    }
}

/// Everything that is known when a run's last turn is over.
pub(super) struct Run {
    /// How it ended.
    pub(super) ended: Ended,
    /// What had come of the turn by then.
    pub(super) progress: Progress,
    /// The end of what it wrote to stderr, where its process is gone.
    pub(super) stderr: String,
    /// Its process, still open after a result: whoever has the run ends it or keeps it.
    pub(super) open: Option<Open>,
}

impl From<Box<NotOpen>> for Run {
    fn from(not_open: Box<NotOpen>) -> Self {
        let NotOpen { ended, stderr } = *not_open;
        Self { ended, progress: Progress::default(), stderr, open: None }
    }
}

/// The ways a run can end.
pub(super) enum Ended {
    /// It could not be started.
    NotStarted(StartFailed),
    /// It was started and never ready.
    NotOpened(OpenError, ProcessEnd),
    /// The turn came to its result, which may still be a failure.
    Result(Box<ResultFrame>),
    /// The turn came to an end of its own without a result.
    NoResult(Ending, ProcessEnd),
    /// We asked the turn to end and it closed it in order: its conversation can go on.
    Interrupted(Stop),
    /// We ended it.
    Stopped(Stop),
}

impl Ended {
    /// The reason that `SessionEnd` gives.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::NotStarted(_) | Self::NotOpened(..) => "not_started",
            Self::Result(_) => "other",
            Self::NoResult(..) => "process_ended",
            Self::Interrupted(stop) | Self::Stopped(stop) => match stop {
                Stop::Deadline => "timeout",
                Stop::Idle => "idle_timeout",
                Stop::Cancelled => "cancelled",
                Stop::Over(_) => "limit",
            },
        }
    }
}

/// Whether an interrupted turn still gave its result.
#[derive(Clone, Copy)]
enum LastWord {
    Said,
    Unsaid,
}

impl LastWord {
    fn ended(self, stop: Stop) -> Ended {
        match self {
            Self::Said => Ended::Interrupted(stop),
            Self::Unsaid => Ended::Stopped(stop),
        }
    }
}

/// Says `message` and waits for the answer or for `leash`. After a result the process is still there, in the run;
/// after anything else nothing of it is left.
///
/// `reply` sees every result and may say one thing more, in the same conversation.
pub(super) async fn converse(
    mut open: Open,
    mut message: String,
    leash: &Leash,
    mut reply: impl FnMut(&ResultFrame) -> Option<String>,
) -> Run {
    let mut before = Progress::default();
    loop {
        open.bridge.prompts(&message);
        let (ended, progress) = turn(&mut open, &message, leash).await;
        let cost_usd = progress.cost_usd;
        let progress = together(&before, progress);
        let result = match ended {
            Ok(Ending::Result(result)) => result,
            Ok(ending) => {
                if let Some(meter) = &leash.meter {
                    meter.turn_broke_off(cost_usd);
                }
                let end = open.end_after(&ending).await;
                return over(&open, Ended::NoResult(ending, end), progress);
            }
            Err((stop, last_word)) => {
                open.end().await;
                return over(&open, last_word.ended(stop), progress);
            }
        };
        open.bridge.has_stopped(&result);
        let Some(more) = reply(result.as_ref()) else {
            let (ended, stderr) = (Ended::Result(result), String::new());
            return Run { ended, progress, stderr, open: Some(open) };
        };
        message = more;
        before = progress;
    }
}

/// The run of a process that is gone.
fn over(open: &Open, ended: Ended, progress: Progress) -> Run {
    Run { ended, progress, stderr: open.process.stderr_tail(), open: None }
}

/// One turn, to an end of its own or ours.
async fn turn(
    open: &mut Open,
    message: &str,
    leash: &Leash,
) -> (Result<Ending, (Stop, LastWord)>, Progress) {
    let handle = open.conversation.handle();
    let turn = open.conversation.turn(message);
    tokio::pin!(turn);
    tokio::select! {
        TurnEnd { ending, progress } = &mut turn => match leash.over() {
            // A tool was refused for it, which ends the turn like an answer would.
            Some(failure) => (Err((Stop::Over(failure), LastWord::Said)), progress),
            None => (Ok(ending), progress),
        },
        stop = leash.pulled(open.bridge.signs()) => {
            let last_word = interrupt(&handle, turn).await;
            (Err((stop, last_word)), handle.progress())
        }
    }
}

/// Several turns of one call: what they cost counts together, what was written last counts.
fn together(before: &Progress, mut now: Progress) -> Progress {
    now.cost_usd += before.cost_usd;
    now.turns += before.turns;
    now.usage += before.usage;
    now
}

/// Asks the turn to end, and gives it a moment: its result has the cost.
async fn interrupt(handle: &Handle, turn: impl Future<Output = TurnEnd>) -> LastWord {
    handle.interrupt();
    match timeout(LAST_WORD, turn).await {
        Ok(TurnEnd { ending: Ending::Result(_), .. }) => LastWord::Said,
        Ok(_) | Err(_) => LastWord::Unsaid,
    }
}
