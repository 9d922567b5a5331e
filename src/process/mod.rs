//! Operating-system processes: spawn under a supervisor, stop, reap.
//!
//! [`spawn_process`] is the only function that starts a program, except for the user's browser (`browser`). Between
//! Adjutant and the program runs a supervisor (`adjutant __keep`, the same binary). It stops the program and every
//! descendant on request, and when Adjutant has exited. See `docs/processes.md`.

mod ancestors;
mod browser;
mod command;
mod exec_shim;
mod find_program;
mod handle;
mod hidden_commands;
mod identity;
pub(crate) mod memory;
mod orphans;
mod proc_stat;
#[cfg(target_os = "linux")]
pub mod sandbox;
mod shutdown;
mod spawn;
mod spec;
mod stderr_tail;
mod supervisor;
mod supervisor_protocol;
pub(crate) mod sweep;
pub(crate) mod tree;

pub use handle::{ProcessEnd, ProcessHandle, StopMode};
pub use hidden_commands::set_supervisor_program;
pub use identity::ProcessIdentity;
pub use orphans::reap_orphans;
pub use shutdown::Shutdown;
pub use spawn::spawn_process;
pub use spec::{ProcessSpec, SymlinkPolicy};

pub(crate) use ancestors::ancestor_agent;
pub(crate) use browser::open_url;
pub(crate) use command::{CommandEnd, CommandOutput, run_command};
pub(crate) use find_program::find_program;
pub(crate) use hidden_commands::{run_hidden_command, supervisor_program};
pub(crate) use proc_stat::ProcessStat;
pub(crate) use spec::SpawnError;
pub(crate) use sweep::MarkedProcess;
