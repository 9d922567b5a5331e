//! Nothing that a run starts outlives it, whatever it does and however the run ends.

mod family;
mod starting;
mod ways_to_end;
