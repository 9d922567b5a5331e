//! The face for people: flags, tables, progress, exit codes. The only folder that prints.
//!
//! One file per command; `args.rs` has the grammar, `render.rs` is the only door to stdout.

#[path = "commands/run_approval.rs"]
mod approval;
mod args;
#[path = "commands/audit.rs"]
mod audit;
#[path = "commands/auth.rs"]
mod auth;
#[path = "commands/check.rs"]
mod check;
#[path = "commands/completions.rs"]
mod completions;
#[path = "commands/costs.rs"]
mod costs;
mod demo;
mod dispatch;
mod doctor;
#[path = "commands/events.rs"]
mod events;
#[path = "exit_status.rs"]
mod exit;
#[path = "commands/explain.rs"]
mod explain;
#[path = "commands/extensions.rs"]
mod extensions;
#[path = "table.rs"]
mod fit;
#[path = "commands/gateway.rs"]
mod gateway;
#[path = "commands/hook.rs"]
mod hook;
#[path = "commands/serve_http.rs"]
mod http;
mod init;
#[path = "commands/list.rs"]
mod list;
mod log_view;
mod logging;
#[path = "main_session_watch.rs"]
mod main_sessions;
mod matrix;
mod nesting;
#[path = "commands/new.rs"]
mod new;
#[path = "commands/plan.rs"]
mod plan;
#[path = "diagnostics.rs"]
mod problems;
#[path = "output.rs"]
mod render;
#[path = "permissions_view.rs"]
mod rights;
#[path = "commands/run.rs"]
mod run;
#[path = "commands/runs.rs"]
mod runs;
mod runtime;
#[path = "commands/schema.rs"]
mod schema;
#[path = "commands/serve.rs"]
mod serve;
mod sessions;
#[path = "commands/show.rs"]
mod show;
#[path = "commands/auth_login.rs"]
mod sign_in_desk;
#[path = "commands/auth_servers.rs"]
mod sign_in_servers;
#[path = "commands/stats.rs"]
mod stats;
mod story;
mod terminal;
#[path = "commands/token.rs"]
mod token;
#[path = "commands/trust.rs"]
mod trust;

pub use dispatch::main;
