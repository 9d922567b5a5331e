//! One value that says how a call ended; the MCP answer, the terminal, the record and the exit code are made from it.

use serde::Serialize;
use serde_json::Value;

use super::code::Code;
use super::validate::Mismatch;
use crate::base::RunId;

/// What is known about a call when it is over.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The agent that was asked for, as it was asked for.
    pub agent: String,
    /// The run, where one was started.
    pub run_id: RunId,
    /// From the call's arrival to its end.
    pub duration_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The conversation, for agents that keep one.
    pub session_id: Option<String>,
    /// What this call cost.
    pub cost_usd: Option<f64>,
    /// Turns the model took.
    pub turns: Option<u64>,
    /// Tool calls that were refused, with the rule that was missing.
    pub denials: Vec<Denial>,
    /// What the caller should know beside the answer.
    pub notes: Vec<String>,
}

/// How a call ended: an answer, or a failure with its reason. Nothing else exists.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent answered.
    Answered(Answer),
    /// It did not.
    Failed(Failure),
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The validated value, where the agent's file asks for one.
    pub output: Option<Value>,
}

/// A failure: what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The word for programs.
    pub code: Code,
    /// What happened, one sentence without a full stop.
    pub message: String,
    /// What to do, one sentence without a full stop.
    pub help: String,
    /// What the agent had written before it ended; never the answer.
    pub partial: Option<String>,
    /// For an answer that is not what was asked for: each difference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Mismatch>,
}

impl Failure {
    /// A failure before anything was written.
    pub fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), partial: None, errors: Vec::new() }
    }

    /// The same failure with what was written so far; nothing written is no partial.
    #[must_use]
    pub fn with_partial(mut self, partial: impl Into<String>) -> Self {
        let partial = partial.into();
        self.partial = (!partial.trim().is_empty()).then_some(partial);
        self
    }

    /// The same failure with what is wrong with the answer.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<Mismatch>) -> Self {
        self.errors = errors;
        self
    }

    /// `CODE: sentence. What to do.`
    pub fn sentence(&self) -> String {
        let message = self.message.trim_end_matches('.');
        let end = if self.help.ends_with('?') { "" } else { "." };
        format!("{}: {message}. {}{end}", self.code, upper_first(&self.help))
    }
}

/// A tool call that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The tool.
    pub tool: String,
    /// The rule that would have allowed it, or that refused it.
    pub rule: String,
}

fn upper_first(text: &str) -> String {
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
        assert_eq!(failure.sentence(), "TIMEOUT: it took too long. Raise `timeout_ms`.");
        assert_eq!(failure.with_partial(" \n").partial, None);
    }
}
