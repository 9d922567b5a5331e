//! The face for people: flags, tables, progress, exit codes. The only folder that prints.
//!
//! One file per command; `args.rs` has the grammar, `render.rs` is the only door to stdout.

mod approval;
mod args;
mod audit;
mod auth;
mod check;
mod completions;
mod costs;
mod demo;
mod dispatch;
mod doctor;
mod events;
mod exit;
mod explain;
mod extensions;
mod fit;
mod gateway;
mod hook;
mod http;
mod init;
mod list;
mod log_view;
mod logging;
mod main_sessions;
mod matrix;
mod nesting;
mod new;
mod plan;
mod problems;
mod render;
mod rights;
mod run;
mod runs;
mod runtime;
mod schema;
mod serve;
mod sessions;
mod show;
mod sign_in_desk;
mod sign_in_servers;
mod stats;
mod story;
mod terminal;
mod token;
mod trust;

pub use dispatch::main;
