//! From a line to a frame.
//!
//! A line is never worth more than its conversation, so nothing here fails: what cannot be read is
//! `None`. Three things that real output has had are mended first, because losing the frame would
//! lose an answer: bytes that are no UTF-8, halves of surrogate pairs (JavaScript cuts strings in
//! the middle of an emoji and escapes what is left), and nesting deeper than is read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fields::{Fields, objects, texts};
use super::frame::{
    Assistant, Block, ControlKind, ControlReply, ControlRequest, Frame, Init, ServerStatus, System,
    ToolResult, Usage, User,
};
use super::result::ResultFrame;

/// The frame on a line, or `None` where the line is no JSON object.
pub fn parse_line(line: &[u8]) -> Option<Frame> {
    let line = line.trim_ascii();
    if line.first() != Some(&b'{') {
        return None;
    }
    match serde_json::from_slice(line).or_else(|_| serde_json::from_str(&mended(line))) {
        Ok(Value::Object(map)) => Some(frame(map)),
        Ok(_) => None,
        Err(_) => shallow(line),
    }
}

fn frame(mut map: Map<String, Value>) -> Frame {
    match map.text_or_empty("type").as_str() {
        "system" => Frame::System(system(map)),
        "assistant" => Frame::Assistant(assistant(map)),
        "user" => Frame::User(user(map)),
        "result" => Frame::Result(Box::new(ResultFrame::take_from(map))),
        "control_request" => Frame::ControlRequest(control_request(map)),
        "control_response" => Frame::ControlReply(control_reply(map)),
        "control_cancel_request" => {
            Frame::ControlCancel { request_id: map.text_or_empty("request_id") }
        }
        "stream_event" => stream_event(map),
        _ => Frame::Other,
    }
}

fn system(mut map: Map<String, Value>) -> System {
    let subtype = map.text_or_empty("subtype");
    match subtype.as_str() {
        "init" => System::Init(init(map)),
        "api_retry" => System::ApiRetry {
            attempt: map.whole("attempt").unwrap_or(0),
            max_retries: map.whole("max_retries").unwrap_or(0),
            delay_ms: map.whole("retry_delay_ms").unwrap_or(0),
            status: map.whole("error_status"),
            error: map.text_or_empty("error"),
        },
        "permission_denied" => System::PermissionDenied {
            tool_name: map.text_or_empty("tool_name"),
            message: map.text_or_empty("message"),
        },
        _ => System::Other { subtype },
    }
}

fn init(mut map: Map<String, Value>) -> Init {
    let server = |mut server: Map<String, Value>| ServerStatus {
        name: server.text_or_empty("name"),
        status: server.text_or_empty("status"),
    };
    Init {
        session_id: map.text_or_empty("session_id"),
        model: map.text_or_empty("model"),
        tools: texts(map.list("tools")),
        mcp_servers: objects(map.list("mcp_servers")).map(server).collect(),
        permission_mode: map.text_or_empty("permissionMode"),
        version: map.text_or_empty("claude_code_version"),
        cwd: map.text_or_empty("cwd"),
    }
}

fn assistant(mut map: Map<String, Value>) -> Assistant {
    let mut message = map.object("message");
    Assistant {
        message_id: message.text_or_empty("id"),
        model: message.text_or_empty("model"),
        blocks: objects(message.list("content")).map(block).collect(),
        usage: Usage::take_from(&message.object("usage")),
        parent_tool_use_id: map.text("parent_tool_use_id"),
        api_error: map.text("error"),
    }
}

fn block(mut map: Map<String, Value>) -> Block {
    match map.text_or_empty("type").as_str() {
        "text" => Block::Text(map.text_or_empty("text")),
        "tool_use" => Block::ToolUse {
            id: map.text_or_empty("id"),
            name: map.text_or_empty("name"),
            input: map.value("input").unwrap_or_default(),
        },
        _ => Block::Other,
    }
}

fn user(mut map: Map<String, Value>) -> User {
    let mut message = map.object("message");
    let results = objects(message.list("content"))
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_result"))
        .map(|mut block| ToolResult {
            tool_use_id: block.text_or_empty("tool_use_id"),
            is_error: block.flag("is_error"),
            text: content_text(block.value("content")),
        })
        .collect();
    User { results, parent_tool_use_id: map.text("parent_tool_use_id") }
}

/// A result's content is a text, or a list of blocks of which the texts count.
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
    ControlRequest { request_id: map.text_or_empty("request_id"), kind: control_kind(request) }
}

fn control_kind(mut request: Map<String, Value>) -> ControlKind {
    let subtype = request.text_or_empty("subtype");
    match subtype.as_str() {
        "hook_callback" => ControlKind::HookCallback {
            callback_id: request.text_or_empty("callback_id"),
            input: request.object("input"),
            tool_use_id: request.text("tool_use_id"),
        },
        "can_use_tool" => ControlKind::CanUseTool {
            tool_name: request.text_or_empty("tool_name"),
            input: request.value("input").unwrap_or_default(),
            tool_use_id: request.text_or_empty("tool_use_id"),
            suggestions: request.list("permission_suggestions"),
            reason: request.text("decision_reason"),
        },
        "mcp_message" => ControlKind::McpMessage {
            server: request.text_or_empty("server_name"),
            message: request.value("message").unwrap_or_default(),
        },
        _ => ControlKind::Other { subtype },
    }
}

fn control_reply(mut map: Map<String, Value>) -> ControlReply {
    let mut response = map.object("response");
    let outcome = if response.text_or_empty("subtype") == "error" {
        Err(response.text_or_empty("error"))
    } else {
        Ok(response.value("response").unwrap_or_default())
    };
    ControlReply { request_id: response.text_or_empty("request_id"), outcome }
}

fn stream_event(mut map: Map<String, Value>) -> Frame {
    let parent_tool_use_id = map.text("parent_tool_use_id");
    let mut event = map.object("event");
    match event.text_or_empty("type").as_str() {
        "message_start" => {
            let mut message = event.object("message");
            Frame::MessageStarted {
                parent_tool_use_id,
                message_id: message.text_or_empty("id"),
                model: message.text_or_empty("model"),
                usage: Usage::take_from(&message.object("usage")),
            }
        }
        "message_delta" => Frame::MessageEnded {
            parent_tool_use_id,
            usage: Usage::take_from(&event.object("usage")),
            wants_tools: event.object("delta").text("stop_reason").as_deref() == Some("tool_use"),
        },
        _ => match (parent_tool_use_id, event.object("delta").text("text")) {
            (None, Some(text)) => Frame::TextDelta { text },
            _ => Frame::Writing,
        },
    }
}

/// What can be known of a line that is nested too deeply: reading over a value needs no stack.
fn shallow(line: &[u8]) -> Option<Frame> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Line {
        r#type: String,
        request_id: String,
        request: Question,
        subtype: Option<String>,
        is_error: Option<bool>,
        result: Option<String>,
        session_id: String,
        total_cost_usd: f64,
        num_turns: u64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Question {
        subtype: String,
        callback_id: String,
    }
    let line: Line = serde_json::from_str(&mended(line)).ok()?;
    match line.r#type.as_str() {
        "control_request" => Some(Frame::ControlRequest(ControlRequest {
            request_id: line.request_id,
            kind: ControlKind::TooDeep {
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
            Some(Frame::Result(Box::new(ResultFrame::take_from(map))))
        }
        _ => Some(Frame::Other),
    }
}

/// The line as UTF-8 in which every escaped surrogate has its other half.
fn mended(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    match pair_surrogates(&text) {
        Some(paired) => Cow::Owned(paired),
        None => text,
    }
}

/// Replaces each half of a surrogate pair that stands alone; `None` where there is none.
fn pair_surrogates(text: &str) -> Option<String> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let here = at + found;
        let unit = escaped_unit(text, here);
        let pair = unit.filter(|unit| is_leading(*unit)).and_then(|_| escaped_unit(text, here + 6));
        at = match (unit, pair) {
            (Some(_), Some(low)) if is_trailing(low) => here + 12,
            (Some(unit), _) if is_leading(unit) || is_trailing(unit) => {
                mended.push_str(text.get(copied..here)?);
                mended.push_str("\\ufffd");
                copied = here + 6;
                here + 6
            }
            // Two bytes: the backslash and what it escapes, which is ASCII in any valid JSON.
            _ => next_boundary(text, here + 2),
        };
    }
    if copied == 0 {
        return None;
    }
    mended.push_str(text.get(copied..)?);
    Some(mended)
}

fn escaped_unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_leading(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_trailing(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

fn next_boundary(text: &str, mut at: usize) -> usize {
    while at < text.len() && !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
