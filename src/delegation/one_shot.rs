//! Runs with `session: false`: one process, no transcript.

use super::launch::PreparedLaunch;
use super::processes::{run_in_new_process, run_in_pooled_process, take_warm_process};
use super::turn::TurnOutcome;
use crate::outcome::Failure;
use crate::plan::SessionStart;

/// Runs the turn in a warm process, or else in a new one. The answer does not wait for the exit of the process.
pub(crate) async fn run(launch: &PreparedLaunch<'_>) -> Result<TurnOutcome, Failure> {
    let mut outcome = if let Some(outcome) = run_in_warm_process(launch).await {
        outcome
    } else {
        let session = SessionStart::Ephemeral(launch.run.new_session_id.to_string());
        run_in_new_process(launch, &session, &launch.working_dir, 0.0).await?
    };
    launch.retire(outcome.process.take(), ());
    Ok(outcome)
}

async fn run_in_warm_process(launch: &PreparedLaunch<'_>) -> Option<TurnOutcome> {
    let warm = take_warm_process(launch)?;
    let session_id = warm.session_id.unwrap_or(launch.run.new_session_id);
    launch.attach_session(session_id, &launch.working_dir);
    run_in_pooled_process(launch, warm.process, "startup").await
}
