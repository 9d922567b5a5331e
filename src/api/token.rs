//! A bearer token: `token new`, `token list`, `token revoke`.

use schemars::JsonSchema;
use serde::Serialize;

use super::common::UtcTime;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenObject {
    pub token_id: String,
    /// Name of the caller that the token was created for.
    pub caller: String,
    pub created_at: UtcTime,
    /// Absent for a token without an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UtcTime>,
    pub expired: bool,
    /// The secret; printed by `token new` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}
