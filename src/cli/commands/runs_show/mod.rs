//! `adjutant runs show` and `adjutant runs list --all`: recorded runs as text, JSON or HTML.

mod command;
mod page;
mod text;
mod timing;

pub(crate) use command::{ShowRun, print_recent, show};
