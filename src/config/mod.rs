//! Flags and environment as one checked value.
//!
//! `agents/defaults.yaml` is read by `catalog`, the only folder that knows YAML.

pub mod env_vars;
mod settings;

pub use settings::{Settings, SettingsError};
