//! `adjutant runs`: current and recorded runs as tables, text, JSON or HTML.

mod command;
mod page;
mod text;

pub(crate) use command::{RunsCommand, matches_run_id};
