//! Runs with `session: false`: one process, no transcript.

use super::deliver::ReportDraft;
use super::launch::PreparedLaunch;
use super::orchestrator::Orchestrator;
use super::pipeline::Run;
use super::processes::{NewProcess, run_in_new_process, run_in_pooled_process, take_warm_process};
use super::turn::TurnOutcome;
use crate::outcome::Failure;
use crate::plan::SessionStart;

/// Runs the turn in a warm process, or else in a new one. The answer does not wait for the exit of the process.
pub(crate) async fn run(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    draft: &mut ReportDraft,
) -> Result<TurnOutcome, Failure> {
    let warm = run_in_warm_process(services, run, launch, draft).await;
    let mut outcome = if let Some(outcome) = warm {
        outcome
    } else {
        let session = SessionStart::Ephemeral(run.new_session_id.to_string());
        let new = NewProcess { session, working_dir: &launch.working_dir, session_cost_usd: 0.0 };
        run_in_new_process(services, run, launch, &new, draft).await?
    };
    launch.retire(services, outcome.process.take(), ());
    Ok(outcome)
}

async fn run_in_warm_process(
    services: &Orchestrator,
    run: &Run,
    launch: &PreparedLaunch<'_>,
    draft: &mut ReportDraft,
) -> Option<TurnOutcome> {
    let warm = take_warm_process(services, launch, draft)?;
    launch.attach_session(warm.session_id.unwrap_or(run.new_session_id), &launch.working_dir);
    run_in_pooled_process(services, run, launch, warm.process, "startup", draft).await
}
