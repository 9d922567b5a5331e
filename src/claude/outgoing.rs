//! Input frames for the CLI: one JSON object per line.

use serde_json::{Map, Value, json};

use super::control_handler::{HookDecision, PermissionAnswer};
use super::frame::ControlPayload;
use crate::jsonrpc::{Frame, Id, LineJson, Message};

/// A hook event that can be registered as a callback.
///
/// `SessionEnd` is left out: the stream is closed by then and the CLI prints a stack trace. `SessionStart` is left out:
/// neither version calls the callback. Both versions call all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookEvent {
    /// Before a tool call; answered by `ControlHandler::pre_tool_use`.
    PreToolUse,
    /// After a successful tool call.
    PostToolUse,
    /// After a failed tool call.
    PostToolUseFailure,
    UserPromptSubmit,
    /// Before the agent stops.
    Stop,
    /// Before a native subagent starts.
    SubagentStart,
    /// Before a native subagent stops.
    SubagentStop,
    /// Before the session is compacted.
    PreCompact,
    Notification,
}

impl HookEvent {
    pub const ALL: [Self; 9] = [
        Self::PreToolUse,
        Self::PostToolUse,
        Self::PostToolUseFailure,
        Self::UserPromptSubmit,
        Self::Stop,
        Self::SubagentStart,
        Self::SubagentStop,
        Self::PreCompact,
        Self::Notification,
    ];

    /// True if the output frames imply the event, so that recording it needs no callback.
    /// The CLI waits for the answer to each callback, which delays every turn.
    pub fn is_implied_by_output(self) -> bool {
        matches!(self, Self::UserPromptSubmit | Self::Stop)
    }

    /// Name of the event in the CLI.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::Stop => "Stop",
            Self::SubagentStart => "SubagentStart",
            Self::SubagentStop => "SubagentStop",
            Self::PreCompact => "PreCompact",
            Self::Notification => "Notification",
        }
    }

    fn callback_id(self) -> String {
        format!("hook-{}", self.name())
    }

    /// Returns the event registered under a callback id.
    pub(crate) fn from_callback_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.callback_id() == id)
    }
}

/// `initialize` control request. `extra` holds further fields, such as `systemPrompt`.
pub(crate) fn initialize(
    request_id: &str,
    hooks: &[HookEvent],
    timeout_seconds: u64,
    extra: &Map<String, Value>,
) -> Frame {
    let mut registered = Map::new();
    for event in hooks {
        let ids = [event.callback_id()];
        let entry = json!([{"matcher": null, "hookCallbackIds": ids, "timeout": timeout_seconds}]);
        registered.insert(event.name().to_owned(), entry);
    }
    let mut request = extra.clone();
    request.insert("subtype".to_owned(), json!("initialize"));
    if !registered.is_empty() {
        request.insert("hooks".to_owned(), Value::Object(registered));
    }
    control_request(request_id, &Value::Object(request))
}

/// User message with a prompt.
///
/// A leading slash would make the text a CLI command, answered with `success` and without the model;
/// `--disable-slash-commands` only changes that answer. After a line feed both versions treat the text as a prompt.
pub(crate) fn user_message(prompt: &str) -> Frame {
    let prefix = if prompt.starts_with('/') { "\n" } else { "" };
    let content = format!("{prefix}{prompt}");
    let message = json!({"role": "user", "content": content});
    to_frame(&json!({"type": "user", "message": message}).to_string())
}

/// Interrupt request; the result of the turn still arrives.
pub(crate) fn interrupt(request_id: &str) -> Frame {
    control_request(request_id, &json!({"subtype": "interrupt"}))
}

/// JSON-RPC message from an SDK server to the CLI.
pub(crate) fn mcp_message(request_id: &str, server: &str, message: &Value) -> Frame {
    let request = json!({"subtype": "mcp_message", "server_name": server, "message": message});
    control_request(request_id, &request)
}

/// Success response to a control request.
pub(crate) fn success_response(request_id: &str, response: &LineJson) -> Frame {
    let (subtype, id) = (LineJson::string("success"), LineJson::string(request_id));
    let fields = [("subtype", &subtype), ("request_id", &id), ("response", response)];
    let (kind, response) = (LineJson::string("control_response"), LineJson::object(&fields));
    to_frame(LineJson::object(&[("type", &kind), ("response", &response)]).as_str())
}

/// Encodes a value; values of ours can always be encoded.
pub(crate) fn encode(value: &Value) -> LineJson {
    LineJson::encode(value).unwrap_or_else(|_| LineJson::object(&[]))
}

/// Error response to a control request.
pub(crate) fn error_response(request_id: &str, error: &str) -> Frame {
    let response = json!({"subtype": "error", "request_id": request_id, "error": error});
    to_frame(&json!({"type": "control_response", "response": response}).to_string())
}

pub(crate) fn hook_response(verdict: HookDecision) -> Value {
    match verdict {
        HookDecision::Proceed => json!({}),
        HookDecision::Ask { reason } => {
            json!({"hookSpecificOutput": permission_decision("ask", &reason)})
        }
        HookDecision::Deny { reason } => {
            json!({"hookSpecificOutput": permission_decision("deny", &reason)})
        }
        HookDecision::Stop { reason } => json!({
            "continue": false,
            "stopReason": reason,
            "hookSpecificOutput": permission_decision("deny", &reason),
        }),
    }
}

fn permission_decision(word: &str, reason: &str) -> Value {
    json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": word,
        "permissionDecisionReason": reason,
    })
}

pub(crate) fn permission_response(approval: PermissionAnswer) -> Value {
    match approval {
        PermissionAnswer::Allow { updated_input } => {
            json!({"behavior": "allow", "updatedInput": updated_input})
        }
        PermissionAnswer::Deny { message } => json!({"behavior": "deny", "message": message}),
    }
}

/// The CLI expects a response to a notification too; a response with an unknown id is ignored.
pub(crate) fn mcp_response(response: Option<LineJson>) -> LineJson {
    let ignored = || Frame::result(&Id::Number(0), &LineJson::object(&[])).into_json();
    LineJson::object(&[("mcp_response", &response.unwrap_or_else(ignored))])
}

/// Denies a request that could not be checked, in the response format of that request.
///
/// Only an unknown subtype gets an error response; a hook never does, because both versions then run the tool.
pub(crate) fn denial_response(
    request_id: &str,
    closed: &ControlRequestKind,
    reason: &str,
) -> Frame {
    match closed {
        ControlRequestKind::Hook => success_response(
            request_id,
            &encode(&hook_response(HookDecision::Deny { reason: reason.to_owned() })),
        ),
        ControlRequestKind::Permission => success_response(
            request_id,
            &encode(&permission_response(PermissionAnswer::Deny { message: reason.to_owned() })),
        ),
        ControlRequestKind::Mcp { id } => {
            let error = |id: &Id| Frame::error(&id.to_string(), -32603, reason, None).into_json();
            let response = id.as_ref().map(error);
            success_response(request_id, &mcp_response(response))
        }
        ControlRequestKind::InformationalHook => {
            success_response(request_id, &LineJson::object(&[]))
        }
        ControlRequestKind::Unknown => error_response(request_id, reason),
    }
}

/// Kind of a control request, which decides the format of a denial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlRequestKind {
    Hook,
    Permission,
    Mcp {
        id: Option<Id>,
    },
    /// A hook whose answer has no effect on the call.
    InformationalHook,
    Unknown,
}

impl ControlRequestKind {
    pub(crate) fn of(kind: &ControlPayload) -> Self {
        match kind {
            ControlPayload::HookCallback { callback_id, .. } => Self::of_hook(callback_id),
            ControlPayload::CanUseTool(_) => Self::Permission,
            ControlPayload::McpMessage { message, .. } => {
                let message = Message::parse(message.as_str().as_bytes());
                Self::Mcp {
                    id: match message {
                        Ok(Message::Request { id, .. }) => Some(id),
                        _ => None,
                    },
                }
            }
            ControlPayload::TooDeep { subtype, callback_id } => match subtype.as_str() {
                "hook_callback" => Self::of_hook(callback_id),
                "can_use_tool" => Self::Permission,
                _ => Self::Unknown,
            },
            ControlPayload::Other { .. } => Self::Unknown,
        }
    }

    fn of_hook(callback_id: &str) -> Self {
        match HookEvent::from_callback_id(callback_id) {
            Some(HookEvent::PreToolUse) | None => Self::Hook,
            Some(_) => Self::InformationalHook,
        }
    }
}

fn control_request(request_id: &str, request: &Value) -> Frame {
    let frame = json!({"type": "control_request", "request_id": request_id, "request": request});
    to_frame(&frame.to_string())
}

fn to_frame(text: &str) -> Frame {
    let mut text = text.to_owned();
    // Some line readers treat U+2028 and U+2029 as line ends; escapes are safe.
    if text.contains(['\u{2028}', '\u{2029}']) {
        text = text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    }
    Frame::seal(text.into_bytes())
}
