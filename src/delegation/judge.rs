//! What a run's end means for its caller.

use super::budget::call_exceeded;
use super::converse::{Ended, Run, Stop};
use super::meter::turns_used_up;
use super::wanted::Wanted;
use crate::base::{one_line, shorten};
use crate::catalog::Agent;
use crate::claude::{Ending, OpenError, Progress, ResultFrame, ResultSubtype};
use crate::outcome::{Answer, Code, Failure, Trouble};
use crate::worker::{ProcessEnd, StartFailed};

/// The answer, or why there is none. Success is a `result` that says so, nothing else.
pub(super) fn judge(agent: &Agent, run: &Run, wanted: &Wanted) -> Result<Answer, Failure> {
    let failure = match &run.ended {
        Ended::NotStarted(error) => not_started(error),
        Ended::NotOpened(error, end) => not_opened(error, *end, &run.stderr),
        Ended::Result(result) if result.is_success() => return wanted.answer(agent, result),
        Ended::Result(result) => bad_result(agent, result, &run.progress, wanted),
        Ended::NoResult(ending, end) => no_result(agent, ending, *end, &run.stderr),
        Ended::Interrupted(stop) | Ended::Stopped(stop) => stopped(agent, stop),
    };
    Err(match failure.partial {
        Some(_) => failure,
        None => failure.with_partial(run.progress.partial.clone()),
    })
}

/// Whether the turn came to a good end, whatever the answer is worth.
pub(super) fn turn_was_completed(run: &Run) -> bool {
    matches!(&run.ended, Ended::Result(result) if result.is_success())
}

/// Whether the turn was closed in order when we asked it to end: what was said until then is in the transcript.
pub(super) fn turn_was_interrupted(run: &Run) -> bool {
    matches!(&run.ended, Ended::Interrupted(_))
}

/// Whether the process said that it does not know the conversation it was to resume.
pub(super) fn conversation_is_unknown(run: &Run) -> bool {
    const WORDS: &str = "No conversation found";
    let told = |result: &ResultFrame| {
        result.errors.iter().any(|error| error.contains(WORDS))
            || result.result.as_deref().is_some_and(|text| result.is_error && text.contains(WORDS))
    };
    match &run.ended {
        Ended::NotOpened(OpenError::EndedEarly(result), _) | Ended::Result(result) => told(result),
        Ended::NotOpened(..) | Ended::NoResult(..) => run.stderr.contains(WORDS),
        Ended::NotStarted(_) | Ended::Interrupted(_) | Ended::Stopped(_) => false,
    }
}

fn not_started(error: &StartFailed) -> Failure {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    Failure::new(
        Code::SpawnFailed,
        format!("claude could not be started: {error}{cause}"),
        "run `adjutant doctor`",
    )
}

fn not_opened(error: &OpenError, end: ProcessEnd, stderr: &str) -> Failure {
    let said = match error {
        OpenError::EndedEarly(result) => told(result),
        OpenError::StreamEnded
        | OpenError::LineTooLong { .. }
        | OpenError::ReadFailed { .. }
        | OpenError::WrongSession { .. }
        | OpenError::Refused { .. } => last_words(stderr),
    };
    let message = format!("{error} ({}){said}", how(end));
    let help = match stderr.contains("unknown option") {
        true => {
            "this version of claude does not know a flag that Adjutant needs: update it, or run `adjutant doctor`"
        }
        false => "run `adjutant doctor` to see what is wrong with claude",
    };
    Failure::new(Code::ClaudeFailed, message, help)
}

fn no_result(agent: &Agent, ending: &Ending, end: ProcessEnd, stderr: &str) -> Failure {
    let name = &agent.name;
    let message = match ending {
        Ending::Result(_) | Ending::StreamEnded => {
            format!(
                "claude ended without a result for `{name}` ({}){}",
                how(end),
                last_words(stderr)
            )
        }
        Ending::LineTooLong { limit } => {
            format!("claude wrote a line of more than {limit} bytes for `{name}`")
        }
        Ending::ReadFailed { message } => {
            format!("the output of claude for `{name}` cannot be read: {message}")
        }
        Ending::WrongSession { expected, found } => {
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
    progress: &Progress,
    wanted: &Wanted,
) -> Failure {
    match &result.subtype {
        ResultSubtype::MaxTurns => turns_used_up(agent),
        ResultSubtype::MaxBudget => {
            let most = agent.limits.max_budget_usd.unwrap_or_default();
            call_exceeded(agent, most, progress.cost_usd)
        }
        ResultSubtype::MaxStructuredOutputRetries => {
            wanted.given_up(agent, progress.structured.as_ref())
        }
        ResultSubtype::Success
        | ResultSubtype::DuringExecution
        | ResultSubtype::Other(_)
        | ResultSubtype::Missing => failed(agent, result),
    }
}

fn failed(agent: &Agent, result: &ResultFrame) -> Failure {
    let message = format!("claude failed for `{}`{}", agent.name, told(result));
    let help = trouble(result).help();
    Failure::new(Code::ClaudeFailed, message, help)
}

/// What a failed result says about the API.
pub(super) fn trouble(result: &ResultFrame) -> Trouble {
    let said = result.errors.first().or(result.result.as_ref());
    let kind = result.api_error.as_deref();
    Trouble::of(result.api_error_status, kind, said.map_or("", String::as_str))
}

/// Why a call ended that was ended from outside.
pub(super) fn stopped(agent: &Agent, stop: &Stop) -> Failure {
    let name = &agent.name;
    let file = agent.file.display();
    match stop {
        Stop::Deadline => {
            let limit = agent.limits.timeout.as_millis();
            let message = format!("`{name}` had no answer within {limit} ms");
            Failure::new(
                Code::Timeout,
                message,
                format!("ask for less, or raise `timeout_ms` in {file}"),
            )
        }
        Stop::Idle => {
            let limit = agent.limits.idle_timeout.unwrap_or_default().as_millis();
            let message = format!("`{name}` gave no sign of life for {limit} ms");
            Failure::new(
                Code::Timeout,
                message,
                format!("try again, or raise `idle_timeout_ms` in {file}"),
            )
        }
        Stop::Over(failure) => failure.clone(),
        Stop::Cancelled => Failure::new(
            Code::Cancelled,
            format!("the run of `{name}` was cancelled"),
            "call it again if it is still wanted",
        ),
    }
}

fn told(result: &ResultFrame) -> String {
    let said = result.errors.first().or(result.result.as_ref());
    said.map_or(String::new(), |text| format!(": {}", shorten(&one_line(text), 400)))
}

fn last_words(stderr: &str) -> String {
    let text = one_line(stderr);
    let from = text.len().saturating_sub(400);
    match text.get(text.ceil_char_boundary(from)..) {
        Some(end) if !end.is_empty() => format!("; the end of its stderr: {end}"),
        _ => String::new(),
    }
}

fn how(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signaled(signal) => format!("ended by signal {signal}"),
        ProcessEnd::Lost => "its end was not seen".to_owned(),
    }
}
