//! What the parent writes: one JSON object a line.

use serde_json::{Map, Value, json};

use super::frame::ControlKind;
use super::parent::{Approval, HookVerdict};

/// A hook whose questions come over the pipe.
///
/// `SessionEnd` is not among them: the stream is closed by then and the CLI prints a stack trace. Nor is `SessionStart`:
/// neither version sends it to a callback. Both send all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookEvent {
    /// Before a tool is used; answered by `Parent::pre_tool_use`.
    PreToolUse,
    /// After a tool gave a result.
    PostToolUse,
    /// After a tool failed.
    PostToolUseFailure,
    /// When a prompt arrives.
    UserPromptSubmit,
    /// When the agent is about to stop.
    Stop,
    /// When a native subagent starts.
    SubagentStart,
    /// When a native subagent is about to stop.
    SubagentStop,
    /// Before the conversation is compacted.
    PreCompact,
    /// When the CLI wants attention.
    Notification,
}

impl HookEvent {
    /// All of them.
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

    /// Whether the CLI's messages tell of it as well, so that nobody needs to be asked for the record's sake: an answer
    /// that the CLI waits for holds every turn up.
    pub fn is_seen_anyway(self) -> bool {
        matches!(self, Self::UserPromptSubmit | Self::Stop)
    }

    /// The CLI's name of it.
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

    /// The event that was registered under a callback id.
    pub(super) fn of_callback(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.callback_id() == id)
    }
}

/// The handshake. `extra` has what else `initialize` takes, such as `systemPrompt`.
pub(super) fn initialize(
    request_id: &str,
    hooks: &[HookEvent],
    timeout_seconds: u64,
    extra: &Map<String, Value>,
) -> Vec<u8> {
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

/// A prompt.
///
/// A text that begins with a slash is a command to the CLI, which then answers itself, with
/// `success` and without asking the model; `--disable-slash-commands` only changes what it says.
/// Behind a line feed both versions take it for text.
pub(super) fn user_message(prompt: &str) -> Vec<u8> {
    let guard = if prompt.starts_with('/') { "\n" } else { "" };
    let content = format!("{guard}{prompt}");
    line(&json!({"type": "user", "message": {"role": "user", "content": content}}))
}

/// Ends the running turn; its result still comes.
pub(super) fn interrupt(request_id: &str) -> Vec<u8> {
    control_request(request_id, &json!({"subtype": "interrupt"}))
}

/// A JSON-RPC message from a tunnelled server to the CLI.
pub(super) fn mcp_message(request_id: &str, server: &str, message: &Value) -> Vec<u8> {
    let request = json!({"subtype": "mcp_message", "server_name": server, "message": message});
    control_request(request_id, &request)
}

/// An answer.
pub(super) fn reply(request_id: &str, response: &Value) -> Vec<u8> {
    line(&json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request_id, "response": response},
    }))
}

/// An answer that says there is none.
pub(super) fn refuse(request_id: &str, error: &str) -> Vec<u8> {
    line(&json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": error},
    }))
}

pub(super) fn verdict(verdict: HookVerdict) -> Value {
    match verdict {
        HookVerdict::Proceed => json!({}),
        HookVerdict::Ask { reason } => json!({"hookSpecificOutput": decision("ask", &reason)}),
        HookVerdict::Deny { reason } => json!({"hookSpecificOutput": decision("deny", &reason)}),
        HookVerdict::Stop { reason } => json!({
            "continue": false,
            "stopReason": reason,
            "hookSpecificOutput": decision("deny", &reason),
        }),
    }
}

fn decision(word: &str, reason: &str) -> Value {
    json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": word,
        "permissionDecisionReason": reason,
    })
}

pub(super) fn approval(approval: Approval) -> Value {
    match approval {
        Approval::Allow { updated_input } => {
            json!({"behavior": "allow", "updatedInput": updated_input})
        }
        Approval::Deny { message } => json!({"behavior": "deny", "message": message}),
    }
}

/// The CLI wants a response even to a notification; one whose id nobody waits for is let drop.
pub(super) fn mcp_response(response: Option<Value>) -> Value {
    let response = response.unwrap_or_else(|| json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
    json!({"mcp_response": response})
}

/// The answer when nobody could judge: a refusal in the form of the question.
///
/// An *error* as the answer to a hook lets the tool run (seen on both versions), so it is never that.
pub(super) fn closed_answer(request_id: &str, closed: &Closed, reason: &str) -> Vec<u8> {
    match closed {
        Closed::Hook => {
            reply(request_id, &verdict(HookVerdict::Deny { reason: reason.to_owned() }))
        }
        Closed::Approval => {
            reply(request_id, &approval(Approval::Deny { message: reason.to_owned() }))
        }
        Closed::Mcp { id } => {
            let error = json!({"code": -32603, "message": reason});
            let response =
                id.as_ref().map(|id| json!({"jsonrpc": "2.0", "id": id, "error": error}));
            reply(request_id, &mcp_response(response))
        }
        Closed::Ignorable => reply(request_id, &json!({})),
        Closed::Unknown => refuse(request_id, reason),
    }
}

/// What kind of question would have to be refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Closed {
    Hook,
    Approval,
    Mcp {
        id: Option<Value>,
    },
    /// A hook that only tells.
    Ignorable,
    Unknown,
}

impl Closed {
    pub(super) fn of(kind: &ControlKind) -> Self {
        match kind {
            ControlKind::HookCallback { callback_id, .. } => Self::hook(callback_id),
            ControlKind::CanUseTool { .. } => Self::Approval,
            ControlKind::McpMessage { message, .. } => Self::Mcp { id: message.get("id").cloned() },
            ControlKind::TooDeep { subtype, callback_id } => match subtype.as_str() {
                "hook_callback" => Self::hook(callback_id),
                "can_use_tool" => Self::Approval,
                _ => Self::Unknown,
            },
            ControlKind::Other { .. } => Self::Unknown,
        }
    }

    fn hook(callback_id: &str) -> Self {
        match HookEvent::of_callback(callback_id) {
            Some(HookEvent::PreToolUse) | None => Self::Hook,
            Some(_) => Self::Ignorable,
        }
    }
}

fn control_request(request_id: &str, request: &Value) -> Vec<u8> {
    line(&json!({"type": "control_request", "request_id": request_id, "request": request}))
}

fn line(value: &Value) -> Vec<u8> {
    let mut text = value.to_string();
    // Some readers of lines take these two for ends of lines; as escapes nobody does.
    if text.contains(['\u{2028}', '\u{2029}']) {
        text = text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    }
    let mut bytes = text.into_bytes();
    bytes.push(b'\n');
    bytes
}
