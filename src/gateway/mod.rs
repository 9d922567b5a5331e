//! The MCP gateway: other MCP servers, each behind policy. Connect, list, call, audit.
//!
//! `policy` decides who may use a server or tool; `server` speaks to clients.

mod audit_trail;
mod authorize;
mod config;
mod downstream;
mod error;
mod execute;
mod features;
#[expect(clippy::module_inception, reason = "the folder's main type has the folder's name")]
mod gateway;
mod listing;
mod oauth;
mod sdk_servers;
mod sdk_servers_open;
mod sdk_servers_prompts;
mod server_view;
mod status;

pub use gateway::Gateway;
pub use sdk_servers::{NotifyFn, SdkServers};

pub(crate) use config::{FindingLevel, ServerSet, ServerSpec, read_text};
pub(crate) use downstream::{DownstreamRegistry, LogSubscription, ServerScope, ToolPins};
pub(crate) use error::GatewayError;
pub(crate) use execute::{ToolCall, forward_progress};
pub(crate) use features::{FeatureKind, ListKind};
pub(crate) use gateway::RequestIdentity;
pub(crate) use listing::ToolFilter;
pub(crate) use oauth::{
    CallbackParams, CredentialStore, LoginFlow, SignInError, SignInStatus, SignInTarget,
    open_browser,
};
