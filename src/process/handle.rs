//! A running process with all its descendants, until nothing of it is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;

use super::memory;
use super::orphans::OwnChild;
use super::stamp::ProcessStamp;
use super::start::{Pipes, read_report};
use super::sweep;
use super::tail::Tail;
use super::wire::{Report, Request};
use crate::base::RunId;

/// How long the last output may take to arrive once a process has ended: what is in a pipe is there at once,
/// and a stranger who holds the pipe open is not waited for.
pub const DRAIN: Duration = Duration::from_millis(200);
/// How long a keeper has for its sweep before it is itself taken for stuck.
const KEEPER_LIMIT: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// Its keeper was killed and took it along; how it would have ended nobody knows.
    Lost,
}

/// How much time a process is given to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// End of input and SIGTERM, then SIGKILL when the grace is over.
    Polite {
        /// Between the two.
        grace: Duration,
    },
    /// SIGKILL.
    Now,
}

/// A process that was started; it and all its descendants end when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// Its input; `None` once taken or closed.
    pub stdin: Option<ChildStdin>,
    /// Its output; `None` once taken.
    pub stdout: Option<ChildStdout>,
    pid: u32,
    keeper: Option<ProcessStamp>,
    control: OwnedWriteHalf,
    stderr: Tail,
    end: watch::Receiver<Option<ProcessEnd>>,
    keeper_is_stuck: Arc<Notify>,
}

impl Process {
    pub(super) fn new(
        run: RunId,
        pid: u32,
        keeper: (Child, OwnChild),
        control: UnixStream,
        pipes: Pipes,
    ) -> Self {
        let (reports, control) = control.into_split();
        let (ends, end) = watch::channel(None);
        let keeper_is_stuck = Arc::new(Notify::new());
        let stamp = keeper.0.id().and_then(ProcessStamp::of);
        let stuck = Arc::clone(&keeper_is_stuck);
        tokio::spawn(async move {
            let end = see_to_its_end(run, keeper, reports, &stuck).await;
            let _ = ends.send(Some(end));
        });
        Self {
            stdin: Some(pipes.stdin),
            stdout: Some(pipes.stdout),
            pid,
            keeper: stamp,
            control,
            stderr: Tail::of(pipes.stderr),
            end,
            keeper_is_stuck,
        }
    }

    /// The program's pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its keeper, for the board and for whoever wants to end the run from elsewhere.
    pub fn keeper(&self) -> Option<&ProcessStamp> {
        self.keeper.as_ref()
    }

    /// What it holds in memory, in bytes; its children are not counted. `None` where the system does not say.
    pub fn resident(&self) -> Option<u64> {
        memory::resident(self.pid)
    }

    /// Resolves when it has ended, for somebody who does not hold it.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut end = self.end.clone();
        async move {
            let _ = end.wait_for(Option::is_some).await;
        }
    }

    /// The last of what it wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Lets `listener` hear its stderr while it is written, from the beginning as far as that is kept.
    pub fn tap_stderr(&self, listener: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.stderr.tap(Box::new(listener));
    }

    /// Waits until it has ended and all its descendants are gone. May be dropped and called again.
    pub async fn wait(&mut self) -> ProcessEnd {
        let end = match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(ProcessEnd::Lost),
            Err(_) => ProcessEnd::Lost,
        };
        self.stderr.settle(DRAIN).await;
        end
    }

    /// Ends it and all its descendants, and waits until they are gone. If this is dropped half-way and called
    /// again, the second call skips the grace. `stdout` stays readable: what was written is still there.
    pub async fn end(&mut self, urgency: Urgency) -> ProcessEnd {
        self.stdin = None;
        let (request, grace) = match urgency {
            Urgency::Polite { grace } => (Request::End { grace }, grace),
            Urgency::Now => (Request::Kill, Duration::ZERO),
        };
        self.ask(request);
        if let Ok(end) = timeout(grace + KEEPER_LIMIT, self.wait()).await {
            return end;
        }
        // Somebody stopped the keeper. Its program dies with it, and the sweep finds the rest.
        self.keeper_is_stuck.notify_one();
        self.wait().await
    }

    /// A few bytes on a socket that nobody else writes to: there is always room for them.
    fn ask(&self, request: Request) {
        let _ = self.control.try_write(&request.to_bytes());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask(Request::Kill);
    }
}

/// Waits for the keeper's last word, collects the keeper, and sweeps in its place if it was killed.
async fn see_to_its_end(
    run: RunId,
    (mut keeper, _own): (Child, OwnChild),
    mut reports: OwnedReadHalf,
    stuck: &Notify,
) -> ProcessEnd {
    let last_word = tokio::select! {
        report = read_report(&mut reports) => report.ok(),
        () = stuck.notified() => None,
    };
    if last_word.is_none() || timeout(KEEPER_LIMIT, keeper.wait()).await.is_err() {
        let _ = keeper.kill().await;
    }
    match last_word {
        Some(Report::Exited { code, leftover }) => {
            complain(run, leftover);
            ProcessEnd::Exited(code)
        }
        Some(Report::Signaled { signal, leftover }) => {
            complain(run, leftover);
            ProcessEnd::Signaled(signal)
        }
        Some(Report::Started { .. } | Report::Failed { .. }) | None => {
            let _ = spawn_blocking(move || sweep::end_run(run)).await;
            ProcessEnd::Lost
        }
    }
}

fn complain(run: RunId, leftover: i32) {
    if leftover > 0 {
        warn!(%run, leftover, "processes of another user, or stuck in the kernel, could not be ended");
    }
}
