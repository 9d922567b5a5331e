//! A started process whose conversation is open: what a run needs to say something, and what outlives the run that says it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::bridge::Bridge;
use super::converse::{Ended, Leash};
use crate::claude::{Conversation, Ending, OpenError, Options};
use crate::worker::{Launch, Process, ProcessEnd, RunFolder, Urgency, start};

/// How long a process may take to end by itself after its input was closed.
const GOODBYE: Duration = Duration::from_millis(1_500);
/// Between SIGTERM and SIGKILL, for a process that was told to stop.
const GRACE: Duration = Duration::from_millis(400);

/// A process that has answered `initialize`. It and its files are gone when this is dropped or ended.
pub(super) struct Open {
    pub(super) process: Process,
    pub(super) conversation: Conversation,
    born: Instant,
    /// What its calls have cost in all, in dollars.
    pub(super) spent: f64,
    /// What starting it took, and what it took until it was ready.
    pub(super) took: (Duration, Duration),
    /// Its side of the pipe; points at the run that uses the process.
    pub(super) bridge: Arc<Bridge>,
    _files: RunFolder,
}

/// A process that never became ready: how that ended, and the end of what it wrote to stderr.
pub(super) struct NotOpen {
    pub(super) ended: Ended,
    pub(super) stderr: String,
}

impl Open {
    /// Starts the process and waits until it is ready for a prompt, or for `leash`.
    pub(super) async fn start(
        launch: Launch,
        files: RunFolder,
        options: Options,
        bridge: Arc<Bridge>,
        leash: &Leash,
        started: impl FnOnce(&Process),
    ) -> Result<Self, Box<NotOpen>> {
        let began = Instant::now();
        let mut process = start(launch).await.map_err(|error| {
            Box::new(NotOpen { ended: Ended::NotStarted(error), stderr: String::new() })
        })?;
        let spawned = began.elapsed();
        started(&process);
        match open(&mut process, options, &bridge, leash).await {
            Ok(conversation) => {
                bridge.opened(conversation.handle());
                let born = Instant::now();
                let took = (spawned, began.elapsed().saturating_sub(spawned));
                Ok(Self { process, conversation, born, spent: 0.0, took, bridge, _files: files })
            }
            Err(ended) => Err(Box::new(NotOpen { ended, stderr: process.stderr_tail() })),
        }
    }

    /// How long it has been there.
    pub(super) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// Closes its input and waits until it is gone, with everything it started.
    pub(super) async fn say_goodbye(&mut self) -> ProcessEnd {
        self.conversation.close();
        match timeout(GOODBYE, self.process.wait()).await {
            Ok(end) => end,
            Err(_) => self.end().await,
        }
    }

    /// Ends it and waits until it is gone, with everything it started.
    pub(super) async fn end(&mut self) -> ProcessEnd {
        self.process.end(Urgency::Polite { grace: GRACE }).await
    }

    /// After an `ending` that is no result: a stream that closed is about to end by itself, anything else is ended.
    pub(super) async fn end_after(&mut self, ending: &Ending) -> ProcessEnd {
        match ending {
            Ending::Result(_) | Ending::StreamEnded => self.say_goodbye().await,
            Ending::LineTooLong { .. }
            | Ending::ReadFailed { .. }
            | Ending::WrongSession { .. } => self.end().await,
        }
    }
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
