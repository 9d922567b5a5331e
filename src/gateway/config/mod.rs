//! `.mcp.json`, the gateway rules and their options, as read and as in force.

mod active;
mod endpoint;
pub(crate) mod reload;
mod servers;

pub(crate) use active::{ActiveConfig, ConfigFileReport, NoRules, read_text};
pub(crate) use endpoint::{HttpEndpoint, ServerEndpoint, resolve};
pub(crate) use servers::{FindingLevel, ServerConfigEntry, ServerSet, ServerSpec};
