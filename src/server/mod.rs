//! The MCP server: stdio and HTTP connections, tool definitions, arguments and results.
//!
//! No policy lives here: permissions, budgets and audit are decided in `delegation` and `gateway`.

mod callers;
mod change_notifications;
mod elicitation;
mod handler;
mod http;
mod invalid_message;
mod packed_result;
mod router;
mod serve;
mod stdio;
mod tools;

pub use http::{HealthProbe, HttpOptions, HttpServer, HttpShutdown};

pub(crate) use http::{HttpError, TlsFiles};
pub(crate) use serve::ServeError;
pub(crate) use serve::{AgentServer, serve_gateway_http, serve_gateway_stdio};
