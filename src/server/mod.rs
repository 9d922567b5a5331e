//! MCP in and out; no decisions.

mod answer;
mod handler;
mod progress;
mod stdio;
mod tools;

pub use stdio::{ServeError, serve_stdio};
