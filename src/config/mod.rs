//! Flags and environment variables, validated.
//!
//! `agents/defaults.yaml` is read by `catalog`, the only folder that parses YAML.

pub(crate) mod env_vars;
mod gateway_files;
mod gateway_options;
mod project;
mod settings;

pub use gateway_options::GatewayOptions;
pub use settings::{Settings, SettingsError};

pub(crate) use env_vars::{ADJUTANT_AGENT, CLAUDE_CODE_SESSION_ID};
pub(crate) use gateway_files::{
    GatewayFile, GatewayFiles, MCP_CONFIG_NAME, PLACEHOLDER_TEXT, RULES_NAME, user_config_dirs,
};
pub(crate) use project::find_project;
