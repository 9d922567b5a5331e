//! Prompts of an agent's own servers: a task may begin with one.
//!
//! `claude` offers an MCP prompt as the command `/mcp__server__prompt`, and never asks a server at the far end of its pipe
//! for any. So a task that begins with such a command is put together here, and judged and written down like a call.

use serde_json::{Map, Value, json};

use super::error::GatewayError;
use super::tunnel::Tunnel;
use crate::base::nearest;

impl Tunnel {
    /// The text behind `/mcp__server__prompt words`; `None` where that names no server of the agent.
    pub async fn prompt_behind(&self, task: &str) -> Option<Result<String, GatewayError>> {
        let rest = task.trim_start().strip_prefix("/mcp__")?;
        let (command, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (server, prompt) = self
            .servers
            .keys()
            .find_map(|server| Some((server, command.strip_prefix(server)?.strip_prefix("__")?)))?;
        Some(self.put_together(server, prompt, words.trim()).await)
    }

    async fn put_together(
        &self,
        server: &str,
        prompt: &str,
        words: &str,
    ) -> Result<String, GatewayError> {
        let listed = self.page(server, "prompts", "prompts/list", "prompts").await?;
        let listed = listed.get("prompts").and_then(Value::as_array).into_iter().flatten();
        let named = |known: &&Value| known.get("name").and_then(Value::as_str) == Some(prompt);
        let Some(known) = listed.clone().find(named) else {
            let names = listed.filter_map(|known| known.get("name")?.as_str());
            let near = nearest(prompt, names).first().map(|near| format!("; is `{near}` meant?"));
            let message = format!("it has no prompt `{prompt}`{}", near.unwrap_or_default());
            return Err(GatewayError::unavailable(server, message));
        };
        let params = json!({ "name": prompt, "arguments": arguments(known, words) });
        let result = self.fetch(server, "prompts/get", params).await?;
        let messages = result.get("messages").and_then(Value::as_array).into_iter().flatten();
        let texts: Vec<&str> =
            messages.filter_map(|message| text(message.get("content")?)).collect();
        match texts.is_empty() {
            true => {
                Err(GatewayError::unavailable(server, format!("its prompt `{prompt}` has no text")))
            }
            false => Ok(texts.join("\n\n")),
        }
    }
}

/// The words in the order of the prompt's arguments; the last one has all the rest.
fn arguments(prompt: &Value, words: &str) -> Map<String, Value> {
    let declared = prompt.get("arguments").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = declared.filter_map(|known| known.get("name")?.as_str()).collect();
    let values = words.splitn(names.len().max(1), char::is_whitespace).map(str::trim);
    let given = names.into_iter().zip(values).filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

fn text(content: &Value) -> Option<&str> {
    let text = content.get("text").or_else(|| content.get("resource")?.get("text"));
    text.and_then(Value::as_str)
}
