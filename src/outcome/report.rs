//! Report of a run: the source of the MCP result, the terminal output, the event log entry and the exit
//! status.

use serde::Serialize;
use serde_json::Value;

use super::code::Code;
use super::validate::Mismatch;
use crate::util::RunId;

/// Result and statistics of one call.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name as the caller wrote it.
    pub agent: String,
    /// Id of the run; a new id if no run was started.
    pub run_id: RunId,
    /// Time from the call's arrival to its end.
    pub duration_ms: u64,
    pub outcome: Outcome,
    /// Session id, for agents with `session: true`.
    pub session_id: Option<String>,
    /// Cost of this call, in US dollars.
    pub cost_usd: Option<f64>,
    pub turns: Option<u64>,
    /// Denied tool calls.
    pub denials: Vec<Denial>,
    /// Notes for the caller beside the answer.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Answered(Answer),
    Failed(Failure),
}

#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub text: String,
    /// Validated JSON value, if the agent has an output contract.
    pub output: Option<Value>,
}

/// Failure of a call: code, reason and remedy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub code: Code,
    /// Reason: one sentence without a full stop.
    pub message: String,
    /// Remedy: one sentence without a full stop.
    pub help: String,
    /// Text of the agent before the failure; never a valid answer.
    pub partial: Option<String>,
    /// Differences between an invalid answer and its schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Mismatch>,
}

impl Failure {
    /// Creates a failure without partial text.
    pub fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), partial: None, errors: Vec::new() }
    }

    /// Sets the partial text; blank text counts as none.
    #[must_use]
    pub fn with_partial(mut self, partial: impl Into<String>) -> Self {
        let partial = partial.into();
        self.partial = (!partial.trim().is_empty()).then_some(partial);
        self
    }

    #[must_use]
    pub fn with_errors(mut self, errors: Vec<Mismatch>) -> Self {
        self.errors = errors;
        self
    }

    /// Formats as `CODE: reason. Remedy.`
    pub fn full_message(&self) -> String {
        let message = self.message.trim_end_matches('.');
        let end = if self.help.ends_with('?') { "" } else { "." };
        format!("{}: {message}. {}{end}", self.code, capitalize(&self.help))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    pub tool: String,
    /// The missing rule, or the reason of the denial.
    pub rule: String,
}

fn capitalize(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_two_sentences() {
        let failure = Failure::new(Code::Timeout, "it took too long", "raise `timeout_ms`");
        assert_eq!(failure.full_message(), "TIMEOUT: it took too long. Raise `timeout_ms`.");
        assert_eq!(failure.with_partial(" \n").partial, None);
    }
}
