//! Processes: started by one function, held by a keeper, and never left behind.
//!
//! `start` is the only function in the crate that starts a program, save for the person's own browser (`open_address`). Between this process and the program
//! stands a keeper (`adjutant __keep`, the same binary), which ends the program and everything it started
//! when it is asked to, and when this process is gone. `docs/processes.md` tells the whole story.

#[path = "../runs/admission.rs"]
mod admission;
#[path = "../runs/run_registry.rs"]
mod board;
#[path = "../process/command.rs"]
mod brief;
#[path = "../runs/startup_limiter.rs"]
mod doorway;
#[path = "../process/supervisor.rs"]
mod keeper;
#[path = "../process/spec.rs"]
mod launch;
#[path = "../runs/crash_remnants.rs"]
mod leftovers;
#[path = "../runs/machine_limit.rs"]
mod machine;
#[path = "../process/memory.rs"]
mod memory;
mod nesting;
#[path = "../process/browser.rs"]
mod open_address;
#[path = "../process/orphans.rs"]
mod orphans;
#[path = "../delegation/processes/idle_pool.rs"]
mod pool;
#[path = "../process/handle.rs"]
mod process;
#[path = "../process/hidden_commands.rs"]
mod program;
#[path = "../runs/run_dir.rs"]
mod run_folder;
#[path = "../process/exec_shim.rs"]
mod shim;
#[path = "../process/shutdown.rs"]
mod shutdown;
#[path = "../process/signals.rs"]
mod signals;
#[path = "../process/identity.rs"]
mod stamp;
#[path = "../process/spawn.rs"]
mod start;
#[path = "../runs/stop.rs"]
mod stop;
#[path = "../process/sweep.rs"]
mod sweep;
#[path = "../process/stderr_tail.rs"]
mod tail;
#[path = "../process/tree.rs"]
mod tree;
#[path = "../process/supervisor_protocol.rs"]
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
