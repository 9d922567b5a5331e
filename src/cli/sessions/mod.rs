//! `adjutant sessions`: the conversations that go on.

#[path = "../commands/sessions/command.rs"]
mod command;
#[path = "../commands/sessions/text.rs"]
mod text;

pub(super) use command::{SessionsCommand, run};
