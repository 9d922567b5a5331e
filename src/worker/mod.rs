//! Processes: started by one function, held by a keeper, and never left behind.
//!
//! `start` is the only function in the crate that starts a program, save for the person's own browser (`open_address`). Between this process and the program
//! stands a keeper (`adjutant __keep`, the same binary), which ends the program and everything it started
//! when it is asked to, and when this process is gone. `docs/processes.md` tells the whole story.

mod admission;
mod board;
mod brief;
mod doorway;
mod keeper;
mod launch;
mod leftovers;
mod machine;
mod memory;
mod nesting;
mod open_address;
mod orphans;
mod pool;
mod process;
mod program;
mod run_folder;
mod shim;
mod shutdown;
mod signals;
mod stamp;
mod start;
mod stop;
mod sweep;
mod tail;
mod tree;
mod wire;

pub use admission::{Admission, AdmissionLimits, Counts, Permit, Refused};
pub use board::{Posting, RunBoard, RunCard, RunProgress};
pub use brief::{BriefEnd, Said, run_briefly};
pub use doorway::Doorway;
pub use launch::{Launch, Links, StartFailed};
pub use leftovers::{Cleaned, clean_leftovers, end_leftovers_of, end_leftovers_with};
pub use machine::MachineCap;
pub use nesting::agent_above;
pub use open_address::open_address;
pub use orphans::adopt_orphans;
pub use pool::{Place, Pool, PoolLimits, Waiter};
pub use process::{DRAIN, Process, ProcessEnd, Urgency};
pub use program::{hidden_command, use_keeper_program};
pub use run_folder::RunFolder;
pub use shutdown::Shutdown;
pub use stamp::ProcessStamp;
pub use start::start;
pub use stop::{Stopped, stop_run};
