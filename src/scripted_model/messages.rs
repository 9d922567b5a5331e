//! What a request says, and the message that answers it.

use serde_json::{Value, json};
use uuid::Uuid;

/// A tool that the model calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub input: Value,
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// What it says.
    pub text: String,
    /// The tools it calls.
    pub calls: Vec<ToolCall>,
    /// Tokens read and written; counted from the sizes where it is left out.
    pub usage: Option<(u64, u64)>,
}

impl Message {
    /// One that only says something.
    pub fn saying(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The blocks of the message as the API writes them.
    pub(super) fn blocks(&self) -> Vec<Value> {
        let text = Some(&self.text).filter(|text| !text.is_empty() || self.calls.is_empty());
        let text = text.map(|text| json!({"type": "text", "text": text}));
        let calls = self.calls.iter().map(|call| {
            let id = format!("toolu_{}", Uuid::now_v7().simple());
            json!({"type": "tool_use", "id": id, "name": call.name, "input": call.input})
        });
        text.into_iter().chain(calls).collect()
    }

    pub(super) fn stop_reason(&self) -> &'static str {
        if self.calls.is_empty() { "end_turn" } else { "tool_use" }
    }
}

/// Where the newest script stands, and how far it has come.
pub(super) struct Place<'a> {
    /// The text that has the script.
    pub(super) script: &'a str,
    /// How often the model has answered since.
    pub(super) answered: usize,
    /// What tools have given since.
    pub(super) results: Vec<String>,
}

/// The newest user text of which `is_script` holds.
pub(super) fn find_script(body: &Value, is_script: impl Fn(&str) -> bool) -> Option<Place<'_>> {
    let messages = body.get("messages")?.as_array()?;
    let (at, script) = messages.iter().enumerate().rev().find_map(|(at, message)| {
        (role(message) == "user").then_some(())?;
        // Turns that were cut off can be joined into one message: the last text counts.
        texts(message).into_iter().rev().find(|text| is_script(text)).map(|text| (at, text))
    })?;
    let since = messages.get(at..).unwrap_or_default();
    let answered = since
        .windows(2)
        // Between the two, 2.1.325 puts a message of role `system` about the surroundings.
        .filter(|pair| matches!(pair, [a, b] if role(a) != "assistant" && role(b) == "assistant"))
        .count();
    Some(Place { script, answered, results: since.iter().flat_map(tool_results).collect() })
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
