//! Nothing that a run starts outlives it, whatever it does and however the run ends.

mod crashes;
pub mod family;
mod greed;
mod load;
mod real_shell;
mod runs;
mod signals;
mod stand_in;
mod starting;
mod through_serve;
mod ways_to_end;
