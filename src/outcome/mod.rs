//! How a call ended, and what its caller is told. Pure: no files, processes or clock.

mod code;
#[path = "json_answer.rs"]
mod extract;
mod report;
#[path = "api_failure.rs"]
mod trouble;
mod validate;

pub use code::Code;
pub use report::{Answer, Denial, Failure, Outcome, Report};
pub use trouble::Trouble;
pub use validate::{BadSchema, Mismatch, OutputProblem, Validator};
