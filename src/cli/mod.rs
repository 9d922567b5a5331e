//! Command-line interface: flags, tables, progress, exit status. The only folder that prints.
//!
//! `commands/` has one file or folder per command, `args.rs` the grammar. All output goes through `output.rs`.

mod args;
mod commands;
mod diagnostics;
mod dispatch;
mod exit_status;
mod format;
mod html_page;
mod log_view;
mod logging;
mod main_session_watch;
mod output;
mod permissions_view;
mod runtime;
mod table;

pub use dispatch::main;

pub(crate) use args::{CliCommand, CommandAccess};
pub(crate) use exit_status::{CommandError, CommandResult, ExitStatus, failure, usage};
