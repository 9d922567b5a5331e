//! Interface for asking a person to approve a tool call.
//!
//! Implemented by the MCP connection and by the terminal.

use std::pin::Pin;
use std::time::Duration;

/// Future of the answer to an [`ApprovalQuestion`].
pub(crate) type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = ApprovalAnswer> + Send + 'a>>;

/// Channel to a person who can approve tool calls.
pub trait ApprovalPrompt: Send + Sync + 'static {
    /// Returns the reason if no person can be asked, `None` if one can.
    fn unavailable_reason(&self) -> Option<String>;

    /// Asks and waits without a timeout: the caller enforces the deadline.
    ///
    /// Dropping the future withdraws the question.
    fn ask<'a>(&'a self, question: &'a ApprovalQuestion) -> ApprovalFuture<'a>;
}

/// Answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Allows this call.
    AllowOnce,
    /// Allows this call and similar calls until the run ends.
    AllowForRun,
    Deny,
    /// The person closed the question without a choice.
    Dismissed,
    /// The question could not be delivered.
    Unreachable {
        why: String,
    },
}

impl ApprovalAnswer {
    /// Parses a word of [`CHOICES`]; any other word is [`Self::Deny`].
    pub fn from_word(word: &str) -> Self {
        match word {
            ALLOW_ONCE => Self::AllowOnce,
            ALLOW_FOR_RUN => Self::AllowForRun,
            _ => Self::Deny,
        }
    }
}

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_FOR_RUN: &str = "allow_for_run";

/// Choices of a question: value for programs, label for people.
pub(crate) const CHOICES: [(&str, &str); 3] =
    [(ALLOW_ONCE, "Allow once"), (ALLOW_FOR_RUN, "Allow for this run"), ("deny", "Deny")];

/// Question shown to a person. Every field is one line without secrets and control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalQuestion {
    pub agent: String,
    pub tool: String,
    /// Arguments as JSON, at most about 750 characters.
    pub redacted_arguments: String,
    /// Reason for asking: the rule that applies or is missing.
    pub reason: String,
    /// Description of the calls that "Allow for this run" would cover.
    pub grant_scope: String,
    /// Time after which a missing answer counts as a denial.
    pub timeout: Duration,
}

impl ApprovalQuestion {
    /// Formats the question for a person.
    pub fn text(&self) -> String {
        let Self { agent, tool, redacted_arguments, reason, grant_scope, timeout } = self;
        let seconds = timeout.as_secs_f64();
        format!(
            "The subagent `{agent}` asks for approval.\n\nTool: {tool}\nArguments: {redacted_arguments}\nWhy it asks: {reason}.\n\n\
             «Allow for this run» covers {grant_scope}, until this run is over. No answer within {seconds} s is a no."
        )
    }
}

/// Prompt for callers without a person: every question is unreachable.
#[derive(Clone, Debug)]
pub struct NoApprover {
    reason: String,
}

impl NoApprover {
    pub fn new(why: &str) -> Self {
        Self { reason: why.to_owned() }
    }
}

impl ApprovalPrompt for NoApprover {
    fn unavailable_reason(&self) -> Option<String> {
        Some(self.reason.clone())
    }

    fn ask<'a>(&'a self, _question: &'a ApprovalQuestion) -> ApprovalFuture<'a> {
        Box::pin(async { ApprovalAnswer::Unreachable { why: self.reason.clone() } })
    }
}
