//! The face for people: flags, tables, progress, exit codes. The only folder that prints.
//!
//! One file per command; `args.rs` has the grammar, `render.rs` is the only door to stdout.

mod args;
mod completions;
mod dispatch;
mod exit;
mod render;

pub use dispatch::main;
