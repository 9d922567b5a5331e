//! Downstream MCP servers: connect, lease, list, call, heal.
//!
//! An agent sees a server only through its policy. Nothing here decides who may do what: that is
//! `policy`'s; nothing here speaks to the agent: that is `server`'s.

mod backoff;
mod batch;
mod calling;
mod client_side;
mod connecting;
mod connection;
mod delegations;
mod downstream;
mod error;
mod execute;
mod files;
#[expect(clippy::module_inception, reason = "the folder's main type has the folder's name")]
mod gateway;
mod launch;
mod lease;
mod ledger;
mod lines;
mod log_relay;
mod message;
mod network;
mod offers;
mod outbox;
mod pace;
mod passing;
mod phase;
mod pins;
mod pool;
mod post;
mod reload;
mod resolved;
mod secrets;
mod server_config;
mod server_entry;
mod shortcut;
mod sign_in;
mod sse;
mod status;
mod tapped;
mod telling;
mod tool_list;
mod tunnel;
mod tunnel_open;
mod tunnel_prompts;
mod untouched;
mod verdicts;
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
