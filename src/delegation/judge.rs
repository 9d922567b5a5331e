//! Conversion of a run's end into an answer or a failure: the output contract, and each way a turn can fail.

use std::error::Error;
use std::time::Instant;

use serde_json::Value;

use super::budget::run_budget_exceeded;
use super::launch::PreparedLaunch;
use super::phase_timings::RunPhase;
use super::sandbox::{refused_sandbox, unavailable};
use super::turn::{RunEnd, TurnOutcome};
use super::usage_meter::max_turns_exceeded;
use crate::catalog::{Agent, OutputFormat};
use crate::claude::{OpenError, ResultFrame, ResultSubtype, TurnProgress, TurnResult};
use crate::outcome::{Answer, ApiFailure, Code, Failure, OutputProblem, Validator};
use crate::process::{ProcessEnd, SpawnError};
use crate::util::{one_line, shorten};

/// Returns the answer of a run, or its failure with the reason.
pub(crate) fn judge(launch: &PreparedLaunch<'_>, turn: &TurnOutcome) -> Result<Answer, Failure> {
    let judging = Instant::now();
    let judged = judge_turn(launch.agent(), turn, &launch.output_contract);
    launch.run.add_time(RunPhase::Judge, judging);
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
        RunEnd::NotSandboxed(error) => {
            unavailable(agent, &error.to_string(), "run `adjutant plan`")
        }
        RunEnd::NotReady(error, end) => refused_sandbox(agent, &run.stderr)
            .unwrap_or_else(|| not_ready(error, *end, &run.stderr)),
        RunEnd::Result(result) if result.is_success() => return wanted.answer(agent, result),
        RunEnd::Result(result) => bad_result(agent, result, &run.progress, wanted),
        RunEnd::NoResult(ending, end) => no_result(agent, ending, *end, &run.stderr),
        RunEnd::Interrupted(stop) | RunEnd::Stopped(stop) => stop.failure(agent),
    };
    Err(match failure.partial {
        Some(_) => failure,
        None => failure.with_partial(run.progress.partial_text.clone()),
    })
}

/// Returns `true` if the CLI does not know the session id it should resume.
pub(crate) fn session_not_found(run: &TurnOutcome) -> bool {
    let is_told = |text: &str| text.contains("No conversation found");
    match &run.end {
        RunEnd::NotReady(OpenError::EndedEarly(result), _) | RunEnd::Result(result) => {
            let text = result.result.as_deref().filter(|_| result.is_error);
            result.errors.iter().any(|error| is_told(error)) || text.is_some_and(is_told)
        }
        RunEnd::NotReady(..) | RunEnd::NoResult(..) => is_told(&run.stderr),
        RunEnd::NotStarted(_)
        | RunEnd::NotSandboxed(_)
        | RunEnd::Interrupted(_)
        | RunEnd::Stopped(_) => false,
    }
}

fn not_started(error: &SpawnError) -> Failure {
    let cause = error.source().map_or(String::new(), |source| format!(": {source}"));
    let message = format!("claude could not be started: {error}{cause}");
    Failure::new(Code::SpawnFailed, message, "run `adjutant doctor`")
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
            let (exit, said) = (describe_exit(end), stderr_end(stderr));
            format!("claude ended without a result for `{name}` ({exit}){said}")
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
    let help = "try again; if it stays so, run `adjutant doctor --live`";
    Failure::new(Code::ClaudeFailed, message, help)
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
    let kind = result.api_error.as_deref();
    ApiFailure::classify(result.api_error_status, kind, first_error(result).unwrap_or_default())
}

fn first_error(result: &ResultFrame) -> Option<&str> {
    result.errors.first().or(result.result.as_ref()).map(String::as_str)
}

fn error_text(result: &ResultFrame) -> String {
    let said = first_error(result);
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
    /// Feedbacks on invalid answers that a run may give.
    pub(crate) retries: u32,
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

    /// Returns the feedback on an answer that does not fulfil the contract.
    pub(crate) fn feedback(&self, result: &ResultFrame) -> Option<String> {
        let text = result.result.as_deref().unwrap_or_default();
        let judged = self.validator.as_ref()?.validate(text, result.structured_output.as_ref());
        judged.err().map(|problem| problem.feedback())
    }

    /// Returns the answer if it fulfils the contract.
    fn answer(&self, agent: &Agent, result: &ResultFrame) -> Result<Answer, Failure> {
        let text = result.result.clone().unwrap_or_default();
        let Some(validator) = &self.validator else { return Ok(Answer { text, output: None }) };
        match validator.validate(&text, result.structured_output.as_ref()) {
            Ok(output) => Ok(Answer { text, output: Some(output) }),
            Err(problem) => Err(invalid_answer(agent, &problem, text)),
        }
    }

    /// Failure of a run in which the CLI gave up on structured output: reports the errors of the last
    /// value.
    fn retries_exhausted(&self, agent: &Agent, last: Option<&Value>) -> Failure {
        let text = last.map_or(String::new(), Value::to_string);
        let judged = self.validator.as_ref().map(|validator| validator.validate(&text, last));
        if let Some(Err(problem)) = judged {
            return invalid_answer(agent, &problem, text);
        }
        // The CLI checks less than we do, so the value should not be valid here.
        let message = format!("`{}` gave no answer that claude takes", agent.name);
        Failure::new(Code::OutputInvalid, message, help_text(agent)).with_partial(text)
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
