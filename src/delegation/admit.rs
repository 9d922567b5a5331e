//! Admission of a run: its limits begin, and it waits for a permit before it starts a process.

use std::sync::Arc;
use std::time::Instant;

use super::limits::RunLimits;
use super::phase_timings::RunPhase;
use super::pipeline::Run;
use super::register::Registered;
use super::usage_meter::UsageMeter;
use crate::outcome::{Code, Failure};
use crate::runs::Permit;

/// A run that may start a process.
pub(crate) struct Admitted {
    pub(crate) limits: RunLimits,
    /// Released when the last process of the run has exited.
    pub(crate) permit: Arc<Permit>,
}

/// Waits for an admission permit, at most until the run's deadline or its cancellation.
pub(crate) async fn admit(run: &Run, registered: &Registered) -> Result<Admitted, Failure> {
    let agent = &registered.agent;
    let limits = RunLimits {
        deadline: run.started_at + agent.limits.timeout,
        cancel: run.cancel.clone(),
        meter: UsageMeter::start(Arc::clone(agent), Arc::clone(&registered.budget)),
        agent: Arc::clone(agent),
    };
    let waiting = Instant::now();
    run.status.set_activity("waiting for a free place");
    let admitted = run.services.admission.admit(&agent.name, agent.limits.max_concurrent);
    let permit = limits
        .bound(admitted)
        .await?
        .map_err(|refused| Failure::new(Code::TooManyRuns, refused.to_string(), refused.help()))?;
    run.add_time(RunPhase::Queue, waiting);
    Ok(Admitted { limits, permit: Arc::new(permit) })
}
