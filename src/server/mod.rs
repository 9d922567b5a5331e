//! MCP in and out; no decisions.

#[path = "tools/answer.rs"]
mod answer;
mod asking;
#[path = "router.rs"]
mod call_line;
#[path = "stdio/connection.rs"]
mod fast_lane;
mod gateway_offers;
mod gateway_server;
#[path = "tools/gateway.rs"]
pub mod gateway_tools;
mod guest;
mod handler;
pub mod http;
mod line;
mod log_messages;
#[path = "change_notifications.rs"]
mod offer_changes;
#[path = "tools/call_context.rs"]
mod progress;
#[path = "packed_result.rs"]
mod raw_results;
#[path = "elicitation.rs"]
mod rounds;
#[path = "serve.rs"]
mod stdio;
mod stdio_and_http;
#[path = "tools/run_subagent.rs"]
mod tools;
#[path = "invalid_message.rs"]
mod unreadable;
#[path = "callers.rs"]
mod who;
#[path = "stdio/streams.rs"]
mod wire;

pub use gateway_server::{serve_gateway_http, serve_gateway_stdio};
pub use stdio::{ServeError, serve_stdio};
pub use stdio_and_http::{serve_http, serve_stdio_and_http};
