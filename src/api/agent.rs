//! An agent: `list`, `show`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::finding::FindingObject;
use super::server::ServerObject;

/// An agent of the project or of an extension. The members after `file` are those of `show`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentObject {
    pub agent: String,
    pub state: DefinitionState,
    /// The first error or warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Names that may call the agent; `*` is everyone.
    pub allowed_callers: Vec<String>,
    /// Has sessions that can be resumed; absent for a broken agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<bool>,
    /// The extension that the agent comes from; absent for agents of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Relative to the project.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Vec<SettingObject>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builtin_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<ServerObject>>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The memory file, relative to the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Vec<FindingObject>>,
}

/// State of a definition: agent or extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionState {
    Ok,
    /// Has warnings.
    Warned,
    /// Has errors and is not used.
    Broken,
}

impl DefinitionState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warned => "warned",
            Self::Broken => "broken",
        }
    }
}

/// Effective value of a setting, and its source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingObject {
    pub key: String,
    /// The value; variables as written.
    pub value: Value,
    pub from: SettingOrigin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingOrigin {
    File,
    BuiltIn,
}
