//! [`ControlHandler`]: answers the control requests of one `claude` process.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value, json};

use super::observation::Observation;
use crate::jsonrpc::{Frame, LineJson, Message};

/// Tool that the CLI adds with `--json-schema`; its only effect is to take the structured answer.
pub(crate) const STRUCTURED_OUTPUT_TOOL: &str = "StructuredOutput";

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers the control requests of a `claude` process.
///
/// Each request is answered in a task of its own beside the reader, so a slow answer delays only the tool it is about.
/// The future is dropped when the CLI cancels the request (after an interrupt) or the stream ends. A panic in the
/// future denies the request.
pub trait ControlHandler: Send + Sync + 'static {
    /// Decides on a tool call before any permission rule; a denial is final.
    ///
    /// The model sees the reason (2.1.325 prepends `PreToolUse:Bash hook error: `), and the call is listed in the
    /// result's `permission_denials`.
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookDecision>;

    /// Decides on a tool call that no rule allowed; the model sees exactly the message of a denial.
    fn can_use_tool(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer>;

    /// Answers a JSON-RPC message for an SDK server; `None` for a notification.
    ///
    /// Messages are handled concurrently: a notification may overtake the request before it.
    fn mcp_message(&self, server: String, message: LineJson) -> BoxFuture<'_, Option<LineJson>> {
        Box::pin(async move { unknown_server_response(&server, &message) })
    }

    /// Answers the callback of any other registered hook event, in the JSON format of a hook's stdout.
    fn hook_event(&self, event: String, payload: Map<String, Value>) -> BoxFuture<'_, Value> {
        let _ = (event, payload);
        Box::pin(async { json!({}) })
    }

    /// Receives events of the running turn. Called on the reader task: must not block.
    fn observe(&self, observation: &Observation<'_>) {
        let _ = observation;
    }
}

/// Tool call submitted to the `PreToolUse` hook.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// Name of the tool; MCP tools as `mcp__server__tool`.
    pub tool_name: String,
    pub input: Value,
    pub tool_use_id: String,
    /// Other fields of the hook's input: `session_id`, `cwd`, and `agent_id` for a native subagent.
    pub payload: Map<String, Value>,
}

/// Answer to a `PreToolUse` hook callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// No objection; the permission rules decide.
    Proceed,
    /// A person must decide, whatever the permission rules say: the CLI then sends `can_use_tool`.
    Ask { reason: String },
    Deny {
        /// Shown to the model.
        reason: String,
    },
    /// Denies the call and ends the turn.
    Stop { reason: String },
}

impl HookDecision {
    /// Returns the reason of a denial.
    pub fn denial_reason(&self) -> Option<&str> {
        match self {
            Self::Proceed | Self::Ask { .. } => None,
            Self::Deny { reason } | Self::Stop { reason } => Some(reason),
        }
    }
}

/// Tool call that no permission rule allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionRequest {
    pub tool_name: String,
    pub input: Value,
    pub tool_use_id: String,
    /// `permission_suggestions` of the CLI: rule changes that would allow the call.
    pub suggestions: Vec<Value>,
    /// `decision_reason` of the CLI.
    pub reason: Option<String>,
}

impl PermissionRequest {
    /// Returns the rule that would allow the call, such as `Bash(curl:*)`, if the CLI suggests one.
    pub fn suggested_rule(&self) -> Option<String> {
        let mut adding = self.suggestions.iter().filter(|suggestion| {
            suggestion.get("type").and_then(Value::as_str) == Some("addRules")
        });
        let rule = adding.find_map(|suggestion| suggestion.get("rules")?.get(0))?;
        let tool = rule.get("toolName")?.as_str()?;
        match rule.get("ruleContent").and_then(Value::as_str) {
            Some(content) => Some(format!("{tool}({content})")),
            None => Some(tool.to_owned()),
        }
    }
}

/// Answer to a [`PermissionRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum PermissionAnswer {
    Allow {
        /// Arguments to run the tool with: the requested ones or a replacement.
        updated_input: Value,
    },
    Deny {
        /// Shown to the model.
        message: String,
    },
}

fn unknown_server_response(server: &str, message: &LineJson) -> Option<LineJson> {
    let Ok(Message::Request { id, .. }) = Message::parse(message.as_str().as_bytes()) else {
        return None;
    };
    let text = format!("there is no server `{server}`");
    Some(Frame::error(&id.to_string(), -32601, &text, None).into_json())
}
