//! Requests and messages of the Messages API.

use serde_json::{Value, json};
use uuid::Uuid;

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedToolCall {
    pub name: String,
    pub input: Value,
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptedMessage {
    pub text: String,
    pub calls: Vec<ScriptedToolCall>,
    /// Input and output tokens; estimated from the sizes if `None`.
    pub usage: Option<(u64, u64)>,
}

impl ScriptedMessage {
    /// Creates a message with text only.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns the content blocks as the API formats them.
    pub(crate) fn content_blocks(&self) -> Vec<Value> {
        let text = Some(&self.text).filter(|text| !text.is_empty() || self.calls.is_empty());
        let text = text.map(|text| json!({"type": "text", "text": text}));
        let calls = self.calls.iter().map(|call| {
            let id = format!("toolu_{}", Uuid::now_v7().simple());
            json!({"type": "tool_use", "id": id, "name": call.name, "input": call.input})
        });
        text.into_iter().chain(calls).collect()
    }

    pub(crate) fn stop_reason(&self) -> &'static str {
        if self.calls.is_empty() { "end_turn" } else { "tool_use" }
    }
}

/// The newest script of a request and the progress made in it.
pub(crate) struct ScriptPosition<'a> {
    /// Text block that contains the script.
    pub(crate) script: &'a str,
    /// Number of assistant messages since.
    pub(crate) reply_count: usize,
    /// Tool results since.
    pub(crate) results: Vec<String>,
}

/// Returns the newest user text that `is_script` accepts.
pub(crate) fn find_script(
    body: &Value,
    is_script: impl Fn(&str) -> bool,
) -> Option<ScriptPosition<'_>> {
    let messages = body.get("messages")?.as_array()?;
    let (at, script) = messages.iter().enumerate().rev().find_map(|(at, message)| {
        (role(message) == "user").then_some(())?;
        // Claude Code can join interrupted turns into one message; the last text counts.
        texts(message).into_iter().rev().find(|text| is_script(text)).map(|text| (at, text))
    })?;
    let since = messages.get(at..).unwrap_or_default();
    let answered = since
        .windows(2)
        // Claude Code 2.1.325 inserts a message of role `system` between the two.
        .filter(|pair| matches!(pair, [a, b] if role(a) != "assistant" && role(b) == "assistant"))
        .count();
    Some(ScriptPosition {
        script,
        reply_count: answered,
        results: since.iter().flat_map(tool_results).collect(),
    })
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn texts(message: &Value) -> Vec<&str> {
    match message.get("content") {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(blocks)) => blocks
            .iter()
            .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
            .filter_map(|block| block.get("text")?.as_str())
            .collect(),
        _ => Vec::new(),
    }
}

fn tool_results(message: &Value) -> Vec<String> {
    let Some(Value::Array(blocks)) = message.get("content") else { return Vec::new() };
    blocks
        .iter()
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_result"))
        .map(|block| match block.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        })
        .collect()
}
