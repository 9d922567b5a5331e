//! Handle of a running process and its descendants.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;

use super::identity::ProcessIdentity;
use super::orphans::OwnChild;
use super::spawn::{ChildPipes, read_event};
use super::stderr_tail::StderrTail;
use super::supervisor_protocol::{SupervisorCommand, SupervisorEvent};
use super::{memory, sweep};
use crate::util::RunId;

/// Wait for buffered output after a process exited. Longer waits make no sense: a descendant of another user may hold
/// the pipe open.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Limit for the supervisor beyond the grace period; then it counts as stuck and is killed.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(5);

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Exit code.
    Exited(i32),
    /// Number of the signal.
    Signaled(i32),
    /// The supervisor was killed and the program with it; the exit status is unknown.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Close stdin and send SIGTERM, then SIGKILL after the grace period.
    Graceful { grace: Duration },
    /// SIGKILL without a grace period.
    Kill,
}

/// A started process. When dropped, the process and its descendants are killed.
#[derive(Debug)]
pub struct ProcessHandle {
    /// `None` once taken or closed.
    pub stdin: Option<ChildStdin>,
    /// `None` once taken.
    pub stdout: Option<ChildStdout>,
    pid: u32,
    supervisor: Option<ProcessIdentity>,
    control: OwnedWriteHalf,
    stderr: StderrTail,
    end: watch::Receiver<Option<ProcessEnd>>,
    supervisor_is_stuck: Arc<Notify>,
}

impl ProcessHandle {
    pub(crate) fn new(
        run: RunId,
        pid: u32,
        supervisor: (Child, OwnChild),
        control: UnixStream,
        pipes: ChildPipes,
    ) -> Self {
        let (reports, control) = control.into_split();
        let (ends, end) = watch::channel(None);
        let supervisor_is_stuck = Arc::new(Notify::new());
        let supervisor_identity = supervisor.0.id().and_then(ProcessIdentity::of);
        let stuck = Arc::clone(&supervisor_is_stuck);
        tokio::spawn(async move {
            let end = wait_for_end(run, supervisor, reports, &stuck).await;
            let _ = ends.send(Some(end));
        });
        Self {
            stdin: Some(pipes.stdin),
            stdout: Some(pipes.stdout),
            pid,
            supervisor: supervisor_identity,
            control,
            stderr: StderrTail::drain(pipes.stderr),
            end,
            supervisor_is_stuck,
        }
    }

    /// Returns the pid of the program, not of its supervisor.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the supervisor's identity, for the run registry.
    pub fn supervisor(&self) -> Option<&ProcessIdentity> {
        self.supervisor.as_ref()
    }

    /// Returns the resident bytes of the program without its children; `None` if unknown.
    pub fn resident_bytes(&self) -> Option<u64> {
        memory::resident_bytes(self.pid)
    }

    /// Returns a future that resolves when the process has ended and does not borrow the handle.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut end = self.end.clone();
        async move {
            let _ = end.wait_for(Option::is_some).await;
        }
    }

    /// Returns the last 8 KiB of stderr.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Calls `listener` for each chunk of stderr; the first chunk is the retained tail. Only the first listener is
    /// kept.
    pub fn tap_stderr(&self, listener: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.stderr.tap(Box::new(listener));
    }

    /// Waits until the process and its descendants are gone. Cancel-safe.
    pub async fn wait(&mut self) -> ProcessEnd {
        let end = self.end.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        self.stderr.wait_for_end(DRAIN_TIMEOUT).await;
        end.unwrap_or(ProcessEnd::Lost)
    }

    /// Stops the process and its descendants and waits until they are gone.
    ///
    /// If the future is dropped and the method called again, the second call skips the grace period. `stdout` stays
    /// readable to its end.
    pub async fn stop(&mut self, mode: StopMode) -> ProcessEnd {
        self.stdin = None;
        let (request, grace) = match mode {
            StopMode::Graceful { grace } => (SupervisorCommand::Stop { grace }, grace),
            StopMode::Kill => (SupervisorCommand::Kill, Duration::ZERO),
        };
        self.send_command(request);
        if let Ok(end) = timeout(grace + SUPERVISOR_TIMEOUT, self.wait()).await {
            return end;
        }
        // The supervisor was suspended. Killing it kills the program, and the sweep finds the descendants.
        self.supervisor_is_stuck.notify_one();
        self.wait().await
    }

    /// Never blocks: at most a few bytes are written to this socket.
    fn send_command(&self, request: SupervisorCommand) {
        let _ = self.control.try_write(&request.to_bytes());
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        self.send_command(SupervisorCommand::Kill);
    }
}

/// Waits for the last event of the supervisor, reaps it, and sweeps the descendants if it was killed.
async fn wait_for_end(
    run: RunId,
    (mut supervisor, _own): (Child, OwnChild),
    mut reports: OwnedReadHalf,
    stuck: &Notify,
) -> ProcessEnd {
    let last_word = tokio::select! {
        report = read_event(&mut reports) => report.ok(),
        () = stuck.notified() => None,
    };
    if last_word.is_none() || timeout(SUPERVISOR_TIMEOUT, supervisor.wait()).await.is_err() {
        let _ = supervisor.kill().await;
    }
    match last_word {
        Some(SupervisorEvent::Exited { code, leftover }) => {
            warn_about_survivors(run, leftover);
            ProcessEnd::Exited(code)
        }
        Some(SupervisorEvent::Signaled { signal, leftover }) => {
            warn_about_survivors(run, leftover);
            ProcessEnd::Signaled(signal)
        }
        Some(SupervisorEvent::Started { .. } | SupervisorEvent::Failed { .. }) | None => {
            let _ = spawn_blocking(move || sweep::kill_run(run)).await;
            ProcessEnd::Lost
        }
    }
}

fn warn_about_survivors(run: RunId, leftover: i32) {
    if leftover > 0 {
        warn!(%run, leftover, "processes of another user, or stuck in the kernel, could not be ended");
    }
}
