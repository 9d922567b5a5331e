//! Flags and environment as one checked value.
//!
//! `agents/defaults.yaml` is read by `catalog`, the only folder that knows YAML.

pub mod env_vars;
mod gateway_files;
mod gateway_options;
mod settings;

pub use gateway_files::{GatewayFile, GatewayFiles, MCP_CONFIG_NAME, RULES_NAME};
pub use gateway_options::GatewayOptions;
pub use settings::{Settings, SettingsError};
