//! Command-line interface: flags, tables, progress, exit status. The only folder that prints.
//!
//! `commands/` has one file or folder per command, `args.rs` the grammar. All output goes through `output.rs`.

mod allowed_below_agent;
mod args;
mod command;
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
mod terminal;

pub use dispatch::main;
