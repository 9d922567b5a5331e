//! Downstream MCP servers: connect, lease, list, call, heal.
//!
//! An agent sees a server only through its policy. Nothing here decides who may do what: that is
//! `policy`'s; nothing here speaks to the agent: that is `server`'s.

#[path = "downstream/backoff.rs"]
mod backoff;
#[path = "../audit/batch.rs"]
mod batch;
mod calling;
#[path = "downstream/notifications.rs"]
mod client_side;
#[path = "downstream/connect.rs"]
mod connecting;
#[path = "downstream/connection.rs"]
mod connection;
mod delegations;
#[path = "downstream/server.rs"]
mod downstream;
mod error;
mod execute;
#[path = "config/active.rs"]
mod files;
#[expect(clippy::module_inception, reason = "the folder's main type has the folder's name")]
mod gateway;
#[path = "downstream/transport/stdio.rs"]
mod launch;
#[path = "downstream/lease.rs"]
mod lease;
#[path = "audit_trail.rs"]
mod ledger;
#[path = "downstream/transport/lines.rs"]
mod lines;
#[path = "downstream/log_forwarder.rs"]
mod log_relay;
#[path = "status_message.rs"]
mod message;
#[path = "downstream/transport/http.rs"]
mod network;
#[path = "features.rs"]
mod offers;
#[path = "../jsonrpc/frame_writer.rs"]
mod outbox;
#[path = "../util/rate_limiter.rs"]
mod pace;
mod passing;
#[path = "downstream/state.rs"]
mod phase;
#[path = "downstream/pins.rs"]
mod pins;
#[path = "downstream/registry.rs"]
mod pool;
#[path = "downstream/transport/http_post.rs"]
mod post;
#[path = "config/reload.rs"]
mod reload;
#[path = "config/endpoint.rs"]
mod resolved;
#[path = "config/server_secrets.rs"]
mod secrets;
#[path = "config/servers.rs"]
mod server_config;
mod server_entry;
#[path = "../jsonrpc/rpc_client.rs"]
mod shortcut;
mod sign_in;
#[path = "downstream/transport/sse.rs"]
mod sse;
mod status;
mod tapped;
#[path = "forward_progress.rs"]
mod telling;
#[path = "downstream/tools.rs"]
mod tool_list;
#[path = "sdk_servers.rs"]
mod tunnel;
#[path = "sdk_servers_open.rs"]
mod tunnel_open;
#[path = "sdk_servers_prompts.rs"]
mod tunnel_prompts;
#[path = "downstream/transport/raw_http_client.rs"]
mod untouched;
#[path = "authorize.rs"]
mod verdicts;
#[path = "listing.rs"]
mod views;

pub use delegations::Delegation;
pub use downstream::{Downstream, Key, Scope, ToolCall};
pub use error::GatewayError;
pub use execute::Execute;
pub use files::{FileReport, InForce, ReloadReport, RulesGap, read_text};
pub use gateway::{Gateway, Who};
pub use log_relay::LogRelay;
pub use offers::{Announcement, List, Offer};
pub use outbox::Outbox;
pub use passing::Reply;
pub use phase::ServerState;
pub use pins::{Findings, Pins};
pub use pool::Pool;
pub use server_config::{
    DEFAULT_TIMEOUT, Entry, Isolation, Pinning, Remark, ServerSet, ServerSpec, Start, Weight,
};
pub use sign_in::{
    Answer, Attempt, Drawers, Record, SignInFailed, SignInTarget, Standing, open_browser,
};
pub use telling::telling;
pub use tool_list::{Tool, ToolList};
pub use tunnel::{Tell, Tunnel};
pub use views::ToolsWanted;
