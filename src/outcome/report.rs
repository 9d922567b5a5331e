//! Report of a run: the source of the MCP result, the terminal output, the event log entry and the exit
//! status.

use serde_json::Value;

use super::code::Code;
use super::validate::Mismatch;
use crate::api::{DenialObject, ErrorObject, ReportObject};
use crate::util::RunId;

/// Result and statistics of one call.
#[derive(Clone, Debug)]
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

#[derive(Clone, Debug)]
pub enum Outcome {
    Answered(Answer),
    Failed(Failure),
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub text: String,
    /// Validated JSON value, if the agent has an output contract.
    pub output: Option<Value>,
}

impl Report {
    pub(crate) fn to_object(&self) -> ReportObject {
        let mut object = ReportObject {
            result: None,
            agent: self.agent.clone(),
            error: None,
            duration_ms: self.duration_ms,
            output: None,
            partial: None,
            session_id: self.session_id.clone(),
            cost_usd: self.cost_usd.map(Into::into),
            turns: self.turns,
            run_id: self.run_id,
            denials: self.denials.iter().map(Denial::to_object).collect(),
            note: (!self.notes.is_empty()).then(|| self.notes.join(" ")),
        };
        match &self.outcome {
            Outcome::Answered(answer) => {
                object.result = Some(answer.text.clone());
                object.output.clone_from(&answer.output);
            }
            Outcome::Failed(failure) => {
                object.error = Some(failure.to_object());
                object.partial.clone_from(&failure.partial);
            }
        }
        object
    }
}

impl Denial {
    pub(crate) fn to_object(&self) -> DenialObject {
        DenialObject { tool: self.tool.clone(), rule: self.rule.clone() }
    }
}

/// Failure of a call: code, reason and remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: Code,
    /// Reason: one sentence without a full stop.
    pub message: String,
    /// Remedy: one sentence without a full stop.
    pub help: String,
    /// Text of the agent before the failure; never a valid answer.
    pub partial: Option<String>,
    /// Differences between an invalid answer and its schema.
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
        format!("{}: {}", self.code, self.to_object().sentences())
    }

    pub(crate) fn to_object(&self) -> ErrorObject {
        let mismatches = self.errors.iter().map(Mismatch::to_object).collect();
        let help = Some(self.help.clone());
        ErrorObject { help, mismatches, ..ErrorObject::new(self.code.as_str(), &self.message) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub tool: String,
    /// The missing rule, or the reason of the denial.
    pub rule: String,
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
