//! What a request says about the call it belongs to: read here, judged elsewhere.

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value;

/// Where Claude Code puts the id that its hooks and transcripts know the call by.
const TOOL_USE_ID: &str = "claudecode/toolUseId";
/// Real ones have about thirty characters.
const MAX_ID: usize = 256;

/// The call's id in Claude Code, where it is one.
pub(super) fn tool_use_id(context: &RequestContext<RoleServer>) -> Option<String> {
    let id = context.meta.get(TOOL_USE_ID).and_then(Value::as_str)?;
    (!id.is_empty() && id.len() <= MAX_ID).then(|| id.to_owned())
}
