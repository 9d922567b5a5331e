//! Delivery of a run: redact and truncate the answer, post the final cost, record `RunEnded`, return the report.
//!
//! An answer above `max_output_chars` is truncated; the full text is kept in `data/results/`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::authorize::audit_rejection;
use super::budget::RunBudget;
use super::phase_timings::{PhaseTimings, RunPhase};
use super::pipeline::Run;
use super::recorder::RunRecorder;
use super::register::Registered;
use super::secrets::server_redactor;
use super::turn::TurnOutcome;
use crate::events::ResultFiles;
use crate::outcome::{Answer, Code, Denial, Failure, Outcome, Report};
use crate::util::{Redactor, RunId, run_blocking};

/// The report of a run while it is collected, for every outcome.
#[derive(Default)]
pub(crate) struct ReportDraft {
    pub(crate) session_id: Option<String>,
    pub(crate) cost_usd: Option<f64>,
    turns: Option<u64>,
    denials: Vec<Denial>,
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

    pub(crate) fn report(
        self,
        agent: String,
        run_id: RunId,
        duration: Duration,
        outcome: Outcome,
    ) -> Report {
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let Self { session_id, cost_usd, turns, denials, notes, .. } = self;
        Report { agent, run_id, duration_ms, outcome, session_id, cost_usd, turns, denials, notes }
    }
}

/// Ends the run and returns its report. The costs are in the ledger before.
pub(crate) async fn deliver(
    run: Run,
    registered: Registered,
    answer: Result<Answer, Failure>,
) -> Report {
    let redactor = server_redactor(&registered.agent);
    let outcome = match answer {
        Ok(answer) => Outcome::Answered(finish_answer(&run, &registered, &redactor, answer)),
        Err(failure) => {
            let failure = finish_failure(&registered, &redactor, failure);
            if failure.code == Code::Interrupted {
                let (gateway, agent) = (&run.services.gateway, registered.agent.name.as_str());
                // The run has ended anyway: an entry that cannot be written changes nothing.
                let _ = audit_rejection(gateway, &run.caller, agent, run.id, &failure).await;
                run.draft().notes.push(failure.message.clone());
            }
            Outcome::Failed(failure)
        }
    };
    run.cancel.cancel();
    let (cost_usd, took_warm_process) = {
        let draft = run.draft();
        (draft.cost_usd, draft.took_warm_process)
    };
    if took_warm_process {
        run.services.process_pool.warm_process_used.notify_one();
    }
    let Registered { budget, recorder, registration, .. } = registered;
    let settling = Instant::now();
    settle(&budget, cost_usd).await;
    run.add_time(RunPhase::Record, settling);
    drop(registration);
    let timing = run.draft().timing.milliseconds();
    let report = run.report(outcome);
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
    run: &Run,
    registered: &Registered,
    redactor: &Redactor,
    mut answer: Answer,
) -> Answer {
    let in_text = redactor.redact_text(&mut answer.text);
    let output = answer.output.as_mut();
    if output.is_some_and(|output| redactor.redact_value(output)) | in_text {
        let note = "The answer held a secret of the agent's servers; its name stands in its place.";
        run.draft().notes.push(note.to_owned());
    }
    let most = registered.agent.limits.max_output_chars;
    answer.text = truncate_answer(run, answer.text, most);
    answer
}

/// Replaces secrets in a failure, which may quote the agent or a server, and names a stop by a person.
fn finish_failure(registered: &Registered, redactor: &Redactor, mut failure: Failure) -> Failure {
    redactor.redact_text(&mut failure.message);
    if let Some(partial) = &mut failure.partial {
        redactor.redact_text(partial);
    }
    for error in &mut failure.errors {
        for text in [&mut error.path, &mut error.expected, &mut error.found] {
            redactor.redact_text(text);
        }
    }
    if registered.registration.as_ref().is_none_or(|entry| !entry.is_stop_requested()) {
        return failure;
    }
    let message = "the run was stopped by `adjutant runs stop`";
    Failure::new(Code::Cancelled, message, "call it again if it is still wanted")
        .with_partial(failure.partial.unwrap_or_default())
}

/// Truncates an answer of more than `most` characters and writes all of it to a file.
///
/// The returned text and a note name the file.
fn truncate_answer(run: &Run, text: String, most: usize) -> String {
    let Some(beginning) = truncated(&text, most) else { return text };
    let (all, shown) = (text.chars().count(), beginning.chars().count());
    let kept = match ResultFiles::new(&run.services.settings.data_dir()).write(run.id, &text) {
        Ok(file) => format!("All of it is in `{}`.", file.display()),
        Err(error) => format!("The rest could not be kept: {error}."),
    };
    let note = format!("The answer has {all} characters; these are the first {shown}. {kept}");
    let text = format!("{beginning}\n\n[cut by Adjutant: {note}]");
    run.draft().notes.push(note);
    text
}

/// Returns the first `most` characters of `text`, cut at a line break or space if one is in the last
/// tenth.
///
/// `None` if the text is short enough.
fn truncated(text: &str, most: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(most)?;
    let head = text.get(..end)?;
    // At most a tenth is given up: of one long line, most is shown.
    let floor = end - end / 10;
    let last = |separator| head.rfind(separator).filter(|at| *at >= floor);
    Some(head.get(..last('\n').or_else(|| last(' ')).unwrap_or(end)).unwrap_or(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_answers_are_not_truncated() {
        assert_eq!(truncated("äöü", 3), None);
    }

    #[test]
    fn answers_are_truncated_at_a_line_or_word_and_never_inside_a_character() {
        let text = "one two three four five six seven eight nine ten\neleven";
        assert_eq!(truncated(text, 50), Some("one two three four five six seven eight nine ten"));
        assert_eq!(truncated("äöüß", 3), Some("äöü"));
        assert_eq!(truncated(&"x".repeat(100), 40).map(str::len), Some(40));
    }
}
