//! No process that a run starts outlives the run, whatever the process does and however the run ends.

mod crashes;
mod end_to_end;
mod load;
pub mod process_tree;
mod real_shell;
mod resource_exhaustion;
mod runs;
mod server_process;
mod signals;
mod spawn;
mod stop_modes;
