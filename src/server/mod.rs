//! MCP in and out; no decisions.

mod answer;
mod asking;
mod call_line;
mod fast_lane;
mod gateway_offers;
mod gateway_server;
pub mod gateway_tools;
mod guest;
mod handler;
pub mod http;
mod line;
mod log_messages;
mod offer_changes;
mod progress;
mod raw_results;
mod rounds;
mod stdio;
mod stdio_and_http;
mod tools;
mod unreadable;
mod who;
mod wire;

pub use gateway_server::{serve_gateway_http, serve_gateway_stdio};
pub use stdio::{ServeError, serve_stdio};
pub use stdio_and_http::{serve_http, serve_stdio_and_http};
