//! `adjutant demo`: shows a complete delegation without any setup.

mod cast;
mod command;
mod play;
mod project;
mod stand_in;

pub(crate) use command::DemoArguments;
pub(crate) use stand_in::hidden_command;
