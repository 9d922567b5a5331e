//! An MCP server: `show`, `auth status`.

use schemars::JsonSchema;
use serde::Serialize;

use super::common::UtcTime;

/// A shared server, or the private server of one agent.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ServerObject {
    pub server: String,
    /// The agent that declares the server; absent for a shared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Permitted tools and patterns, as files name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that no file names are permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_tools: Option<bool>,
    /// Reasons of the denials, each with its rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInObject>,
}

/// OAuth sign-in of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SignInObject {
    /// `signed_in`, `not_signed_in`, `expired`, `ended` or `unknown`.
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UtcTime>,
    pub renewable: bool,
    pub scopes: Vec<String>,
    /// `keyring` or `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_in: Option<String>,
}
