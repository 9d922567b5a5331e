//! One thing that was looked at, how it is, and what to do.

use serde::Serialize;

use crate::cli::fit::behind;
use crate::cli::render;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    what: &'static str,
    pub(super) state: FindingState,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingState {
    Good,
    Warned,
    Bad,
}

impl Finding {
    /// Prints it for a person.
    pub(super) fn show(&self) {
        let mark = match self.state {
            FindingState::Good => "ok  ",
            FindingState::Warned => "warn",
            FindingState::Bad => "BAD ",
        };
        render::data(behind(&format!("{mark}  {:<12} ", self.what), &self.found));
        if let Some(advice) = &self.advice {
            render::data(behind(&format!("      {:<12} → ", ""), advice));
        }
    }
}

pub(super) fn good(what: &'static str, found: String) -> Finding {
    Finding { what, state: FindingState::Good, found, advice: None }
}

pub(super) fn warned(what: &'static str, found: String, advice: &str) -> Finding {
    Finding { what, state: FindingState::Warned, found, advice: Some(advice.to_owned()) }
}

pub(super) fn bad(what: &'static str, found: String, advice: &str) -> Finding {
    Finding { what, state: FindingState::Bad, found, advice: Some(advice.to_owned()) }
}
