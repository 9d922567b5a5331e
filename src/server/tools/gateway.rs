//! The gateway's MCP tools: definitions, argument parsing, results.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::callers::{RequestContext, call_id};
use crate::gateway::{Gateway, GatewayError, RequestIdentity, ToolFilter};
use crate::identity::{AttestationError, Caller};
use crate::jsonrpc::LineJson;
use crate::util::{one_line, shorten};

const LIST_SERVERS: &str = "list_servers";
const GET_SERVER_TOOLS: &str = "get_server_tools";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
const GET_GATEWAY_STATUS: &str = "get_gateway_status";

/// The tool definitions, in the order of use.
///
/// Below 400 tokens in total (tested): every agent has them in its context.
pub(crate) fn definitions(debug: bool) -> Vec<Tool> {
    let agent = json!({ "type": "string", "description": "Your agent name" });
    let text = json!({ "type": "string" });
    let mut tools = vec![
        define_tool(
            LIST_SERVERS,
            "MCP servers you may use",
            &[],
            json!({ "agent_id": agent, "include_metadata": { "type": "boolean" } }),
        ),
        define_tool(
            GET_SERVER_TOOLS,
            "Tools of a server you may use, with schemas",
            &["server"],
            json!({
                "agent_id": agent, "server": text,
                "names": { "type": "string", "description": "Comma-separated" },
                "pattern": { "type": "string", "description": "Glob" },
                "max_schema_tokens": { "type": "integer" },
            }),
        ),
        define_tool(
            EXECUTE_TOOL,
            "Call a server's tool",
            &["server", "tool"],
            json!({
                "agent_id": agent, "server": text, "tool": text, "args": { "type": "object" },
                "timeout_ms": { "type": "integer" },
            }),
        ),
    ];
    if debug {
        let properties = json!({ "agent_id": agent });
        tools.push(define_tool(GET_GATEWAY_STATUS, "State of the gateway", &[], properties));
    }
    tools
}

fn define_tool(
    name: &'static str,
    description: &'static str,
    required: &[&str],
    properties: Value,
) -> Tool {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    Tool::new(name, description, Arc::new(schema))
}

/// Returns `true` if the gateway has a tool of this name.
pub(crate) fn is_gateway_tool(name: &str, debug: bool) -> bool {
    matches!(name, LIST_SERVERS | GET_SERVER_TOOLS | EXECUTE_TOOL)
        || (debug && name == GET_GATEWAY_STATUS)
}

/// Calls a tool that the gateway answers itself. Denials and failures are results with `isError`.
pub(crate) async fn call_tool(
    gateway: &Gateway,
    caller: Result<Caller, AttestationError>,
    name: &str,
    context: &RequestContext,
) -> CallToolResult {
    let raw = RawArguments::of(context);
    let arguments = ToolArguments::parse(raw.as_ref().map(RawArguments::as_raw));
    let (who, claimed) = request_identity(caller, arguments.agent_id(), call_id(context));
    let result = match claimed.and_then(|()| GatewayRequest::parse(name, &arguments)) {
        Ok(asked) => asked.execute(gateway, &who).await,
        Err(wrong) => Err(gateway.reject(audit_operation(name), &who, wrong).await),
    };
    result.unwrap_or_else(|error| match name {
        GET_SERVER_TOOLS => tools_error_result(&ToolFilter::default(), &error),
        _ => error_result(&error),
    })
}

/// Audits a call whose `params` are malformed.
pub(crate) async fn reject_malformed(
    gateway: &Gateway,
    caller: Result<Caller, AttestationError>,
    name: &str,
    context: &RequestContext,
) {
    let invalid = invalid_argument("arguments", "an object");
    let (who, _) = request_identity(caller, Ok(None), call_id(context));
    gateway.reject(audit_operation(name), &who, invalid).await;
}

/// The audit operation of a tool: its name, or `tools/call` for an unknown tool.
pub(crate) fn audit_operation(name: &str) -> &'static str {
    let known = [LIST_SERVERS, GET_SERVER_TOOLS, EXECUTE_TOOL, GET_GATEWAY_STATUS];
    known.into_iter().find(|known| *known == name).unwrap_or("tools/call")
}

/// The identity of a call, and the error of a malformed `agent_id`.
///
/// Only a verified caller is used; otherwise the gateway resolves the claimed `agent_id`.
pub(crate) fn request_identity(
    caller: Result<Caller, AttestationError>,
    claimed: Result<Option<String>, GatewayError>,
    call_id: String,
) -> (RequestIdentity, Result<(), GatewayError>) {
    let (caller, attestation_error) = match caller {
        Ok(caller) => (Some(caller).filter(Caller::is_verified), None),
        Err(error) => (None, Some(error)),
    };
    let (agent_id, claimed) = match claimed {
        Ok(agent_id) => (agent_id, Ok(())),
        Err(wrong) => (None, Err(wrong)),
    };
    (RequestIdentity { caller, attestation_error, agent_id, call_id: Some(call_id) }, claimed)
}

/// A call with parsed arguments of a tool that the gateway answers itself.
enum GatewayRequest {
    ListServers { metadata: bool },
    GetServerTools(ToolFilter),
    GetStatus,
}

impl GatewayRequest {
    fn parse(name: &str, arguments: &ToolArguments<'_>) -> Result<Self, GatewayError> {
        match name {
            LIST_SERVERS => Ok(Self::ListServers { metadata: arguments.flag("include_metadata")? }),
            GET_SERVER_TOOLS => Ok(Self::GetServerTools(arguments.tool_filter()?)),
            GET_GATEWAY_STATUS => Ok(Self::GetStatus),
            other => {
                let sentence = format!("there is no tool `{}`", one_line(&shorten(other, 256)));
                Err(GatewayError::InvalidArgument { sentence })
            }
        }
    }

    async fn execute(
        self,
        gateway: &Gateway,
        who: &RequestIdentity,
    ) -> Result<CallToolResult, GatewayError> {
        match self {
            Self::ListServers { metadata } => {
                let servers = gateway.list_servers(who, metadata).await?;
                Ok(structured_result(servers.to_string(), json!({ "result": servers })))
            }
            Self::GetServerTools(wanted) => {
                let listed = gateway.list_server_tools(who, &wanted).await;
                let listed = listed.map(|tools| structured_result(tools.to_string(), tools));
                Ok(listed.unwrap_or_else(|error| tools_error_result(&wanted, &error)))
            }
            Self::GetStatus => {
                let status = gateway.status(who).await?;
                Ok(structured_result(status.to_string(), status))
            }
        }
    }
}

/// An error of `get_server_tools`, with the structured content that its results have.
fn tools_error_result(wanted: &ToolFilter, error: &GatewayError) -> CallToolResult {
    let mut result = error_result(error);
    result.structured_content = Some(wanted.to_error_response(error));
    result
}

fn structured_result(text: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(value);
    result
}

fn error_result(error: &GatewayError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.text())])
}

/// The JSON of an `isError` result, without the `resultType` of revision 2026-07-28.
pub(crate) fn error_result_json(error: &GatewayError) -> LineJson {
    let result = json!({ "content": [{ "type": "text", "text": error.text() }], "isError": true });
    LineJson::encode(&result).unwrap_or_else(|_| LineJson::object(&[]))
}

/// The text of a call's arguments, in the extensions of a request whose typed arguments are left out.
#[derive(Clone)]
pub(crate) struct RawArguments(Arc<RawValue>);

impl RawArguments {
    pub(crate) fn new(arguments: &RawValue) -> Self {
        Self(Arc::from(arguments.to_owned()))
    }

    /// The arguments of a request: from its stdio line, or from its HTTP body.
    pub(crate) fn of(context: &RequestContext) -> Option<Self> {
        let of_body = || context.extensions.get::<Parts>()?.extensions.get();
        context.extensions.get().or_else(of_body).cloned()
    }

    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

/// Names of all arguments of the gateway's tools; others are ignored.
const ARGUMENT_NAMES: [&str; 9] = [
    "agent_id",
    "server",
    "tool",
    "args",
    "timeout_ms",
    "include_metadata",
    "names",
    "pattern",
    "max_schema_tokens",
];

/// The arguments of a call of one of the gateway's tools, as JSON text. `null` counts as missing.
#[derive(Default)]
pub(crate) struct ToolArguments<'a> {
    fields: Vec<(&'static str, &'a RawValue)>,
    /// Problem of the object as a whole.
    invalid: Option<String>,
}

impl<'a> ToolArguments<'a> {
    /// Parses the object with the arguments; no object means no arguments.
    pub(crate) fn parse(arguments: Option<&'a RawValue>) -> Self {
        let Some(raw) = arguments else { return Self::default() };
        serde_json::from_str(raw.get()).unwrap_or_else(|error| {
            let invalid = Some(format!("the arguments cannot be read: {error}"));
            Self { fields: Vec::new(), invalid }
        })
    }

    /// Returns the claimed agent, `None` if it is empty.
    pub(crate) fn agent_id(&self) -> Result<Option<String>, GatewayError> {
        if let Some(sentence) = self.invalid.clone() {
            return Err(GatewayError::InvalidArgument { sentence });
        }
        self.string("agent_id").map(|id| id.filter(|id| !id.is_empty()))
    }

    fn field(&self, name: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.fields.iter().find(|(known, _)| *known == name)?;
        Some(*raw).filter(|raw| raw.get() != "null")
    }

    fn field_as<T: Deserialize<'a>>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, GatewayError> {
        let parsed = self.field(name).map(|raw| serde_json::from_str(raw.get())).transpose();
        parsed.map_err(|_| invalid_argument(name, expected))
    }

    fn string(&self, name: &str) -> Result<Option<String>, GatewayError> {
        self.field_as(name, "text")
    }

    pub(crate) fn required_string(&self, name: &str) -> Result<String, GatewayError> {
        let missing = || GatewayError::InvalidArgument { sentence: format!("`{name}` is missing") };
        self.string(name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    fn flag(&self, name: &str) -> Result<bool, GatewayError> {
        Ok(self.field_as(name, "true or false")?.unwrap_or_default())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, GatewayError> {
        self.field_as(name, "a whole number")
    }

    /// Returns an object as text; `{}` if it is missing. Some models send the object as a JSON string.
    pub(crate) fn object(&self, name: &str) -> Result<LineJson, GatewayError> {
        let invalid = || invalid_argument(name, "an object");
        match self.field(name) {
            None => Ok(LineJson::object(&[])),
            Some(raw) if raw.get().starts_with('{') => Ok(LineJson::new(raw.to_owned())),
            Some(raw) => {
                let text: String = serde_json::from_str(raw.get()).map_err(|_| invalid())?;
                // Limits the nesting, which the check of the message cannot see inside a string.
                serde_json::from_str::<JsonObject>(&text).map_err(|_| invalid())?;
                LineJson::parse(text).map_err(|_| invalid())
            }
        }
    }

    fn names(&self) -> Result<Vec<String>, GatewayError> {
        let trimmed = |text: &str| text.trim().to_owned();
        match self.field("names") {
            None => Ok(Vec::new()),
            Some(raw) if raw.get().starts_with('[') => {
                let names = self.field_as::<Vec<String>>("names", "a list of text")?;
                Ok(names.iter().flatten().map(|name| trimmed(name)).collect())
            }
            Some(_) => {
                let text = self.field_as::<String>("names", "text with commas or a list")?;
                let names = text.iter().flat_map(|text| text.split(',')).map(trimmed);
                Ok(names.filter(|name| !name.is_empty()).collect())
            }
        }
    }

    fn tool_filter(&self) -> Result<ToolFilter, GatewayError> {
        Ok(ToolFilter {
            server: self.required_string("server")?,
            names: self.names()?,
            pattern: self.string("pattern")?,
            max_schema_tokens: self.number("max_schema_tokens")?,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ToolArguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ToolArgumentsVisitor)
    }
}

#[derive(Deserialize)]
struct ArgumentKey<'a>(#[serde(borrow)] Cow<'a, str>);

struct ToolArgumentsVisitor;

impl<'de> Visitor<'de> for ToolArgumentsVisitor {
    type Value = ToolArguments<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut arguments = ToolArguments::default();
        while let Some(ArgumentKey(key)) = map.next_key()? {
            let Some(name) = ARGUMENT_NAMES.into_iter().find(|known| *known == key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            if arguments.fields.iter().any(|(known, _)| *known == name) {
                // Readers would disagree on its value.
                arguments.invalid = Some(format!("`{name}` is given twice"));
            } else {
                arguments.fields.push((name, value));
            }
        }
        Ok(arguments)
    }
}

/// The error for an argument with a wrong type or value.
pub(crate) fn invalid_argument(name: &str, expected: &str) -> GatewayError {
    GatewayError::InvalidArgument { sentence: format!("`{name}` must be {expected}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_tool_definitions_take_less_than_400_tokens() {
        let listed = serde_json::to_string(&definitions(false)).unwrap();
        let tokens = listed.chars().count() / 4;
        assert!(tokens < 400, "{tokens} tokens: {listed}");
    }
}
