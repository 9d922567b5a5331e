//! MCP over Streamable HTTP: authentication, limits and shutdown. Makes no decisions about tools.
//!
//! A request passes, in this order: authentication, the ownership check of its session, the limits on its body, the
//! rate limit of its caller, and rmcp.

mod body;
mod connection;
mod connection_table;
mod execute_tool_request;
mod frontend;
mod health;
mod host_origin_token;
mod http_sessions;
mod options;
mod rate_limit;
mod refusal;
mod server;

pub use health::HealthProbe;
pub use options::HttpOptions;
pub use server::{HttpServer, HttpShutdown};

pub(crate) use options::TlsFiles;
pub(crate) use rate_limit::HttpCaller;
pub(crate) use server::HttpError;
