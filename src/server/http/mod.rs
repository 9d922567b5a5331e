//! MCP over Streamable HTTP: who is at the door, how much of it, and when it ends. No decisions about tools.
//!
//! A request meets, in this order: the guard (where from, who), its session's owner, the bounds on its body, its
//! caller's pace, and then rmcp.

mod body;
mod connection;
mod exposition;
mod express;
mod front;
mod guard;
mod options;
mod pace;
mod pages;
mod probe;
mod refusal;
mod refusal_log;
mod server;
mod session_book;
mod tls;
mod unpacking;

pub use options::{HttpOptions, OptionsError, TlsFiles};
pub(super) use pace::{RunSlot, RunSlots};
pub use probe::Probe;
pub use server::{HttpEnd, HttpError, HttpServer};
