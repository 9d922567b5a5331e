//! Nothing that a run starts outlives it, whatever it does and however the run ends.

mod crashes;
#[path = "processes/process_tree.rs"]
pub mod family;
#[path = "processes/resource_exhaustion.rs"]
mod greed;
mod load;
mod real_shell;
mod runs;
mod signals;
#[path = "processes/server_process.rs"]
mod stand_in;
#[path = "processes/spawn.rs"]
mod starting;
#[path = "processes/end_to_end.rs"]
mod through_serve;
#[path = "processes/stop_modes.rs"]
mod ways_to_end;
