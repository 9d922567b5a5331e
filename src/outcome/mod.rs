//! Results of runs: answers, failures and reports. Pure: no file, process or clock.

mod api_failure;
mod code;
mod json_answer;
mod report;
mod validate;

pub use code::Code;
pub use report::Outcome;

pub(crate) use api_failure::ApiFailure;
pub(crate) use report::{Answer, Denial, Failure, Report};
pub(crate) use validate::{OutputProblem, Validator};
