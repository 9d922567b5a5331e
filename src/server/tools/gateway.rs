//! The gateway's tools as MCP sees them: definitions, arguments in, results out.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, JsonObject,
    ProgressNotificationParam, Tool,
};
use rmcp::service::RequestContext;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::raw_results::RawSlot;
use super::who::tool_use_id;
use crate::base::{one_line, shorten};
use crate::gateway::{Execute, Gateway, GatewayError, ToolsWanted, Who, telling};
use crate::identity::{Caller, Doubt};

const LIST_SERVERS: &str = "list_servers";
const GET_SERVER_TOOLS: &str = "get_server_tools";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
const STATUS: &str = "get_gateway_status";

/// Progress that waits for a slow client; more is dropped, the newest first.
pub(super) const PROGRESS_WAITING: usize = 64;

/// The tools, in the order people meet them. Short on purpose: every agent carries them.
pub fn definitions(debug: bool) -> Vec<Tool> {
    let agent = json!({ "type": "string", "description": "Your agent name" });
    let text = json!({ "type": "string" });
    let mut tools = vec![
        tool(
            LIST_SERVERS,
            "MCP servers you may use",
            &[],
            json!({ "agent_id": agent, "include_metadata": { "type": "boolean" } }),
        ),
        tool(
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
        tool(
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
        tools.push(tool(STATUS, "State of the gateway", &[], json!({ "agent_id": agent })));
    }
    tools
}

fn tool(
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

/// Whether a tool of this name is the gateway's.
pub fn is_gateway_tool(name: &str, debug: bool) -> bool {
    matches!(name, LIST_SERVERS | GET_SERVER_TOOLS | EXECUTE_TOOL) || (debug && name == STATUS)
}

/// Calls one of the gateway's tools. `caller` is who makes this call, as far as that is known. A refusal or failure is a result with `isError`; a protocol error of a downstream
/// server stays one.
pub async fn call(
    gateway: &Gateway,
    caller: Result<Caller, Doubt>,
    name: &str,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let mut arguments = Arguments(arguments);
    let call_id = tool_use_id(context).unwrap_or_else(|| context.id.to_string());
    let claimed = arguments.agent_id();
    let who = who(caller, claimed.as_ref().ok().cloned().flatten(), call_id);
    let result = match claimed.and_then(|_| Asked::read(name, &mut arguments, context)) {
        Ok(asked) => asked.answer(gateway, &who, context).await,
        Err(wrong) => Err(gateway.refuse(operation(name), &who, wrong)),
    };
    match result {
        Ok(result) => Ok(result.into()),
        Err(GatewayError::Downstream { code, message, data }) => {
            Err(ErrorData::new(ErrorCode(code), message, data))
        }
        Err(error) if name == GET_SERVER_TOOLS => {
            Ok(no_tools(&ToolsWanted::default(), &error).into())
        }
        Err(error) => Ok(failure(&error).into()),
    }
}

/// What a tool is called in the audit log.
fn operation(name: &str) -> &'static str {
    let known = [LIST_SERVERS, GET_SERVER_TOOLS, EXECUTE_TOOL, STATUS];
    known.into_iter().find(|known| *known == name).unwrap_or("tools/call")
}

/// Who a call comes from, as far as that is known.
pub(super) fn who(caller: Result<Caller, Doubt>, agent_id: Option<String>, call_id: String) -> Who {
    let (caller, doubt) = match caller {
        Ok(caller) => (Some(caller).filter(Caller::is_sure), None),
        Err(doubt) => (None, Some(doubt)),
    };
    Who { caller, doubt, agent_id, call_id: Some(call_id) }
}

/// What is asked for, once the arguments are understood.
enum Asked {
    Servers { metadata: bool },
    Tools(ToolsWanted),
    Call(Execute),
    Status,
}

impl Asked {
    fn read(
        name: &str,
        arguments: &mut Arguments,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, GatewayError> {
        match name {
            LIST_SERVERS => Ok(Self::Servers { metadata: arguments.flag("include_metadata")? }),
            GET_SERVER_TOOLS => Ok(Self::Tools(arguments.tools_wanted()?)),
            EXECUTE_TOOL => Ok(Self::Call(arguments.execute(context)?)),
            STATUS => Ok(Self::Status),
            other => {
                let sentence = format!("there is no tool `{}`", one_line(&shorten(other, 256)));
                Err(GatewayError::InvalidArgument { sentence })
            }
        }
    }

    async fn answer(
        self,
        gateway: &Gateway,
        who: &Who,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, GatewayError> {
        match self {
            Self::Servers { metadata } => {
                let servers = gateway.list_servers(who, metadata)?;
                Ok(structured(servers.to_string(), json!({ "result": servers })))
            }
            Self::Tools(wanted) => match gateway.server_tools(who, &wanted).await {
                Ok(answer) => Ok(structured(answer.to_string(), answer)),
                Err(error) => Ok(no_tools(&wanted, &error)),
            },
            Self::Call(request) => {
                let server = request.server.clone();
                let raw = execute(gateway, who, request, context).await?;
                let raw = serde_json::from_str(raw.get())
                    .map_err(|error| GatewayError::unreadable(&server, &error))?;
                Ok(RawSlot::deliver(context, raw, CallToolResult::success(Vec::new())))
            }
            Self::Status => {
                let status = gateway.status(who)?;
                Ok(structured(status.to_string(), status))
            }
        }
    }
}

/// A failure in the shape that lists of tools have.
fn no_tools(wanted: &ToolsWanted, error: &GatewayError) -> CallToolResult {
    let mut result = failure(error);
    result.structured_content = Some(wanted.failed(error));
    result
}

/// Executes, and hands progress up while that goes on.
async fn execute(
    gateway: &Gateway,
    who: &Who,
    mut request: Execute,
    context: &RequestContext<RoleServer>,
) -> Result<Box<RawValue>, GatewayError> {
    let Some(token) = context.meta.get_progress_token() else {
        return gateway.execute(who, request).await;
    };
    let (sender, progress) = mpsc::channel(PROGRESS_WAITING);
    request.progress = Some(sender);
    let tell = |mut news: ProgressNotificationParam| {
        news.progress_token = token.clone();
        let told = context.peer.notify_progress(news);
        async move { drop(told.await) }
    };
    telling(gateway.execute(who, request), progress, tell).await
}

fn structured(text: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(value);
    result
}

fn failure(error: &GatewayError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.text())])
}

/// A refusal or a failure as JSON, in the revisions that begin with a handshake.
pub(super) fn failure_json(error: &GatewayError) -> String {
    json!({ "content": [{ "type": "text", "text": error.text() }], "isError": true }).to_string()
}

/// A tool's arguments on their way to being understood; `null` means missing.
struct Arguments(JsonObject);

impl Arguments {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn agent_id(&mut self) -> Result<Option<String>, GatewayError> {
        self.text("agent_id").map(|id| id.filter(|id| !id.is_empty()))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, GatewayError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "text")),
        }
    }

    fn required(&mut self, name: &str) -> Result<String, GatewayError> {
        let missing = || GatewayError::InvalidArgument { sentence: format!("`{name}` is missing") };
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    fn flag(&mut self, name: &str) -> Result<bool, GatewayError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, GatewayError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| wrong(name, "a whole number")),
        }
    }

    fn names(&mut self) -> Result<Vec<String>, GatewayError> {
        let trimmed = |text: &str| text.trim().to_owned();
        match self.take("names") {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => {
                Ok(text.split(',').map(trimmed).filter(|name| !name.is_empty()).collect())
            }
            Some(Value::Array(items)) => {
                let names = items.iter().map(|item| item.as_str().map(trimmed));
                names.collect::<Option<_>>().ok_or_else(|| wrong("names", "a list of text"))
            }
            Some(_) => Err(wrong("names", "text with commas or a list")),
        }
    }

    fn tools_wanted(&mut self) -> Result<ToolsWanted, GatewayError> {
        Ok(ToolsWanted {
            server: self.required("server")?,
            names: self.names()?,
            pattern: self.text("pattern")?,
            max_schema_tokens: self.number("max_schema_tokens")?,
        })
    }

    fn execute(&mut self, context: &RequestContext<RoleServer>) -> Result<Execute, GatewayError> {
        let timeout = self.number("timeout_ms")?;
        if timeout == Some(0) {
            return Err(wrong("timeout_ms", "more than 0"));
        }
        Ok(Execute {
            server: self.required("server")?,
            tool: self.required("tool")?,
            arguments: self.tool_arguments()?,
            timeout: timeout.map(Duration::from_millis),
            cancelled: context.ct.clone(),
            progress: None,
        })
    }

    fn tool_arguments(&mut self) -> Result<Box<RawValue>, GatewayError> {
        let object = match self.take("args") {
            None => json!({}),
            // Some models write the object as a text.
            Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or_default(),
            Some(value) => value,
        };
        let written = object.is_object().then(|| to_raw_value(&object).ok()).flatten();
        written.ok_or_else(|| wrong("args", "an object"))
    }
}

/// An argument that is not what it must be.
pub(super) fn wrong(name: &str, expected: &str) -> GatewayError {
    GatewayError::InvalidArgument { sentence: format!("`{name}` must be {expected}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_tools_cost_less_than_400_tokens() {
        let listed = serde_json::to_string(&definitions(false)).unwrap();
        let tokens = listed.chars().count() / 4;
        assert!(tokens < 400, "{tokens} tokens: {listed}");
    }
}
