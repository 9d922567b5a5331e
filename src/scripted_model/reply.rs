//! From a request to the reply: what the script says, and how the API would write it.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::messages::{Message, find_script};
use super::script::{Failure, Round, rounds};

/// What the model answers a request with.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A message.
    Message(Message),
    /// An HTTP error in the API's form.
    Error {
        /// The status.
        status: u16,
        /// Whether the client is told not to try again.
        is_final: bool,
        /// What the API says, where that matters.
        message: Option<&'static str>,
    },
    /// A message whose stream breaks off after its first words.
    BrokenOff,
}

/// What a request's script wants next.
pub(super) struct Scripted {
    pub(super) sleep: Duration,
    pub(super) failure: Option<Failure>,
    pub(super) message: Message,
}

/// Reads the script out of a request; requests without one get a harmless answer.
pub(super) fn follow(body: &Value) -> Scripted {
    let place = find_script(body, |text| !rounds(text).is_empty());
    let Some(place) = place else { return plain(Message::saying("ok")) };
    match rounds(place.script).into_iter().nth(place.answered) {
        Some(round) => scripted(round),
        None if place.results.is_empty() => plain(Message::saying("done")),
        None => plain(Message::saying(place.results.join("\n"))),
    }
}

fn scripted(round: Round) -> Scripted {
    let message = Message { text: round.text.join("\n"), calls: round.calls, usage: round.usage };
    Scripted { sleep: round.sleep, failure: round.failure, message }
}

fn plain(message: Message) -> Scripted {
    Scripted { sleep: Duration::ZERO, failure: None, message }
}

/// The whole message, for a request that is not streamed.
pub(super) fn whole(message: &Message, request: &Value) -> Value {
    let (read, written) = tokens(message, request);
    let mut whole = head(request, read);
    if let Some(fields) = whole.as_object_mut() {
        fields.insert("content".into(), Value::Array(message.blocks()));
        fields.insert("stop_reason".into(), message.stop_reason().into());
        fields.insert("usage".into(), json!({"input_tokens": read, "output_tokens": written}));
    }
    whole
}

/// The events of a streamed message.
pub(super) fn events(message: &Message, request: &Value) -> Vec<String> {
    let (read, written) = tokens(message, request);
    let mut events = vec![event(&json!({"type": "message_start", "message": head(request, read)}))];
    for (index, block) in message.blocks().iter().enumerate() {
        let (empty, delta) = opened(block);
        events.push(event(
            &json!({"type": "content_block_start", "index": index, "content_block": empty}),
        ));
        events.push(event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(event(&json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": message.stop_reason(), "stop_sequence": null},
        "usage": {"output_tokens": written},
    })));
    events.push(event(&json!({"type": "message_stop"})));
    events
}

/// An error's status and body.
pub(super) fn error(status: u16, message: Option<&str>) -> (StatusCode, Value) {
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

/// About four bytes make a token, which is near enough for anything that is shown.
pub(super) fn count_tokens(body: &Value) -> u64 {
    let bytes = ["system", "messages", "tools"]
        .iter()
        .filter_map(|key| body.get(key))
        .map(|part| part.to_string().len())
        .sum::<usize>();
    (bytes / 4) as u64
}

fn tokens(message: &Message, request: &Value) -> (u64, u64) {
    let written = || {
        let calls: usize = message.calls.iter().map(|call| call.input.to_string().len()).sum();
        ((message.text.len() + calls) / 4 + 1) as u64
    };
    message.usage.unwrap_or_else(|| (count_tokens(request), written()))
}

fn head(request: &Value, read: u64) -> Value {
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

/// A block as it is announced, empty, and the piece that fills it.
fn opened(block: &Value) -> (Value, Value) {
    if let Some(text) = block.get("text") {
        let empty = json!({"type": "text", "text": ""});
        return (empty, json!({"type": "text_delta", "text": text}));
    }
    let (id, name) = (block.get("id"), block.get("name"));
    let empty = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let input = block.get("input").map(Value::to_string).unwrap_or_default();
    (empty, json!({"type": "input_json_delta", "partial_json": input}))
}

fn event(data: &Value) -> String {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(content: &Value) -> Value {
        json!({"role": "user", "content": content})
    }

    fn calling() -> Value {
        json!({"role": "assistant", "content": [{"type": "tool_use"}]})
    }

    fn result(text: &str) -> Value {
        user(&json!([{"type": "tool_result", "content": [{"type": "text", "text": text}]}]))
    }

    fn said(messages: &[Value]) -> String {
        follow(&json!({ "messages": messages })).message.text
    }

    #[test]
    fn steps_advance_with_the_results() {
        let script = user(&json!("CALL a {}\nCALL b {}"));
        let first = follow(&json!({"messages": [script]})).message;
        assert_eq!(first.calls[0].name, "a");
        let around = json!({"role": "system", "content": "today"});
        let second = follow(&json!({"messages": [script, around, calling(), result("1")]})).message;
        assert_eq!(second.calls[0].name, "b");
        let all = vec![script, calling(), result("1"), calling(), result("2")];
        assert_eq!(said(&all), "1\n2");
    }

    #[test]
    fn only_the_newest_script_counts() {
        let answer = json!({"role": "assistant", "content": "old"});
        let joined = user(&json!([
            {"type": "text", "text": "SAY cut off"},
            {"type": "text", "text": "[Request interrupted by user]"},
            {"type": "text", "text": "<context>\nnone\n</context>\n\nSAY new"},
        ]));
        assert_eq!(said(&[user(&json!("SAY old")), answer, joined]), "new");
    }

    #[test]
    fn what_a_tool_gave_is_no_script() {
        let script = user(&json!("CALL a {}"));
        assert_eq!(said(&[script, calling(), result("SAY evil")]), "SAY evil");
    }

    #[test]
    fn a_request_without_a_script_gets_a_harmless_answer() {
        assert_eq!(said(&[user(&json!("Write a title"))]), "ok");
        assert_eq!(follow(&json!({})).message.text, "ok");
    }
}
