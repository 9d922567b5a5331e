//! What the parent of a `claude` decides.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value, json};

use super::observation::Observation;

/// With `--json-schema` the CLI has a tool of its own that does nothing but take the answer.
pub const ANSWER_TOOL: &str = "StructuredOutput";

/// A future that can be moved to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers what the CLI asks.
///
/// Each question is answered in a task of its own, beside the loop that reads: taking long delays
/// nothing but the tool it is about. When the CLI no longer wants the answer (an interrupt, the end
/// of the stream) the future is dropped. A panic in one is a refusal, never a permission.
pub trait Parent: Send + Sync + 'static {
    /// Judges a tool call before any permission rule; a refusal here is final.
    ///
    /// The model is told the reason (2.1.325 puts `PreToolUse:Bash hook error: ` before it), and
    /// the call appears in the result's `permission_denials`. Nobody asks again.
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict>;

    /// Judges a tool call that no rule allowed; the model is told exactly the message of a refusal.
    fn can_use_tool(&self, request: ApprovalRequest) -> BoxFuture<'_, Approval>;

    /// Answers a JSON-RPC message for the tunnelled server; `None` for a notification.
    ///
    /// Messages are handled side by side: a notification may overtake the request before it.
    fn mcp_message(&self, server: String, message: Value) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async move { no_such_server(&server, &message) })
    }

    /// Answers another hook that was registered, in the form a hook prints on its stdout.
    fn hook_event(&self, event: String, payload: Map<String, Value>) -> BoxFuture<'_, Value> {
        let _ = (event, payload);
        Box::pin(async { json!({}) })
    }

    /// Sees what happens. Called from the loop that reads: it must be quick.
    fn observe(&self, observation: &Observation<'_>) {
        let _ = observation;
    }
}

/// A tool call that waits for a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// The tool, MCP tools under their `mcp__server__tool` names.
    pub tool_name: String,
    /// Its arguments.
    pub input: Value,
    /// The call's id.
    pub tool_use_id: String,
    /// The rest of the hook's payload: `session_id`, `cwd`, and for a native subagent `agent_id`.
    pub payload: Map<String, Value>,
}

/// A verdict on a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookVerdict {
    /// No objection; the permission rules decide.
    Proceed,
    /// A person shall decide, whatever the permission rules say: `can_use_tool` comes.
    Ask {
        /// Why.
        reason: String,
    },
    /// Refused.
    Deny {
        /// What the model is told.
        reason: String,
    },
    /// Refused, and the turn ends.
    Stop {
        /// Why.
        reason: String,
    },
}

impl HookVerdict {
    /// Why it is refused, if it is.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Proceed | Self::Ask { .. } => None,
            Self::Deny { reason } | Self::Stop { reason } => Some(reason),
        }
    }
}

/// A tool call that no rule allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The tool.
    pub tool_name: String,
    /// Its arguments.
    pub input: Value,
    /// The call's id.
    pub tool_use_id: String,
    /// What would allow it, as the CLI's `permission_suggestions`.
    pub suggestions: Vec<Value>,
    /// Why it asks, where it says so.
    pub reason: Option<String>,
}

impl ApprovalRequest {
    /// The rule that would allow it, such as `Bash(curl:*)`, where the CLI names one.
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

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum Approval {
    /// It may.
    Allow {
        /// The arguments it runs with: those that were asked for, or others.
        updated_input: Value,
    },
    /// It may not.
    Deny {
        /// What the model is told.
        message: String,
    },
}

fn no_such_server(server: &str, message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let text = format!("there is no server `{server}`");
    Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": text}}))
}
