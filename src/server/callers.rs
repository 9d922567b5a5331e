//! What a request says about the call it belongs to, matched with what Claude Code attests about it.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ErrorCode, ErrorData, Extensions, JsonObject};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::guest::Guest;
use crate::base::{one_line, shorten};
use crate::gateway::Gateway;
use crate::identity::{Attestation, Attestations, Caller, Doubt, Way};
use crate::record::AuditLine;

/// A tool that no list shows: a hook of Claude Code calls it over this very connection, just before the call that it
/// is about. A model cannot: it calls only what is listed, and its calls carry an id.
pub(super) const ATTEST: &str = "attest_call";

/// Where Claude Code puts the id that its hooks and transcripts know the call by.
const TOOL_USE_ID: &str = "claudecode/toolUseId";
/// Real ones have about thirty characters.
const MAX_ID: usize = 256;

/// Who a connection's calls come from, where each is told apart.
#[derive(Clone)]
pub(super) struct Callers {
    /// Who it is where nothing attests anything.
    pub(super) usual: Caller,
    /// What is attested; `None` where nothing ever is, because the connection itself says who calls.
    attested: Option<Arc<Attestations>>,
}

impl Callers {
    /// Callers that the connection itself names.
    pub(super) fn known(usual: Caller) -> Self {
        Self { usual, attested: None }
    }

    /// Callers that hooks of Claude Code tell apart.
    pub(super) fn attested(usual: Caller, attested: Arc<Attestations>) -> Self {
        Self { usual, attested: Some(attested) }
    }

    /// Who sent a request, whatever was attested about it: whoever its token was made for, else whoever the
    /// connection is for.
    pub(super) fn sender(&self, extensions: &Extensions) -> Caller {
        Guest::caller(extensions).unwrap_or_else(|| self.usual.clone())
    }

    /// Who makes this call. What was attested about it is used up.
    pub(super) fn of(
        &self,
        tool: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Caller, Doubt> {
        self.of_use(tool, tool_use_id(context), || self.sender(&context.extensions))
    }

    /// The same, for the call with this id; `sender` is who it is where nothing was attested.
    pub(super) fn of_use(
        &self,
        tool: &str,
        tool_use_id: Option<String>,
        sender: impl FnOnce() -> Caller,
    ) -> Result<Caller, Doubt> {
        let said = match (&self.attested, &tool_use_id) {
            (Some(attested), Some(id)) => attested.take(id, tool)?,
            _ => None,
        };
        let unattested = || Caller { tool_use_id, ..sender() };
        Ok(said.map_or_else(unattested, |said| said.caller()))
    }

    /// Takes the word of a hook that came over this connection. The answer says nothing: Claude Code would read it
    /// as the hook's decision.
    pub(super) fn hear(
        &self,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // A hook's call is no tool use.
        let is_tool_use = context.meta.get(TOOL_USE_ID).is_some();
        let Some(attested) = self.attested.as_ref().filter(|_| !is_tool_use) else {
            return Err(no_tool(ATTEST));
        };
        let arguments = arguments.unwrap_or_default();
        match Attestation::of_payload(&Value::Object(arguments)) {
            Some(said) => {
                attested.add(said, Way::Connection);
            }
            None => {
                tracing::warn!("a hook's attestation could not be read; its call is unattested");
            }
        }
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

/// Refuses a call of a tool that there is not, or not for this caller, and writes that down.
pub(super) fn no_such_tool(gateway: &Gateway, name: &str) -> ErrorData {
    let refusal = no_tool(name);
    let mut line = AuditLine::new("tools/call");
    line.tool = Some(name.to_owned());
    gateway.record(&line.refused("TOOL_NOT_FOUND", refusal.message.to_string()));
    refusal
}

fn no_tool(name: &str) -> ErrorData {
    let sentence = format!("there is no tool `{}`", one_line(&shorten(name, 256)));
    ErrorData::new(ErrorCode::INVALID_PARAMS, sentence, None)
}

/// The call's id in Claude Code, where it is one.
pub(super) fn tool_use_id(context: &RequestContext<RoleServer>) -> Option<String> {
    let id = context.meta.get(TOOL_USE_ID).and_then(Value::as_str)?;
    is_tool_use_id(id).then(|| id.to_owned())
}

/// Whether this can be such an id.
pub(super) fn is_tool_use_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID
}
