//! Builds the reply to a request: the next step of the script, in the format of the API.

use axum::http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::messages::{ScriptedMessage, find_script};
use super::script::{ScriptRound, parse_rounds};

/// Reply of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelReply {
    Message(ScriptedMessage),
    /// An HTTP error in the format of the API.
    Error {
        status: u16,
        /// Set if the client must not retry.
        is_final: bool,
        /// Message of the error, if it matters.
        message: Option<&'static str>,
    },
    /// A stream that ends after its first events.
    BrokenStream,
}

/// Returns the next round of the script in a request; without a script, the text `ok`.
pub(crate) fn next_round(body: &Value) -> ScriptRound {
    let text = match find_script(body, |text| !parse_rounds(text).is_empty()) {
        None => "ok".to_owned(),
        Some(place) => match parse_rounds(place.script).into_iter().nth(place.reply_count) {
            Some(round) => return round,
            None if place.results.is_empty() => "done".to_owned(),
            None => place.results.join("\n"),
        },
    };
    ScriptRound { message: ScriptedMessage::from_text(text), ..ScriptRound::default() }
}

/// Formats a response that is not streamed.
pub(crate) fn full_response(message: &ScriptedMessage, request: &Value) -> Value {
    let (read, written) = token_usage(message, request);
    let mut whole = message_head(request, read);
    if let Some(fields) = whole.as_object_mut() {
        fields.insert("content".into(), Value::Array(message.content_blocks()));
        fields.insert("stop_reason".into(), message.stop_reason().into());
        fields.insert("usage".into(), json!({"input_tokens": read, "output_tokens": written}));
    }
    whole
}

/// Formats the events of a streamed response.
pub(crate) fn stream_events(message: &ScriptedMessage, request: &Value) -> Vec<String> {
    let (read, written) = token_usage(message, request);
    let mut events = vec![json!({"type": "message_start", "message": message_head(request, read)})];
    for (index, block) in message.content_blocks().iter().enumerate() {
        let (empty, delta) = split_block(block);
        events.extend([
            json!({"type": "content_block_start", "index": index, "content_block": empty}),
            json!({"type": "content_block_delta", "index": index, "delta": delta}),
            json!({"type": "content_block_stop", "index": index}),
        ]);
    }
    let delta = json!({"stop_reason": message.stop_reason(), "stop_sequence": null});
    let usage = json!({"output_tokens": written});
    events.extend([
        json!({"type": "message_delta", "delta": delta, "usage": usage}),
        json!({"type": "message_stop"}),
    ]);
    events.iter().map(sse_event).collect()
}

/// Formats the status and body of an error.
pub(crate) fn error_response(status: u16, message: Option<&str>) -> (StatusCode, Value) {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let message = message.map_or_else(|| format!("scripted failure {status}"), str::to_owned);
    let body = json!({"type": "error", "error": {"type": kind, "message": message}});
    (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
}

/// Estimates tokens at 4 bytes each.
pub(crate) fn estimate_tokens(body: &Value) -> u64 {
    let bytes = ["system", "messages", "tools"]
        .iter()
        .filter_map(|key| body.get(key))
        .map(|part| part.to_string().len())
        .sum::<usize>();
    (bytes / 4) as u64
}

fn token_usage(message: &ScriptedMessage, request: &Value) -> (u64, u64) {
    let written = || {
        let calls: usize = message.calls.iter().map(|call| call.input.to_string().len()).sum();
        ((message.text.len() + calls) / 4 + 1) as u64
    };
    message.usage.unwrap_or_else(|| (estimate_tokens(request), written()))
}

fn message_head(request: &Value, read: u64) -> Value {
    json!({
        "id": format!("msg_{}", Uuid::now_v7().simple()),
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": read, "output_tokens": 1},
    })
}

/// Splits a content block into the empty block of `content_block_start` and its delta.
fn split_block(block: &Value) -> (Value, Value) {
    if let Some(text) = block.get("text") {
        let empty = json!({"type": "text", "text": ""});
        return (empty, json!({"type": "text_delta", "text": text}));
    }
    let (id, name) = (block.get("id"), block.get("name"));
    let empty = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let input = block.get("input").map(Value::to_string).unwrap_or_default();
    (empty, json!({"type": "input_json_delta", "partial_json": input}))
}

fn sse_event(data: &Value) -> String {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_message(content: &Value) -> Value {
        json!({"role": "user", "content": content})
    }

    fn tool_use_message() -> Value {
        json!({"role": "assistant", "content": [{"type": "tool_use"}]})
    }

    fn tool_result_message(text: &str) -> Value {
        user_message(&json!([{"type": "tool_result", "content": [{"type": "text", "text": text}]}]))
    }

    fn reply_text(messages: &[Value]) -> String {
        next_round(&json!({ "messages": messages })).message.text
    }

    #[test]
    fn each_tool_result_advances_the_script() {
        let script = user_message(&json!("CALL a {}\nCALL b {}"));
        let first = next_round(&json!({"messages": [script]})).message;
        assert_eq!(first.calls[0].name, "a");
        let around = json!({"role": "system", "content": "today"});
        let second = next_round(
            &json!({"messages": [script, around, tool_use_message(), tool_result_message("1")]}),
        )
        .message;
        assert_eq!(second.calls[0].name, "b");
        let all = vec![
            script,
            tool_use_message(),
            tool_result_message("1"),
            tool_use_message(),
            tool_result_message("2"),
        ];
        assert_eq!(reply_text(&all), "1\n2");
    }

    #[test]
    fn only_the_newest_script_counts() {
        let answer = json!({"role": "assistant", "content": "old"});
        let joined = user_message(&json!([
            {"type": "text", "text": "SAY cut off"},
            {"type": "text", "text": "[Request interrupted by user]"},
            {"type": "text", "text": "<context>\nnone\n</context>\n\nSAY new"},
        ]));
        assert_eq!(reply_text(&[user_message(&json!("SAY old")), answer, joined]), "new");
    }

    #[test]
    fn a_script_in_a_tool_result_is_ignored() {
        let script = user_message(&json!("CALL a {}"));
        assert_eq!(
            reply_text(&[script, tool_use_message(), tool_result_message("SAY evil")]),
            "SAY evil"
        );
    }

    #[test]
    fn a_request_without_a_script_gets_a_harmless_answer() {
        assert_eq!(reply_text(&[user_message(&json!("Write a title"))]), "ok");
        assert_eq!(next_round(&json!({})).message.text, "ok");
    }
}
