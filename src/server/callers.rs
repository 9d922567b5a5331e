//! Caller of a request: token, attestation by a Claude Code hook, or the caller of the connection.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, CustomRequest, ErrorCode, ErrorData, Extensions, JsonObject,
};
use serde_json::Value;

use crate::audit::AuditEntry;
use crate::gateway::Gateway;
use crate::identity::{
    Attestation, AttestationChannel, AttestationError, AttestationRegistry, Caller,
};
use crate::server::http::HttpCaller;
use crate::util::{one_line, shorten};

/// The context of a request to our MCP server.
pub(crate) type RequestContext = rmcp::service::RequestContext<RoleServer>;
/// The result of a request, or its JSON-RPC error.
pub(crate) type McpResult<T> = Result<T, ErrorData>;

/// The hidden tool with which a Claude Code hook attests the next call, over the same connection.
///
/// A model cannot use it: the tool is not listed, and a call with a tool-use id is rejected.
pub(crate) const ATTEST_CALL: &str = "attest_call";

/// The `_meta` field with Claude Code's id of a tool call, which hooks and transcripts use too.
const TOOL_USE_ID_FIELD: &str = "claudecode/toolUseId";
/// Longest tool-use id in bytes; Claude Code's have about 30.
const MAX_TOOL_USE_ID_LEN: usize = 256;

/// Resolves the caller of each request of a connection.
#[derive(Clone)]
pub(crate) struct CallerResolver {
    /// The caller of requests without token and attestation.
    pub(crate) default_caller: Caller,
    /// Attestations by hooks; `None` over HTTP, where the token names the caller.
    attestations: Option<Arc<AttestationRegistry>>,
}

impl CallerResolver {
    /// A resolver without attestations, for HTTP.
    pub(crate) fn without_attestations(default_caller: Caller) -> Self {
        Self { default_caller, attestations: None }
    }

    /// A resolver with attestations by Claude Code hooks, for stdio.
    pub(crate) fn with_attestations(
        default_caller: Caller,
        attestations: Arc<AttestationRegistry>,
    ) -> Self {
        Self { default_caller, attestations: Some(attestations) }
    }

    /// Returns the caller that the token names, otherwise the default caller. Ignores attestations.
    pub(crate) fn sender_of(&self, extensions: &Extensions) -> Caller {
        HttpCaller::caller(extensions).unwrap_or_else(|| self.default_caller.clone())
    }

    /// Resolves the caller of a call and consumes its attestation.
    ///
    /// # Errors
    ///
    /// The attestation was already used, contradicts another one, or is about another tool.
    pub(crate) fn resolve(
        &self,
        tool: &str,
        context: &RequestContext,
    ) -> Result<Caller, AttestationError> {
        self.resolve_tool_use(tool, tool_use_id(context), || self.sender_of(&context.extensions))
    }

    /// Resolves the caller by tool-use id; `sender` provides the caller if there is no attestation.
    pub(crate) fn resolve_tool_use(
        &self,
        tool: &str,
        tool_use_id: Option<String>,
        sender: impl FnOnce() -> Caller,
    ) -> Result<Caller, AttestationError> {
        let attestation = match (&self.attestations, &tool_use_id) {
            (Some(attested), Some(id)) => attested.take(id, tool)?,
            _ => None,
        };
        let unattested = || Caller { tool_use_id, ..sender() };
        Ok(attestation.map_or_else(unattested, |attestation| attestation.caller()))
    }

    /// Records an attestation that a hook sent over this connection.
    ///
    /// The result is empty because Claude Code would read its content as the hook's decision. Rejected for calls with a
    /// tool-use id: those come from a model, not from a hook.
    pub(crate) fn record_attestation(
        &self,
        arguments: Option<JsonObject>,
        context: &RequestContext,
    ) -> McpResult<CallToolResponse> {
        // Calls by hooks have no tool-use id.
        let is_tool_use = context.meta.get(TOOL_USE_ID_FIELD).is_some();
        let Some(attested) = self.attestations.as_ref().filter(|_| !is_tool_use) else {
            return Err(unknown_tool(ATTEST_CALL));
        };
        let arguments = Value::Object(arguments.unwrap_or_default());
        match Attestation::from_payload(&arguments) {
            Some(attestation) => drop(attested.add(attestation, AttestationChannel::Connection)),
            None => {
                tracing::warn!("a hook's attestation could not be read; its call is unattested");
            }
        }
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

/// Rejects and audits a call of a tool that does not exist or is not available here.
pub(crate) fn reject_unknown_tool(gateway: &Gateway, name: &str) -> ErrorData {
    let refusal = unknown_tool(name);
    let mut entry = AuditEntry::new("tools/call");
    entry.tool = Some(name.to_owned());
    gateway.try_write_audit_entry(entry.with_denial("TOOL_NOT_FOUND", refusal.message.to_string()));
    refusal
}

/// Returns the tool of a `tools/call` that rmcp could not deserialize, and the error that answers it.
///
/// # Errors
///
/// `-32602` if the call names no tool.
pub(crate) fn parse_malformed_call(request: &CustomRequest) -> McpResult<(&str, ErrorData)> {
    let invalid = |sentence| ErrorData::new(ErrorCode::INVALID_PARAMS, sentence, None);
    let field = |name| request.params.as_ref().and_then(|params| params.get(name));
    let Some(name) = field("name").and_then(Value::as_str) else {
        return Err(invalid("INVALID_ARGUMENT: `name` must be text"));
    };
    let has_object = field("arguments").is_none_or(|value| value.is_object() || value.is_null());
    let sentence = match has_object {
        true => "INVALID_ARGUMENT: a field of `params` has a type that MCP does not allow",
        false => "INVALID_ARGUMENT: `arguments` must be an object",
    };
    Ok((name, invalid(sentence)))
}

fn unknown_tool(name: &str) -> ErrorData {
    let sentence = format!("there is no tool `{}`", one_line(&shorten(name, 256)));
    ErrorData::new(ErrorCode::INVALID_PARAMS, sentence, None)
}

/// Returns Claude Code's tool-use id of a request, if valid.
fn tool_use_id(context: &RequestContext) -> Option<String> {
    let id = context.meta.get(TOOL_USE_ID_FIELD).and_then(Value::as_str)?;
    is_tool_use_id(id).then(|| id.to_owned())
}

/// Returns the id of a call for audit entries: the tool-use id, otherwise the id of the request.
pub(crate) fn call_id(context: &RequestContext) -> String {
    tool_use_id(context).unwrap_or_else(|| context.id.to_string())
}

/// Returns `true` for 1 to 256 bytes.
pub(crate) fn is_tool_use_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_TOOL_USE_ID_LEN
}
