//! MCP over stdin and stdout.

mod active_requests;
mod connection;
mod streams;
mod typed_bridge;

pub(crate) use connection::StdioConnection;
