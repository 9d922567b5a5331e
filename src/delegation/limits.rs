//! Limits of a run: deadline, idle timeout, cancellation, usage.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::{self, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::usage_meter::UsageMeter;
use crate::catalog::Agent;
use crate::outcome::{Code, Failure};

/// Limit that ended a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LimitHit {
    Deadline,
    /// No activity for longer than the idle timeout.
    IdleTimeout,
    /// Cancelled by the caller, by a person, or by the shutdown of Adjutant.
    Cancelled,
    /// A protected file was replaced on the host, so that its mount in the sandbox is gone.
    ControlFileReplaced(PathBuf),
    /// A budget or `max_turns` is used up, or the API rejects the requests permanently.
    UsageLimit(Failure),
}

/// Limits of one run. The first one exceeded is the [`LimitHit`].
pub(crate) struct RunLimits {
    pub(crate) agent: Arc<Agent>,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) meter: Arc<UsageMeter>,
}

impl RunLimits {
    /// Waits for `work`, at most until the deadline or the cancellation.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let hit = tokio::select! {
            done = timeout_at(self.deadline.into(), work) => match done {
                Ok(done) => return Ok(done),
                Err(_) => LimitHit::Deadline,
            },
            () = self.cancel.cancelled() => LimitHit::Cancelled,
        };
        Err(hit.failure(&self.agent))
    }

    /// Waits until a limit is exceeded; `activity` is the time of the last activity. Cancel-safe.
    pub(crate) async fn exceeded(&self, activity: watch::Receiver<Instant>) -> LimitHit {
        tokio::select! {
            () = sleep_until(self.deadline.into()) => LimitHit::Deadline,
            () = self.cancel.cancelled() => LimitHit::Cancelled,
            () = self.wait_idle(activity) => LimitHit::IdleTimeout,
            failure = self.meter.wait_exceeded() => LimitHit::UsageLimit(failure),
        }
    }

    async fn wait_idle(&self, mut activity: watch::Receiver<Instant>) {
        let Some(longest) = self.agent.limits.idle_timeout else { return pending().await };
        loop {
            let until = time::Instant::from(*activity.borrow_and_update()) + longest;
            tokio::select! {
                () = sleep_until(until) => return,
                // The sender is in the `ProcessControl`, which lives as long as the process.
                changed = activity.changed() => if changed.is_err() { return pending().await },
            }
        }
    }
}

impl LimitHit {
    /// Returns the failure of a run of `agent` that exceeded this limit.
    pub(crate) fn failure(&self, agent: &Agent) -> Failure {
        let (name, file, limits) = (&agent.name, agent.file.display(), &agent.limits);
        let (code, message, help) = match self {
            Self::UsageLimit(failure) => return failure.clone(),
            Self::Deadline => (
                Code::Timeout,
                format!("`{name}` had no answer within {} ms", limits.timeout.as_millis()),
                format!("ask for less, or raise `timeout_ms` in {file}"),
            ),
            Self::IdleTimeout => {
                let longest = limits.idle_timeout.unwrap_or_default().as_millis();
                let message = format!("`{name}` gave no sign of life for {longest} ms");
                (Code::Timeout, message, format!("try again, or raise `idle_timeout_ms` in {file}"))
            }
            Self::ControlFileReplaced(path) => (
                Code::Interrupted,
                format!(
                    "`{}` was replaced while the sandbox of `{name}` was open, which then no longer protected it",
                    path.display()
                ),
                "look at the file, and call it again".to_owned(),
            ),
            Self::Cancelled => (
                Code::Cancelled,
                format!("the run of `{name}` was cancelled"),
                "call it again if it is still wanted".to_owned(),
            ),
        };
        Failure::new(code, message, help)
    }
}
