//! Parser from an output line to an [`OutputFrame`].
//!
//! Never fails: an unreadable line is `None` and does not end the session. Three defects seen in real output are
//! repaired because dropping the frame would lose an answer: invalid UTF-8, lone surrogates (JavaScript cuts strings
//! inside an emoji and escapes the halves) and nesting deeper than the recursion limit of serde_json.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::control_handler::PermissionRequest;
use super::field_access::{FieldAccess, objects, texts};
use super::frame::{
    AssistantFrame, ControlPayload, ControlRequest, ControlResponse, InitFrame, MessageBlock,
    OutputFrame, ServerStatus, SystemFrame, TokenUsage, ToolResult, UserFrame,
};
use super::result::ResultFrame;
use crate::jsonrpc::LineJson;

/// Parses a line; `None` if it is not a JSON object.
pub(crate) fn parse_line(line: &[u8]) -> Option<OutputFrame> {
    let line = line.trim_ascii();
    if line.first() != Some(&b'{') {
        return None;
    }
    match serde_json::from_slice(line).or_else(|_| serde_json::from_str(&repair(line))) {
        Ok(Value::Object(map)) => Some(with_raw_message(frame(map), line)),
        Ok(_) => None,
        Err(_) => parse_flat_fields(line),
    }
}

/// Puts the text of an MCP message in place of its value, which does not keep the text of numbers.
fn with_raw_message(mut frame: OutputFrame, line: &[u8]) -> OutputFrame {
    #[derive(Deserialize)]
    struct McpLine<'a> {
        #[serde(borrow)]
        request: McpRequest<'a>,
    }
    #[derive(Deserialize)]
    struct McpRequest<'a> {
        #[serde(borrow)]
        message: &'a RawValue,
    }
    if let OutputFrame::ControlRequest(ControlRequest {
        payload: ControlPayload::McpMessage { message, .. },
        ..
    }) = &mut frame
        && let Ok(raw) = serde_json::from_slice::<McpLine<'_>>(line)
    {
        *message = LineJson::new(raw.request.message.to_owned());
    }
    frame
}

fn frame(mut map: Map<String, Value>) -> OutputFrame {
    match map.text_or_empty("type").as_str() {
        "system" => OutputFrame::System(system(map)),
        "assistant" => OutputFrame::Assistant(assistant(map)),
        "user" => OutputFrame::User(user(map)),
        "result" => OutputFrame::Result(Box::new(ResultFrame::from_map(map))),
        "control_request" => OutputFrame::ControlRequest(control_request(map)),
        "control_response" => OutputFrame::ControlResponse(control_reply(map)),
        "control_cancel_request" => {
            OutputFrame::ControlCancel { request_id: map.text_or_empty("request_id") }
        }
        "stream_event" => stream_event(map),
        _ => OutputFrame::Other,
    }
}

fn system(mut map: Map<String, Value>) -> SystemFrame {
    let subtype = map.text_or_empty("subtype");
    match subtype.as_str() {
        "init" => SystemFrame::Init(init(map)),
        "api_retry" => SystemFrame::ApiRetry {
            attempt: map.integer("attempt").unwrap_or(0),
            max_retries: map.integer("max_retries").unwrap_or(0),
            delay_ms: map.integer("retry_delay_ms").unwrap_or(0),
            status: map.integer("error_status"),
            error: map.text_or_empty("error"),
        },
        "permission_denied" => SystemFrame::PermissionDenied {
            tool_name: map.text_or_empty("tool_name"),
            message: map.text_or_empty("message"),
        },
        _ => SystemFrame::Other { subtype },
    }
}

fn init(mut map: Map<String, Value>) -> InitFrame {
    let server = |mut server: Map<String, Value>| ServerStatus {
        name: server.text_or_empty("name"),
        status: server.text_or_empty("status"),
    };
    InitFrame {
        session_id: map.text_or_empty("session_id"),
        model: map.text_or_empty("model"),
        tools: texts(map.list("tools")),
        mcp_servers: objects(map.list("mcp_servers")).map(server).collect(),
        permission_mode: map.text_or_empty("permissionMode"),
        version: map.text_or_empty("claude_code_version"),
        cwd: map.text_or_empty("cwd"),
    }
}

fn assistant(mut map: Map<String, Value>) -> AssistantFrame {
    let mut message = map.object("message");
    AssistantFrame {
        message_id: message.text_or_empty("id"),
        model: message.text_or_empty("model"),
        blocks: objects(message.list("content")).map(block).collect(),
        usage: TokenUsage::from_map(&message.object("usage")),
        parent_tool_use_id: map.text("parent_tool_use_id"),
        api_error: map.text("error"),
    }
}

fn block(mut map: Map<String, Value>) -> MessageBlock {
    match map.text_or_empty("type").as_str() {
        "text" => MessageBlock::Text(map.text_or_empty("text")),
        "tool_use" => MessageBlock::ToolUse {
            id: map.text_or_empty("id"),
            name: map.text_or_empty("name"),
            input: map.value("input").unwrap_or_default(),
        },
        _ => MessageBlock::Other,
    }
}

fn user(mut map: Map<String, Value>) -> UserFrame {
    let mut message = map.object("message");
    let results = objects(message.list("content"))
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_result"))
        .map(|mut block| ToolResult {
            tool_use_id: block.text_or_empty("tool_use_id"),
            is_error: block.flag("is_error"),
            text: content_text(block.value("content")),
        })
        .collect();
    UserFrame { results, parent_tool_use_id: map.text("parent_tool_use_id") }
}

/// Text of a tool result: a string, or the text blocks of a list joined by line feeds.
fn content_text(content: Option<Value>) -> String {
    match content {
        Some(Value::String(text)) => text,
        Some(Value::Array(blocks)) => {
            let texts: Vec<String> =
                objects(blocks).filter_map(|mut block| block.text("text")).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn control_request(mut map: Map<String, Value>) -> ControlRequest {
    let request = map.object("request");
    ControlRequest { request_id: map.text_or_empty("request_id"), payload: control_kind(request) }
}

fn control_kind(mut request: Map<String, Value>) -> ControlPayload {
    let subtype = request.text_or_empty("subtype");
    match subtype.as_str() {
        "hook_callback" => ControlPayload::HookCallback {
            callback_id: request.text_or_empty("callback_id"),
            input: request.object("input"),
            tool_use_id: request.text("tool_use_id"),
        },
        "can_use_tool" => ControlPayload::CanUseTool(PermissionRequest {
            tool_name: request.text_or_empty("tool_name"),
            input: request.value("input").unwrap_or_default(),
            tool_use_id: request.text_or_empty("tool_use_id"),
            suggestions: request.list("permission_suggestions"),
            reason: request.text("decision_reason"),
        }),
        "mcp_message" => ControlPayload::McpMessage {
            server: request.text_or_empty("server_name"),
            message: request
                .value("message")
                .and_then(|message| LineJson::encode(&message).ok())
                .unwrap_or_else(|| LineJson::object(&[])),
        },
        _ => ControlPayload::Other { subtype },
    }
}

fn control_reply(mut map: Map<String, Value>) -> ControlResponse {
    let mut response = map.object("response");
    let outcome = if response.text_or_empty("subtype") == "error" {
        Err(response.text_or_empty("error"))
    } else {
        Ok(response.value("response").unwrap_or_default())
    };
    ControlResponse { request_id: response.text_or_empty("request_id"), outcome }
}

fn stream_event(mut map: Map<String, Value>) -> OutputFrame {
    let parent_tool_use_id = map.text("parent_tool_use_id");
    let mut event = map.object("event");
    match event.text_or_empty("type").as_str() {
        "message_start" => {
            let mut message = event.object("message");
            OutputFrame::MessageStarted {
                parent_tool_use_id,
                message_id: message.text_or_empty("id"),
                model: message.text_or_empty("model"),
                usage: TokenUsage::from_map(&message.object("usage")),
            }
        }
        "message_delta" => OutputFrame::MessageEnded {
            parent_tool_use_id,
            usage: TokenUsage::from_map(&event.object("usage")),
            wants_tools: event.object("delta").text("stop_reason").as_deref() == Some("tool_use"),
        },
        _ => match (parent_tool_use_id, event.object("delta").text("text")) {
            (None, Some(text)) => OutputFrame::TextDelta { text },
            _ => OutputFrame::PartialContent,
        },
    }
}

/// Parses the flat fields of a line that is nested too deeply: skipping a value needs no recursion.
fn parse_flat_fields(line: &[u8]) -> Option<OutputFrame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct RawFrame {
        r#type: String,
        request_id: String,
        request: RawControlRequest,
        subtype: Option<String>,
        is_error: Option<bool>,
        result: Option<String>,
        session_id: String,
        total_cost_usd: f64,
        num_turns: u64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct RawControlRequest {
        subtype: String,
        callback_id: String,
    }
    let line: RawFrame = serde_json::from_str(&repair(line)).ok()?;
    match line.r#type.as_str() {
        "control_request" => Some(OutputFrame::ControlRequest(ControlRequest {
            request_id: line.request_id,
            payload: ControlPayload::TooDeep {
                subtype: line.request.subtype,
                callback_id: line.request.callback_id,
            },
        })),
        "result" => {
            let fields = serde_json::json!({
                "subtype": line.subtype, "is_error": line.is_error, "result": line.result,
                "session_id": line.session_id, "total_cost_usd": line.total_cost_usd,
                "num_turns": line.num_turns,
            });
            let Value::Object(map) = fields else { return None };
            Some(OutputFrame::Result(Box::new(ResultFrame::from_map(map))))
        }
        _ => Some(OutputFrame::Other),
    }
}

/// Returns the line as valid UTF-8 without lone escaped surrogates.
fn repair(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    match replace_lone_surrogates(&text) {
        Some(paired) => Cow::Owned(paired),
        None => text,
    }
}

/// Replaces each lone surrogate escape with `\ufffd`; `None` if there is none.
fn replace_lone_surrogates(text: &str) -> Option<String> {
    let mut repaired = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let here = at + found;
        let unit = decode_unicode_escape(text, here);
        let pair = unit
            .filter(|unit| is_high_surrogate(*unit))
            .and_then(|_| decode_unicode_escape(text, here + 6));
        at = match (unit, pair) {
            (Some(_), Some(low)) if is_low_surrogate(low) => here + 12,
            (Some(unit), _) if is_high_surrogate(unit) || is_low_surrogate(unit) => {
                repaired.push_str(text.get(copied..here)?);
                repaired.push_str("\\ufffd");
                copied = here + 6;
                here + 6
            }
            // Skips the backslash and the escaped character, which is ASCII in valid JSON.
            _ => next_char_boundary(text, here + 2),
        };
    }
    if copied == 0 {
        return None;
    }
    repaired.push_str(text.get(copied..)?);
    Some(repaired)
}

fn decode_unicode_escape(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_high_surrogate(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_low_surrogate(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

fn next_char_boundary(text: &str, mut at: usize) -> usize {
    while at < text.len() && !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
