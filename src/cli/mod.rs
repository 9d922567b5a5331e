//! Command-line interface: flags, tables, progress, exit status. The only folder that prints.
//!
//! `commands/` has one file or folder per command, `args.rs` the grammar. All output goes through `output.rs`.

mod args;
mod commands;
mod diagnostics;
mod dispatch;
mod error;
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
pub use error::ErrorCode;
pub use exit_status::ExitStatus;

pub(crate) use args::{CliCommand, CommandAccess, CommandResult, JsonArgument};
pub(crate) use error::{CommandError, store_unavailable, usage};
pub(crate) use output::CommandReport;
