//! Connections to downstream servers: state, start, requests, notifications, reconnect.

mod connect;
mod connection;
mod lease;
mod log_forwarder;
mod notifications;
mod open_connection;
mod pins;
mod registry;
mod server;
mod state;
mod tools;
mod transport;

pub(crate) use connection::{ConnectionUse, DownstreamConnection, progress_callback};
pub(crate) use lease::ServerLease;
pub(crate) use log_forwarder::LogSubscription;
pub(crate) use notifications::ListChanges;
pub(crate) use pins::ToolPins;
pub(crate) use registry::DownstreamRegistry;
pub(crate) use server::{DownstreamServer, ServerKey, ServerScope};
pub(crate) use tools::{Tool, ToolList};
pub(crate) use transport::{StdioCommand, http, install_tls_provider};
