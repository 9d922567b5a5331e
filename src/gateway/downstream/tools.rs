//! Reads the paginated lists of a server, with limits on pages, items and bytes.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::error::GatewayError;
use super::connection::DownstreamConnection;
use crate::util::{one_line, shorten};

const MAX_PAGES: usize = 500;
const MAX_ITEMS: usize = 5_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;
const MAX_NAME_BYTES: usize = 256;
/// Longer descriptions are truncated: no tool needs them, and they crowd out the task of the agent.
const MAX_DESCRIPTION_CHARS: usize = 16_000;

/// Tools of a server, in the order of the server.
#[derive(Debug, Default)]
pub struct ToolList {
    pub tools: Vec<Tool>,
    /// At most 20 warnings.
    pub warnings: Vec<String>,
    /// Tools that differ from their pins; set after the first comparison.
    pub(crate) changed: OnceLock<Vec<String>>,
}

impl ToolList {
    /// Returns the tool with exactly this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// One tool as described by its server.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    /// Complete definition, including annotations and output schema; only a long description is truncated.
    pub definition: Value,
    /// SHA-256 of the complete definition, since any part of it can reach an agent.
    pub digest: String,
    /// SHA-256 of name, description and input schema, as in pins of earlier versions.
    pub legacy_digest: String,
}

/// Reads all tools; invalid and duplicate tools are left out with a warning.
pub(crate) async fn read_tools(
    connection: &Arc<DownstreamConnection>,
    deadline: Duration,
) -> Result<ToolList, GatewayError> {
    let (definitions, mut warnings) =
        read_list(connection, "tools/list", "tools", deadline).await?;
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(definitions.len());
    for definition in definitions {
        match parse_tool(definition, &mut warnings) {
            Ok(tool) if !seen.insert(tool.name.clone()) => {
                warnings.push(format!("tool `{}` is listed twice; the first counts", tool.name));
            }
            Ok(tool) => tools.push(tool),
            Err(problem) => warnings.push(problem),
        }
    }
    warnings.truncate(20);
    Ok(ToolList { tools, warnings, changed: OnceLock::new() })
}

/// Reads every page of a list. The second value contains a warning if items were left out.
pub(crate) async fn read_list(
    connection: &Arc<DownstreamConnection>,
    method: &str,
    field: &str,
    deadline: Duration,
) -> Result<(Vec<Value>, Vec<String>), GatewayError> {
    let end = Instant::now() + deadline;
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut cursors = HashSet::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let timeout = end.duration_since(Instant::now());
        let mut page = connection.request(method, params, timeout, None).await?;
        let Some(Value::Array(found)) = page.get_mut(field).map(Value::take) else {
            let problem = format!("a page of its `{method}` has no list `{field}`");
            return match items.is_empty() {
                true => Err(connection.invalid_response_error(problem)),
                false => Ok((items, vec![problem])),
            };
        };
        for item in found {
            bytes += item.to_string().len();
            if items.len() >= MAX_ITEMS || bytes > MAX_BYTES {
                let problem = format!("`{method}` has more than {MAX_ITEMS} entries or 32 MiB");
                return Ok((items, vec![format!("{problem}; the rest is left out")]));
            }
            items.push(item);
        }
        let next = page.get("nextCursor").and_then(Value::as_str).unwrap_or_default();
        if next.is_empty() {
            return Ok((items, Vec::new()));
        }
        if !cursors.insert(next.to_owned()) {
            return Ok((items, vec![format!("`{method}` goes in circles; read once")]));
        }
        params = json!({ "cursor": next });
    }
    Ok((items, vec![format!("`{method}` has more than {MAX_PAGES} pages; the rest is left out")]))
}

fn parse_tool(mut definition: Value, warnings: &mut Vec<String>) -> Result<Tool, String> {
    let Some(name) = definition.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err("a tool without a name is left out".to_owned());
    };
    let shown = one_line(&shorten(&name, 60));
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(format!(
            "tool `{shown}` is left out: its name is empty, too long or unprintable"
        ));
    }
    let (digest, former_digest) = (digest(&definition), legacy_digest(&definition));
    let description = definition.get("description").and_then(Value::as_str).unwrap_or_default();
    if has_invisible_chars(description) {
        warnings.push(format!("the description of tool `{shown}` has invisible characters"));
    }
    if description.chars().count() > MAX_DESCRIPTION_CHARS {
        warnings.push(format!("the description of tool `{shown}` is very long and was cut"));
        let cut = shorten(description, MAX_DESCRIPTION_CHARS);
        if let Some(field) = definition.get_mut("description") {
            *field = Value::String(cut);
        }
    }
    Ok(Tool { name, definition, digest, legacy_digest: former_digest })
}

/// Returns true if `text` has characters that are invisible to a reviewer but not to a model.
fn has_invisible_chars(text: &str) -> bool {
    text.chars().any(|c| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
            || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
    })
}

/// Returns the digest with the prefix `whole:`; digests without a prefix are of the earlier kind.
fn digest(definition: &Value) -> String {
    format!("whole:{:x}", Sha256::digest(canonical_json(definition)))
}

fn legacy_digest(definition: &Value) -> String {
    let mut hasher = Sha256::new();
    for field in ["name", "description", "inputSchema"] {
        // The length before each part makes the hashed text unambiguous.
        let text = definition.get(field).map(canonical_json).unwrap_or_default();
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    }
    format!("{:x}", hasher.finalize())
}

/// Serializes JSON with sorted keys, so that the order of keys does not change the digest.
fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let inner: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}:{}", json!(key), canonical_json(value)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical_json).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn the_digest_ignores_the_order_of_keys() {
        let a = json!({"name": "a", "description": "d", "inputSchema": {"x": 1, "y": 2}});
        let b = json!({"inputSchema": {"y": 2, "x": 1}, "description": "d", "name": "a"});
        let c = json!({"name": "a", "description": "d ", "inputSchema": {"x": 1, "y": 2}});
        assert_eq!(digest(&a), digest(&b));
        assert_ne!(digest(&a), digest(&c));
    }

    #[test]
    fn g5_invisible_and_oversized_descriptions_are_flagged() {
        let mut warnings = Vec::new();
        let tool = parse_tool(
            json!({"name": "a", "description": "x".repeat(100_000) + "\u{200b}"}),
            &mut warnings,
        )
        .unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            tool.definition["description"].as_str().unwrap().chars().count()
                <= MAX_DESCRIPTION_CHARS
        );
        assert!(parse_tool(json!({"name": "n".repeat(10_000)}), &mut warnings).is_err());
    }

    #[test_case("title", "a: b"; "its title")]
    #[test_case("outputSchema", "{}"; "the schema of its results")]
    #[test_case("annotations", "{}"; "its annotations")]
    #[test_case("_meta", "{}"; "what else is said of it")]
    fn every_part_of_a_definition_is_pinned(field: &str, value: &str) {
        let before = json!({ "name": "t", "description": "d", "inputSchema": {} });
        let mut after = before.clone();
        after[field] = json!(value);
        assert_ne!(digest(&before), digest(&after));
    }
}
