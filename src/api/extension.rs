//! An extension: `extensions list`, `extensions install`.

use schemars::JsonSchema;
use serde::Serialize;

use super::agent::DefinitionState;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionObject {
    pub extension: String,
    /// Relative to the project.
    pub file: String,
    pub state: DefinitionState,
    /// The first error or warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub agents: Vec<ExtensionAgentObject>,
    pub servers: Vec<ExtensionServerObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionAgentObject {
    pub agent: String,
    /// Relative to the project.
    pub file: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionServerObject {
    pub server: String,
    /// `public` or `private`.
    pub visibility: String,
}
