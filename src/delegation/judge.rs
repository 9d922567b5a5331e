//! Conversion of a run's end into an answer or a failure: the output contract, and each way a turn can fail.

use std::time::Instant;

use serde_json::Value;

use super::budget::run_budget_exceeded;
use super::deliver::ReportDraft;
use super::launch::PreparedLaunch;
use super::limits::limit_failure;
use super::phase_timings::RunPhase;
use super::turn::{RunEnd, TurnOutcome};
use super::usage_meter::max_turns_exceeded;
use crate::catalog::{Agent, OutputFormat};
use crate::claude::{OpenError, ResultFrame, ResultSubtype, TurnProgress, TurnResult};
use crate::outcome::{Answer, ApiFailure, Code, Failure, OutputProblem, Validator};
use crate::process::{ProcessEnd, SpawnError};
use crate::util::{one_line, shorten};

/// Returns the answer of a run, or its failure with the reason.
pub(crate) fn judge(
    launch: &PreparedLaunch<'_>,
    turn: &TurnOutcome,
    draft: &mut ReportDraft,
) -> Result<Answer, Failure> {
    let judging = Instant::now();
    let judged = judge_turn(launch.agent(), turn, &launch.output_contract);
    draft.timing.add_since(RunPhase::Judge, judging);
    match (judged, launch.limits.meter.over()) {
        // As in the CLI: an answer that exceeded a limit is a failure, and its text is kept as partial.
        (Ok(answer), Some(failure)) => Err(failure.with_partial(answer.text)),
        (judged, _) => judged,
    }
}

/// Only a successful `result` frame is a success.
fn judge_turn(
    agent: &Agent,
    run: &TurnOutcome,
    wanted: &OutputContract,
) -> Result<Answer, Failure> {
    let failure = match &run.end {
        RunEnd::NotStarted(error) => not_started(error),
        RunEnd::NotReady(error, end) => not_ready(error, *end, &run.stderr),
        RunEnd::Result(result) if result.is_success() => return wanted.answer(agent, result),
        RunEnd::Result(result) => bad_result(agent, result, &run.progress, wanted),
        RunEnd::NoResult(ending, end) => no_result(agent, ending, *end, &run.stderr),
        RunEnd::Interrupted(stop) | RunEnd::Stopped(stop) => limit_failure(agent, stop),
    };
    Err(match failure.partial {
        Some(_) => failure,
        None => failure.with_partial(run.progress.partial_text.clone()),
    })
}

/// Returns `true` if the turn ended with a successful result, even if the answer does not fit the
/// schema.
pub(crate) fn turn_was_completed(run: &TurnOutcome) -> bool {
    matches!(&run.end, RunEnd::Result(result) if result.is_success())
}

/// Returns `true` if the turn was interrupted and closed in order: the text so far is in the
/// transcript.
pub(crate) fn turn_was_interrupted(run: &TurnOutcome) -> bool {
    matches!(&run.end, RunEnd::Interrupted(_))
}

/// Returns `true` if the CLI does not know the session id it should resume.
pub(crate) fn session_not_found(run: &TurnOutcome) -> bool {
    const NOT_FOUND_TEXT: &str = "No conversation found";
    let told = |result: &ResultFrame| {
        result.errors.iter().any(|error| error.contains(NOT_FOUND_TEXT))
            || result
                .result
                .as_deref()
                .is_some_and(|text| result.is_error && text.contains(NOT_FOUND_TEXT))
    };
    match &run.end {
        RunEnd::NotReady(OpenError::EndedEarly(result), _) | RunEnd::Result(result) => told(result),
        RunEnd::NotReady(..) | RunEnd::NoResult(..) => run.stderr.contains(NOT_FOUND_TEXT),
        RunEnd::NotStarted(_) | RunEnd::Interrupted(_) | RunEnd::Stopped(_) => false,
    }
}

fn not_started(error: &SpawnError) -> Failure {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    Failure::new(
        Code::SpawnFailed,
        format!("claude could not be started: {error}{cause}"),
        "run `adjutant doctor`",
    )
}

fn not_ready(error: &OpenError, end: ProcessEnd, stderr: &str) -> Failure {
    let said = match error {
        OpenError::EndedEarly(result) => error_text(result),
        OpenError::StreamEnded
        | OpenError::LineTooLong { .. }
        | OpenError::ReadFailed { .. }
        | OpenError::WrongSession { .. }
        | OpenError::Refused { .. } => stderr_end(stderr),
    };
    let message = format!("{error} ({}){said}", describe_exit(end));
    let help = match stderr.contains("unknown option") {
        true => {
            "this version of claude does not know a flag that Adjutant needs: update it, or run `adjutant doctor`"
        }
        false => "run `adjutant doctor` to see what is wrong with claude",
    };
    Failure::new(Code::ClaudeFailed, message, help)
}

fn no_result(agent: &Agent, ending: &TurnResult, end: ProcessEnd, stderr: &str) -> Failure {
    let name = &agent.name;
    let message = match ending {
        TurnResult::Result(_) | TurnResult::StreamEnded => {
            format!(
                "claude ended without a result for `{name}` ({}){}",
                describe_exit(end),
                stderr_end(stderr)
            )
        }
        TurnResult::LineTooLong { limit } => {
            format!("claude wrote a line of more than {limit} bytes for `{name}`")
        }
        TurnResult::ReadFailed { message } => {
            format!("the output of claude for `{name}` cannot be read: {message}")
        }
        TurnResult::WrongSession { expected, found } => {
            format!("claude worked in session {found} and not in {expected} for `{name}`")
        }
    };
    Failure::new(
        Code::ClaudeFailed,
        message,
        "try again; if it stays so, run `adjutant doctor --live`",
    )
}

fn bad_result(
    agent: &Agent,
    result: &ResultFrame,
    progress: &TurnProgress,
    wanted: &OutputContract,
) -> Failure {
    match &result.subtype {
        ResultSubtype::MaxTurns => max_turns_exceeded(agent),
        ResultSubtype::MaxBudget => {
            let most = agent.limits.max_budget_usd.unwrap_or_default();
            run_budget_exceeded(agent, most, progress.cost_usd)
        }
        ResultSubtype::MaxStructuredOutputRetries => {
            wanted.retries_exhausted(agent, progress.structured_output.as_ref())
        }
        ResultSubtype::Success
        | ResultSubtype::DuringExecution
        | ResultSubtype::Other(_)
        | ResultSubtype::Missing => claude_failed(agent, result),
    }
}

fn claude_failed(agent: &Agent, result: &ResultFrame) -> Failure {
    let message = format!("claude failed for `{}`{}", agent.name, error_text(result));
    let help = api_failure(result).help();
    Failure::new(Code::ClaudeFailed, message, help)
}

/// Classifies the API error in a failed result.
pub(crate) fn api_failure(result: &ResultFrame) -> ApiFailure {
    let said = result.errors.first().or(result.result.as_ref());
    let kind = result.api_error.as_deref();
    ApiFailure::classify(result.api_error_status, kind, said.map_or("", String::as_str))
}

fn error_text(result: &ResultFrame) -> String {
    let said = result.errors.first().or(result.result.as_ref());
    said.map_or(String::new(), |text| format!(": {}", shorten(&one_line(text), 400)))
}

fn stderr_end(stderr: &str) -> String {
    let text = one_line(stderr);
    let from = text.len().saturating_sub(400);
    match text.get(text.ceil_char_boundary(from)..) {
        Some(end) if !end.is_empty() => format!("; the end of its stderr: {end}"),
        _ => String::new(),
    }
}

fn describe_exit(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signaled(signal) => format!("ended by signal {signal}"),
        ProcessEnd::Lost => "its end was not seen".to_owned(),
    }
}

/// Required form of an answer, and the number of retries.
pub(crate) struct OutputContract {
    validator: Option<Validator>,
    retries: u32,
}

impl OutputContract {
    /// Reads the contract from the agent; fails if its schema is invalid.
    pub(crate) fn new(agent: &Agent) -> Result<Self, Failure> {
        let validator = match (&agent.output.schema, agent.output.format) {
            (Some(schema), _) => Some(Validator::compile(schema).map_err(|error| {
                Failure::new(Code::AgentInvalid, error.to_string(), "run `adjutant check`")
            })?),
            (None, OutputFormat::Json) => Some(Validator::any_json()),
            (None, OutputFormat::Text) => None,
        };
        Ok(Self { validator, retries: agent.output.retries })
    }

    /// Returns the function that gives feedback on an invalid answer, until the retries are used up.
    pub(crate) fn retry_feedback(&self) -> impl FnMut(&ResultFrame) -> Option<String> {
        let mut retries = self.retries;
        move |result| {
            let problem = self.problem(result).filter(|_| result.is_success())?;
            retries = retries.checked_sub(1)?;
            Some(problem)
        }
    }

    /// Returns the answer if it fulfils the contract.
    pub(crate) fn answer(&self, agent: &Agent, result: &ResultFrame) -> Result<Answer, Failure> {
        let text = result.result.clone().unwrap_or_default();
        let Some(validator) = &self.validator else { return Ok(Answer { text, output: None }) };
        match validator.validate(&text, result.structured_output.as_ref()) {
            Ok(output) => Ok(Answer { text, output: Some(output) }),
            Err(problem) => Err(invalid_answer(agent, &problem, text)),
        }
    }

    /// Failure of a run in which the CLI gave up on structured output: reports the errors of the last
    /// value.
    pub(crate) fn retries_exhausted(&self, agent: &Agent, last: Option<&Value>) -> Failure {
        let text = last.map_or(String::new(), Value::to_string);
        let judged = self.validator.as_ref().map(|validator| validator.validate(&text, last));
        if let Some(Err(problem)) = judged {
            return invalid_answer(agent, &problem, text);
        }
        // The CLI checks less than we do, so the value should not be valid here.
        let message = format!("`{}` gave no answer that claude takes", agent.name);
        Failure::new(Code::OutputInvalid, message, help_text(agent)).with_partial(text)
    }

    fn problem(&self, result: &ResultFrame) -> Option<String> {
        let text = result.result.as_deref().unwrap_or_default();
        let judged = self.validator.as_ref()?.validate(text, result.structured_output.as_ref());
        judged.err().map(|problem| problem.feedback())
    }
}

fn invalid_answer(agent: &Agent, problem: &OutputProblem, text: String) -> Failure {
    let message =
        format!("the answer of `{}` is not what its file asks for: {problem}", agent.name);
    Failure::new(Code::OutputInvalid, message, help_text(agent))
        .with_partial(text)
        .with_errors(problem.differences())
}

fn help_text(agent: &Agent) -> String {
    format!("look at `output_schema` and the prompt in {}", agent.file.display())
}
