//! `adjutant sessions`: resumable sessions of agents.

mod command;
mod text;

pub(crate) use command::SessionsCommand;
