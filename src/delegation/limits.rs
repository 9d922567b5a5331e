//! Limits of a run: deadline, idle timeout, cancellation, usage. The first one exceeded is the [`LimitHit`].

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
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
    /// A budget or `max_turns` is used up, or the API rejects the requests permanently.
    UsageLimit(Failure),
}

/// Limits of one run.
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
            done = timeout_at(self.deadline, work) => match done {
                Ok(done) => return Ok(done),
                Err(_) => LimitHit::Deadline,
            },
            () = self.cancel.cancelled() => LimitHit::Cancelled,
        };
        Err(limit_failure(&self.agent, &hit))
    }

    /// Waits until a limit is exceeded; `activity` is the time of the last activity. Cancel-safe.
    pub(crate) async fn exceeded(&self, activity: watch::Receiver<std::time::Instant>) -> LimitHit {
        tokio::select! {
            () = sleep_until(self.deadline) => LimitHit::Deadline,
            () = self.cancel.cancelled() => LimitHit::Cancelled,
            () = self.wait_idle(activity) => LimitHit::IdleTimeout,
            failure = self.meter.wait_exceeded() => LimitHit::UsageLimit(failure),
        }
    }

    async fn wait_idle(&self, mut activity: watch::Receiver<std::time::Instant>) {
        let Some(longest) = self.agent.limits.idle_timeout else { return pending().await };
        loop {
            let until = Instant::from_std(*activity.borrow_and_update()) + longest;
            tokio::select! {
                () = sleep_until(until) => return,
                // The sender is in the `ProcessControl`, which lives as long as the process.
                changed = activity.changed() => if changed.is_err() { return pending().await },
            }
        }
    }
}

/// Returns the failure of a run that exceeded a limit.
pub(crate) fn limit_failure(agent: &Agent, stop: &LimitHit) -> Failure {
    let name = &agent.name;
    let file = agent.file.display();
    match stop {
        LimitHit::Deadline => {
            let limit = agent.limits.timeout.as_millis();
            let message = format!("`{name}` had no answer within {limit} ms");
            Failure::new(
                Code::Timeout,
                message,
                format!("ask for less, or raise `timeout_ms` in {file}"),
            )
        }
        LimitHit::IdleTimeout => {
            let limit = agent.limits.idle_timeout.unwrap_or_default().as_millis();
            let message = format!("`{name}` gave no sign of life for {limit} ms");
            Failure::new(
                Code::Timeout,
                message,
                format!("try again, or raise `idle_timeout_ms` in {file}"),
            )
        }
        LimitHit::UsageLimit(failure) => failure.clone(),
        LimitHit::Cancelled => Failure::new(
            Code::Cancelled,
            format!("the run of `{name}` was cancelled"),
            "call it again if it is still wanted",
        ),
    }
}
