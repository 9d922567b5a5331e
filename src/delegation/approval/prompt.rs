//! Asking a person: what they are told, and what they can answer.
//!
//! How the question reaches them is the business of whoever holds the connection or the terminal.

use std::pin::Pin;
use std::time::Duration;

/// A question on its way to an answer.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// A way to a person.
pub trait Asker: Send + Sync + 'static {
    /// Why nobody can be asked, where nobody can.
    fn absence(&self) -> Option<String>;

    /// Asks and waits, as long as it takes: the deadline is the caller's. Dropping the future takes the question back.
    fn ask<'a>(&'a self, question: &'a Question) -> Asking<'a>;
}

/// What a person answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This call may.
    AllowOnce,
    /// This call may, and others like it until the run is over.
    AllowForRun,
    /// It may not.
    Deny,
    /// The question was put away without a choice.
    Dismissed,
    /// The question did not reach anybody.
    Unreachable {
        /// Why.
        why: String,
    },
}

impl Reply {
    /// The reply for a word of [`CHOICES`]; anything else is a no.
    pub fn of_word(word: &str) -> Self {
        match word {
            ALLOW_ONCE => Self::AllowOnce,
            ALLOW_FOR_RUN => Self::AllowForRun,
            _ => Self::Deny,
        }
    }
}

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_FOR_RUN: &str = "allow_for_run";

/// The choices, as a program and as a person reads them.
pub const CHOICES: [(&str, &str); 3] =
    [(ALLOW_ONCE, "Allow once"), (ALLOW_FOR_RUN, "Allow for this run"), ("deny", "Deny")];

/// One question. Every part is on one line and holds neither secrets nor control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who wants it.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// Its arguments, shortened.
    pub arguments: String,
    /// Why a person is asked.
    pub reason: String,
    /// What «for this run» would cover.
    pub lasting: String,
    /// How long an answer is waited for.
    pub patience: Duration,
}

impl Question {
    /// The question as a person reads it.
    pub fn text(&self) -> String {
        let Self { agent, tool, arguments, reason, lasting, patience } = self;
        let seconds = patience.as_secs_f64();
        format!(
            "The subagent `{agent}` asks for approval.\n\nTool: {tool}\nArguments: {arguments}\nWhy it asks: {reason}.\n\n\
             «Allow for this run» covers {lasting}, until this run is over. No answer within {seconds} s is a no."
        )
    }
}

/// Nobody is there.
#[derive(Clone, Debug)]
pub struct Nobody {
    why: String,
}

impl Nobody {
    /// Nobody can be asked, because of `why`.
    pub fn because(why: &str) -> Self {
        Self { why: why.to_owned() }
    }
}

impl Asker for Nobody {
    fn absence(&self) -> Option<String> {
        Some(self.why.clone())
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Asking<'a> {
        Box::pin(async { Reply::Unreachable { why: self.why.clone() } })
    }
}
