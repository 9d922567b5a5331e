//! `adjutant demo`: a whole delegation, seen from outside, with nothing to set up.

mod act;
mod cast;
mod install;
mod page;
mod play;
mod scene;
mod stand_in;

pub(super) use act::{DemoArguments, run};
pub(super) use stand_in::hidden_command;
