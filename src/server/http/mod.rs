//! MCP over Streamable HTTP: who is at the door, how much of it, and when it ends. No decisions about tools.
//!
//! A request meets, in this order: the guard (where from, who), its session's owner, the bounds on its body, its
//! caller's pace, and then rmcp.

mod body;
mod connection;
#[path = "metrics_text.rs"]
mod exposition;
#[path = "execute_tool_request.rs"]
mod express;
#[path = "frontend.rs"]
mod front;
#[path = "host_origin_token.rs"]
mod guard;
mod options;
#[path = "rate_limit.rs"]
mod pace;
mod pages;
#[path = "health.rs"]
mod probe;
mod refusal;
mod refusal_log;
mod server;
#[path = "http_sessions.rs"]
mod session_book;
mod tls;
mod unpacking;

pub use options::{HttpOptions, OptionsError, TlsFiles};
pub(super) use pace::{RunSlot, RunSlots};
pub use probe::Probe;
pub use server::{HttpEnd, HttpError, HttpServer};
