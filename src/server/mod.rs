//! MCP in and out; no decisions.

mod answer;
mod gateway_offers;
mod gateway_server;
pub mod gateway_tools;
mod handler;
mod offer_changes;
mod progress;
mod raw_results;
mod stdio;
mod tools;
mod who;

pub use gateway_server::serve_gateway_stdio;
pub use stdio::{ServeError, serve_stdio};
