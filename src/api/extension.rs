//! An extension: `extensions list`, `extensions install`.

use schemars::JsonSchema;
use serde::Serialize;

use super::agent::AgentState;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionObject {
    pub extension: String,
    /// Relative to the project.
    pub file: String,
    pub state: AgentState,
    /// The first error or warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub agents: Vec<ExtensionAgent>,
    pub servers: Vec<ExtensionServer>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionAgent {
    pub agent: String,
    /// Relative to the project.
    pub file: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExtensionServer {
    pub server: String,
    /// `public` or `private`.
    pub visibility: String,
}
