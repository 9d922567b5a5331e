//! Server prompts at the start of a task: `/mcp__server__prompt`.
//!
//! `claude` offers MCP prompts as such commands but never requests prompts of `sdk` servers. The prompt is expanded
//! here, with authorization and audit entry as for a call.

use serde_json::{Map, Value, json};

use super::error::{GatewayError, near_miss};
use super::features::FeatureKind;
use super::sdk_servers::SdkServers;

impl SdkServers {
    /// Expands `/mcp__server__prompt arguments`; `None` if the task does not start with such a command.
    pub async fn resolve_prompt_command(&self, task: &str) -> Option<Result<String, GatewayError>> {
        let rest = task.trim_start().strip_prefix("/mcp__")?;
        let (command, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (server, prompt) = self
            .servers
            .keys()
            .find_map(|server| Some((server, command.strip_prefix(server)?.strip_prefix("__")?)))?;
        Some(self.expand_prompt(server, prompt, words.trim()).await)
    }

    async fn expand_prompt(
        &self,
        server: &str,
        prompt: &str,
        words: &str,
    ) -> Result<String, GatewayError> {
        let listed = self.list_features(server, FeatureKind::Prompts).await?;
        let id = |known: &&Value| FeatureKind::Prompts.id(known) == Some(prompt);
        let Some(known) = listed.iter().find(id) else {
            let names = listed.iter().filter_map(|known| FeatureKind::Prompts.id(known));
            let message = format!("it has no prompt `{prompt}`{}", near_miss(prompt, names));
            return Err(GatewayError::unavailable(server, message));
        };
        let params = json!({ "name": prompt, "arguments": prompt_arguments(known, words) });
        let result = self.fetch_feature(server, "prompts/get", params).await?;
        let messages = result.get("messages").and_then(Value::as_array).into_iter().flatten();
        let texts: Vec<&str> =
            messages.filter_map(|message| content_text(message.get("content")?)).collect();
        match texts.is_empty() {
            true => {
                Err(GatewayError::unavailable(server, format!("its prompt `{prompt}` has no text")))
            }
            false => Ok(texts.join("\n\n")),
        }
    }
}

/// Assigns words to the arguments in declared order; the last argument gets the rest.
fn prompt_arguments(prompt: &Value, words: &str) -> Map<String, Value> {
    let declared = prompt.get("arguments").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = declared.filter_map(|known| known.get("name")?.as_str()).collect();
    let values = words.splitn(names.len().max(1), char::is_whitespace).map(str::trim);
    let given = names.into_iter().zip(values).filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

fn content_text(content: &Value) -> Option<&str> {
    let text = content.get("text").or_else(|| content.get("resource")?.get("text"));
    text.and_then(Value::as_str)
}
