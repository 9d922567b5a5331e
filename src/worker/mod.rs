//! Processes: started by one function, held by a keeper, and never left behind.
//!
//! `start` is the only function in the crate that starts a program. Between this process and the program
//! stands a keeper (`adjutant __keep`, the same binary), which ends the program and everything it started
//! when it is asked to, and when this process is gone. `docs/processes.md` tells the whole story.

mod keeper;
mod launch;
mod orphans;
mod process;
mod program;
mod shim;
mod signals;
mod stamp;
mod start;
mod sweep;
mod tail;
mod tree;
mod wire;

pub use launch::{Launch, StartFailed};
pub use process::{DRAIN, Process, ProcessEnd, Urgency};
pub use program::{hidden_command, use_keeper_program};
pub use stamp::ProcessStamp;
pub use start::start;
