//! Result of one check of `adjutant doctor`, with advice.

use serde::Serialize;

use crate::cli::output;
use crate::cli::table::wrap_behind_heading;

/// Result of one check.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorFinding {
    what: &'static str,
    pub(crate) state: FindingState,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindingState {
    Good,
    Warned,
    Bad,
}

impl DoctorFinding {
    pub(crate) fn print(&self) {
        let mark = match self.state {
            FindingState::Good => "ok  ",
            FindingState::Warned => "warn",
            FindingState::Bad => "BAD ",
        };
        output::print(wrap_behind_heading(&format!("{mark}  {:<12} ", self.what), &self.found));
        if let Some(advice) = &self.advice {
            output::print(wrap_behind_heading(&format!("      {:<12} → ", ""), advice));
        }
    }
}

pub(crate) fn good(what: &'static str, found: String) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Good, found, advice: None }
}

pub(crate) fn warned(what: &'static str, found: String, advice: &str) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Warned, found, advice: Some(advice.to_owned()) }
}

pub(crate) fn bad(what: &'static str, found: String, advice: &str) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Bad, found, advice: Some(advice.to_owned()) }
}
