//! One process, one conversation, one turn: from the start to an end of our choosing or its own.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use crate::claude::{
    Conversation, Ending, Handle, OpenError, Options, Progress, ResultFrame, TurnEnd,
};
use crate::worker::{Launch, Process, ProcessEnd, StartFailed, Urgency, start};

/// How long an interrupted turn may take to say its last word.
const LAST_WORD: Duration = Duration::from_millis(600);
/// How long a process may take to end by itself after its input was closed.
const GOODBYE: Duration = Duration::from_millis(1_500);
/// Between SIGTERM and SIGKILL, for a process that was told to stop.
const GRACE: Duration = Duration::from_millis(400);

/// Why a run was ended from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The deadline passed.
    Deadline,
    /// It was silent for too long.
    Idle,
    /// The caller, or Adjutant itself, does not want it any more.
    Cancelled,
}

/// When a run is to be ended from outside.
pub(super) struct Leash {
    /// The end of the whole call.
    pub(super) deadline: Instant,
    /// The longest silence.
    pub(super) idle: Option<Duration>,
    /// Cancelled by the caller, a person or our own end.
    pub(super) cancel: CancellationToken,
}

impl Leash {
    /// Resolves when the run must end.
    pub(super) async fn pulled(&self, signs: watch::Receiver<std::time::Instant>) -> Stop {
        tokio::select! {
            () = sleep_until(self.deadline) => Stop::Deadline,
            () = self.cancel.cancelled() => Stop::Cancelled,
            () = self.silence(signs) => Stop::Idle,
        }
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

/// Everything that is known when a process is over.
pub(super) struct Run {
    /// How it ended.
    pub(super) ended: Ended,
    /// What had come of the turn by then.
    pub(super) progress: Progress,
    /// The end of what it wrote to stderr.
    pub(super) stderr: String,
}

/// The ways a run can end.
pub(super) enum Ended {
    /// It could not be started.
    NotStarted(StartFailed),
    /// It was started and never ready.
    NotOpened(OpenError, ProcessEnd),
    /// The turn came to an end of its own.
    Turn(Ending, ProcessEnd),
    /// We asked the turn to end and it closed it in order: its conversation can go on.
    Interrupted(Stop),
    /// We ended it.
    Stopped(Stop),
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

/// Starts the process, says `message`, and waits for the answer or for `leash`. Nothing of it is left afterwards.
///
/// `reply` sees every good result and may say one thing more, in the same conversation.
pub(super) async fn converse(
    launch: Launch,
    message: String,
    options: Options,
    bridge: &Arc<Bridge>,
    leash: &Leash,
    started: impl FnOnce(&Process),
    reply: impl FnMut(&ResultFrame) -> Option<String>,
) -> Run {
    let mut process = match start(launch).await {
        Ok(process) => process,
        Err(error) => {
            return Run {
                ended: Ended::NotStarted(error),
                progress: Progress::default(),
                stderr: String::new(),
            };
        }
    };
    started(&process);
    let (ended, progress) = talk(&mut process, message, options, bridge, leash, reply).await;
    Run { ended, progress, stderr: process.stderr_tail() }
}

async fn talk(
    process: &mut Process,
    mut message: String,
    options: Options,
    bridge: &Arc<Bridge>,
    leash: &Leash,
    mut reply: impl FnMut(&ResultFrame) -> Option<String>,
) -> (Ended, Progress) {
    let mut conversation = match open(process, options, bridge, leash).await {
        Ok(conversation) => conversation,
        Err(ended) => return (ended, Progress::default()),
    };
    let mut before = Progress::default();
    loop {
        let (ended, progress) = turn(&mut conversation, &message, bridge, leash).await;
        let progress = together(&before, progress);
        match ended {
            Err((stop, last_word)) => {
                process.end(Urgency::Polite { grace: GRACE }).await;
                return (last_word.ended(stop), progress);
            }
            Ok(ending) => {
                let Some(more) = good(&ending).and_then(&mut reply) else {
                    conversation.close();
                    let end = say_goodbye(process, &ending).await;
                    return (Ended::Turn(ending, end), progress);
                };
                message = more;
                before = progress;
            }
        }
    }
}

/// One turn, to an end of its own or ours.
async fn turn(
    conversation: &mut Conversation,
    message: &str,
    bridge: &Arc<Bridge>,
    leash: &Leash,
) -> (Result<Ending, (Stop, LastWord)>, Progress) {
    let handle = conversation.handle();
    let turn = conversation.turn(message);
    tokio::pin!(turn);
    tokio::select! {
        TurnEnd { ending, progress } = &mut turn => (Ok(ending), progress),
        stop = leash.pulled(bridge.signs()) => {
            let last_word = interrupt(&handle, turn).await;
            (Err((stop, last_word)), handle.progress())
        }
    }
}

fn good(ending: &Ending) -> Option<&ResultFrame> {
    match ending {
        Ending::Result(result) => Some(result.as_ref()).filter(|result| result.is_success()),
        Ending::StreamEnded
        | Ending::LineTooLong { .. }
        | Ending::ReadFailed { .. }
        | Ending::WrongSession { .. } => None,
    }
}

/// Several turns of one call: what they cost counts together, what was written last counts.
fn together(before: &Progress, mut now: Progress) -> Progress {
    now.cost_usd += before.cost_usd;
    now.turns += before.turns;
    now
}

async fn open(
    process: &mut Process,
    options: Options,
    bridge: &Arc<Bridge>,
    leash: &Leash,
) -> Result<Conversation, Ended> {
    let (Some(stdout), Some(stdin)) = (process.stdout.take(), process.stdin.take()) else {
        let end = process.end(Urgency::Now).await;
        return Err(Ended::NotOpened(OpenError::StreamEnded, end));
    };
    let parent = Arc::clone(bridge);
    let opened = tokio::select! {
        opened = Conversation::open(stdout, stdin, parent, options) => opened,
        stop = leash.pulled(bridge.signs()) => {
            process.end(Urgency::Polite { grace: GRACE }).await;
            return Err(Ended::Stopped(stop));
        }
    };
    match opened {
        Ok(conversation) => Ok(conversation),
        Err(error) => {
            // It may be about to say why on stderr: give it the time to end by itself.
            let end = match timeout(GOODBYE, process.wait()).await {
                Ok(end) => end,
                Err(_) => process.end(Urgency::Now).await,
            };
            Err(Ended::NotOpened(error, end))
        }
    }
}

/// Asks the turn to end, and gives it a moment: its result has the cost.
async fn interrupt(handle: &Handle, turn: impl Future<Output = TurnEnd>) -> LastWord {
    handle.interrupt();
    match timeout(LAST_WORD, turn).await {
        Ok(TurnEnd { ending: Ending::Result(_), .. }) => LastWord::Said,
        Ok(_) | Err(_) => LastWord::Unsaid,
    }
}

/// After a result the process ends by itself when its input is closed; after anything else it is ended.
async fn say_goodbye(process: &mut Process, ending: &Ending) -> ProcessEnd {
    let patience = match ending {
        Ending::Result(_) | Ending::StreamEnded => GOODBYE,
        Ending::LineTooLong { .. } | Ending::ReadFailed { .. } | Ending::WrongSession { .. } => {
            Duration::ZERO
        }
    };
    match timeout(patience, process.wait()).await {
        Ok(end) => end,
        Err(_) => process.end(Urgency::Polite { grace: GRACE }).await,
    }
}
