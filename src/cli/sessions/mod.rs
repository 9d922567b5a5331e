//! `adjutant sessions`: the conversations that go on.

mod command;
mod text;

pub(super) use command::{SessionsCommand, run};
