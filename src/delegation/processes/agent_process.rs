//! A started `claude` process that is ready for a turn. A process can serve several runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::limits::LimitHit;
use super::super::turn::RunEnd;
use super::process_control::ProcessControl;
use crate::claude::{ClaudeClient, ClientOptions, OpenError, TurnResult};
use crate::process::{ProcessEnd, ProcessHandle, ProcessSpec, StopMode, spawn_process};
use crate::runs::RunDir;

/// Time for a process to exit after its stdin was closed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time between SIGTERM and SIGKILL.
const SIGTERM_GRACE_PERIOD: Duration = Duration::from_millis(400);

/// A process that has answered `initialize`. Dropping it kills the process and removes its files.
pub(crate) struct AgentProcess {
    pub(crate) process: ProcessHandle,
    pub(crate) client: ClaudeClient,
    ready_at: Instant,
    /// Sum of the costs of all runs in this process, in US dollars.
    pub(crate) total_cost_usd: f64,
    /// Time to spawn the process, and time from there until it was ready.
    pub(crate) start_durations: (Duration, Duration),
    pub(crate) control: Arc<ProcessControl>,
    _run_dir: RunDir,
}

/// Failed start: the reason and the end of stderr.
pub(crate) struct StartError {
    pub(crate) end: RunEnd,
    pub(crate) stderr: String,
}

impl AgentProcess {
    /// Starts the process and waits until it is ready, at most until `exceeded` resolves.
    pub(crate) async fn start(
        launch: ProcessSpec,
        files: RunDir,
        options: ClientOptions,
        control: Arc<ProcessControl>,
        exceeded: impl Future<Output = LimitHit>,
        started: impl FnOnce(&ProcessHandle),
    ) -> Result<Self, Box<StartError>> {
        let began = Instant::now();
        let mut process = spawn_process(launch).await.map_err(|error| {
            Box::new(StartError { end: RunEnd::NotStarted(error), stderr: String::new() })
        })?;
        let spawned = began.elapsed();
        started(&process);
        match initialize(&mut process, options, &control, exceeded).await {
            Ok(conversation) => {
                control.process_ready(conversation.handle());
                let born = Instant::now();
                let took = (spawned, began.elapsed().saturating_sub(spawned));
                Ok(Self {
                    process,
                    client: conversation,
                    ready_at: born,
                    total_cost_usd: 0.0,
                    start_durations: took,
                    control,
                    _run_dir: files,
                })
            }
            Err(ended) => Err(Box::new(StartError { end: ended, stderr: process.stderr_tail() })),
        }
    }

    /// Returns the time since the process was ready.
    pub(crate) fn age(&self) -> Duration {
        self.ready_at.elapsed()
    }

    /// Closes stdin and waits 1.5 s for the exit, then stops the process like [`Self::stop`].
    pub(crate) async fn shutdown_gracefully(&mut self) -> ProcessEnd {
        self.client.close();
        match timeout(EXIT_TIMEOUT, self.process.wait()).await {
            Ok(end) => end,
            Err(_) => self.stop().await,
        }
    }

    /// Sends SIGTERM, after 400 ms SIGKILL, and waits until the process and its descendants have exited.
    pub(crate) async fn stop(&mut self) -> ProcessEnd {
        self.process.stop(StopMode::Graceful { grace: SIGTERM_GRACE_PERIOD }).await
    }

    /// Ends the process after a turn without a result: waits for it if the stream was closed, stops it
    /// otherwise.
    pub(crate) async fn stop_after(&mut self, ending: &TurnResult) -> ProcessEnd {
        match ending {
            TurnResult::Result(_) | TurnResult::StreamEnded => self.shutdown_gracefully().await,
            TurnResult::LineTooLong { .. }
            | TurnResult::ReadFailed { .. }
            | TurnResult::WrongSession { .. } => self.stop().await,
        }
    }
}

async fn initialize(
    process: &mut ProcessHandle,
    options: ClientOptions,
    control: &Arc<ProcessControl>,
    exceeded: impl Future<Output = LimitHit>,
) -> Result<ClaudeClient, RunEnd> {
    let (Some(stdout), Some(stdin)) = (process.stdout.take(), process.stdin.take()) else {
        let end = process.stop(StopMode::Kill).await;
        return Err(RunEnd::NotReady(OpenError::StreamEnded, end));
    };
    let parent = Arc::clone(control);
    let opened = tokio::select! {
        opened = ClaudeClient::open(stdout, stdin, parent, options) => opened,
        stop = exceeded => {
            process.stop(StopMode::Graceful { grace: SIGTERM_GRACE_PERIOD }).await;
            return Err(RunEnd::Stopped(stop));
        }
    };
    match opened {
        Ok(conversation) => Ok(conversation),
        Err(error) => {
            // The process may be about to write the reason to stderr: give it 1.5 s to exit.
            let end = match timeout(EXIT_TIMEOUT, process.wait()).await {
                Ok(end) => end,
                Err(_) => process.stop(StopMode::Kill).await,
            };
            Err(RunEnd::NotReady(error, end))
        }
    }
}
