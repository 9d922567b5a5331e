//! How a call ended, and what its caller is told. Pure: no files, processes or clock.

mod code;
mod report;

pub use code::Code;
pub use report::{Answer, Denial, Failure, Outcome, Report};
