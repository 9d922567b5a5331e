//! Delivery of a run: redact and truncate the answer, post the final cost, record `RunEnded`, return the report.

use std::sync::Arc;
use std::time::Instant;

use super::budget::RunBudget;
use super::orchestrator::Orchestrator;
use super::phase_timings::{PhaseTimings, RunPhase};
use super::pipeline::Run;
use super::recorder::RunRecorder;
use super::register::Registered;
use super::secrets::{redact, redact_value, server_secrets};
use super::truncate_answer::truncate_answer;
use super::turn::TurnOutcome;
use crate::catalog::Agent;
use crate::outcome::{Answer, Code, Denial, Failure, Outcome, Report};
use crate::util::run_blocking;

/// The report of a run while it is collected, for every outcome.
#[derive(Default)]
pub(crate) struct ReportDraft {
    pub(crate) session_id: Option<String>,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) turns: Option<u64>,
    pub(crate) denials: Vec<Denial>,
    pub(crate) notes: Vec<String>,
    pub(crate) timing: PhaseTimings,
    /// True if the run took a warm process from the pool, which is refilled when the run ends.
    pub(crate) took_warm_process: bool,
}

impl ReportDraft {
    /// Adds usage and denials of one process, and closes its session in the event log.
    pub(crate) fn add_process(&mut self, recorder: &RunRecorder, outcome: &TurnOutcome) {
        let progress = &outcome.progress;
        recorder.session_ended(outcome.end.session_end_reason(), progress.usage);
        self.denials.extend(outcome.seen.denials.iter().cloned());
        *self.cost_usd.get_or_insert(0.0) += progress.cost_usd;
        *self.turns.get_or_insert(0) += progress.turns;
    }

    pub(crate) fn report(self, run: Run, outcome: Outcome) -> Report {
        let duration_ms = u64::try_from(run.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Report {
            agent: run.request.agent_name,
            run_id: run.id,
            duration_ms,
            outcome,
            session_id: self.session_id,
            cost_usd: self.cost_usd,
            turns: self.turns,
            denials: self.denials,
            notes: self.notes,
        }
    }
}

/// Ends the run and returns its report. The costs are in the ledger before.
pub(crate) async fn deliver(
    services: &Orchestrator,
    run: Run,
    registered: Registered,
    mut draft: ReportDraft,
    answer: Result<Answer, Failure>,
) -> Report {
    let outcome = match answer {
        Ok(answer) => {
            Outcome::Answered(finish_answer(services, &run, &registered, &mut draft, answer))
        }
        Err(failure) => Outcome::Failed(finish_failure(&registered, failure)),
    };
    run.cancel.cancel();
    if draft.took_warm_process {
        services.process_pool.warm_process_used.notify_one();
    }
    let Registered { budget, recorder, registration, .. } = registered;
    let settling = Instant::now();
    settle(&budget, draft.cost_usd).await;
    draft.timing.add_since(RunPhase::Record, settling);
    drop(registration);
    let timing = draft.timing.milliseconds();
    let report = draft.report(run, outcome);
    recorder.run_ended(&report, &timing);
    report
}

/// Posts the final cost of a run, once.
pub(crate) async fn settle(budget: &Arc<RunBudget>, cost_usd: Option<f64>) {
    let Some(cost_usd) = cost_usd else { return };
    let budget = Arc::clone(budget);
    run_blocking(move || budget.close(cost_usd)).await;
}

/// Replaces secrets of the agent's servers, and truncates the answer. Adds a note for each.
fn finish_answer(
    services: &Orchestrator,
    run: &Run,
    registered: &Registered,
    draft: &mut ReportDraft,
    mut answer: Answer,
) -> Answer {
    let secrets = server_secrets(&registered.agent);
    let in_text = redact(&mut answer.text, &secrets);
    let output = answer.output.as_mut();
    if output.is_some_and(|output| redact_value(output, &secrets)) | in_text {
        draft.notes.push(
            "The answer held a secret of the agent's servers; its name stands in its place."
                .to_owned(),
        );
    }
    answer.text = truncate_answer(services, run, &registered.agent, answer.text, draft);
    answer
}

/// Replaces secrets in a failure, which may quote the agent or a server, and names a stop by a person.
fn finish_failure(registered: &Registered, failure: Failure) -> Failure {
    let failure = redact_failure(&registered.agent, failure);
    match &registered.registration {
        Some(registration) if registration.is_stop_requested() => stopped_on_request(failure),
        Some(_) | None => failure,
    }
}

fn redact_failure(agent: &Agent, mut failure: Failure) -> Failure {
    let secrets = server_secrets(agent);
    redact(&mut failure.message, &secrets);
    if let Some(partial) = &mut failure.partial {
        redact(partial, &secrets);
    }
    for error in &mut failure.errors {
        for text in [&mut error.path, &mut error.expected, &mut error.found] {
            redact(text, &secrets);
        }
    }
    failure
}

fn stopped_on_request(failure: Failure) -> Failure {
    let message = "the run was stopped by `adjutant runs stop`";
    let partial = failure.partial.unwrap_or_default();
    Failure::new(Code::Cancelled, message, "call it again if it is still wanted")
        .with_partial(partial)
}
