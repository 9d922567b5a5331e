//! The face for people: flags, tables, progress, exit codes. The only folder that prints.
//!
//! One file per command; `args.rs` has the grammar, `render.rs` is the only door to stdout.

#![allow(dead_code, reason = "the commands that use all of it land one by one")]

mod args;
mod audit;
mod check;
mod completions;
mod dispatch;
mod exit;
mod explain;
mod init;
mod list;
mod new;
mod problems;
mod render;
mod rights;
mod runs;
mod schema;
mod show;

pub use dispatch::main;
