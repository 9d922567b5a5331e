//! What a server says it has, read page by page and never without end.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::connection::{Connection, RequestOptions};
use super::error::GatewayError;
use crate::base::{one_line, shorten};

const MAX_PAGES: usize = 500;
const MAX_ITEMS: usize = 5_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;
const LONGEST_NAME: usize = 256;
/// Longer descriptions are cut: no tool needs them, and they push an agent's own task out of sight.
const LONGEST_DESCRIPTION: usize = 16_000;

/// The tools of a server, in its own order.
#[derive(Debug, Default)]
pub struct ToolList {
    /// The tools.
    pub tools: Vec<Tool>,
    /// What is odd about them.
    pub warnings: Vec<String>,
    /// Those whose definitions differ from what was seen before, once compared.
    pub(super) changed: OnceLock<Vec<String>>,
}

impl ToolList {
    /// The tool of this exact name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// One tool as its server describes it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The whole definition, annotations and output schema included, unchanged.
    pub definition: Value,
    /// A digest of the whole definition: whatever of it reaches an agent can talk to it.
    pub digest: String,
    /// The digest that pins were made of before: name, description and schema.
    pub former_digest: String,
}

/// Reads all tools.
pub(super) async fn read_tools(
    connection: &Connection,
    deadline: Duration,
) -> Result<ToolList, GatewayError> {
    let (definitions, mut warnings) = read_all(connection, "tools/list", "tools", deadline).await?;
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(definitions.len());
    for definition in definitions {
        match read_tool(definition, &mut warnings) {
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

/// Reads every page of a list; the second value says what was left out and why.
pub(super) async fn read_all(
    connection: &Connection,
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
        let options = RequestOptions::within(end.duration_since(Instant::now()));
        let mut page = connection.request(method, params, options).await?;
        let Some(Value::Array(found)) = page.get_mut(field).map(Value::take) else {
            let problem = format!("a page of its `{method}` has no list `{field}`");
            return match items.is_empty() {
                true => Err(connection.bad_answer(problem)),
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

fn read_tool(mut definition: Value, warnings: &mut Vec<String>) -> Result<Tool, String> {
    let Some(name) = definition.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err("a tool without a name is left out".to_owned());
    };
    let shown = one_line(&shorten(&name, 60));
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(format!(
            "tool `{shown}` is left out: its name is empty, too long or unprintable"
        ));
    }
    let (digest, former_digest) = (digest(&definition), former_digest(&definition));
    let description = definition.get("description").and_then(Value::as_str).unwrap_or_default();
    if hides_something(description) {
        warnings.push(format!("the description of tool `{shown}` has invisible characters"));
    }
    if description.chars().count() > LONGEST_DESCRIPTION {
        warnings.push(format!("the description of tool `{shown}` is very long and was cut"));
        let cut = shorten(description, LONGEST_DESCRIPTION);
        if let Some(field) = definition.get_mut("description") {
            *field = Value::String(cut);
        }
    }
    Ok(Tool { name, definition, digest, former_digest })
}

/// Characters that a person who reviews a description does not see and a model does.
fn hides_something(text: &str) -> bool {
    text.chars().any(|c| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
            || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
    })
}

/// With its kind before it: what has none is a former one.
fn digest(definition: &Value) -> String {
    format!("whole:{:x}", Sha256::digest(sorted(definition)))
}

fn former_digest(definition: &Value) -> String {
    let mut hasher = Sha256::new();
    for field in ["name", "description", "inputSchema"] {
        // A length before each part: no two different tools hash alike.
        let text = definition.get(field).map(sorted).unwrap_or_default();
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    }
    format!("{:x}", hasher.finalize())
}

/// JSON with its keys in order: a server that shuffles them changes nothing.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let inner: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}:{}", json!(key), sorted(value)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn the_digest_sees_meaning_and_not_order() {
        let a = json!({"name": "a", "description": "d", "inputSchema": {"x": 1, "y": 2}});
        let b = json!({"inputSchema": {"y": 2, "x": 1}, "description": "d", "name": "a"});
        let c = json!({"name": "a", "description": "d ", "inputSchema": {"x": 1, "y": 2}});
        assert_eq!(digest(&a), digest(&b));
        assert_ne!(digest(&a), digest(&c));
    }

    #[test]
    fn g5_hidden_and_endless_descriptions_are_flagged() {
        let mut warnings = Vec::new();
        let tool = read_tool(
            json!({"name": "a", "description": "x".repeat(100_000) + "\u{200b}"}),
            &mut warnings,
        )
        .unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            tool.definition["description"].as_str().unwrap().chars().count() <= LONGEST_DESCRIPTION
        );
        assert!(read_tool(json!({"name": "n".repeat(10_000)}), &mut warnings).is_err());
    }

    #[test_case("title", "a: b"; "its title")]
    #[test_case("outputSchema", "{}"; "the schema of its results")]
    #[test_case("annotations", "{}"; "its annotations")]
    #[test_case("_meta", "{}"; "what else is said of it")]
    fn whatever_an_agent_reads_of_a_tool_is_pinned(field: &str, value: &str) {
        let before = json!({ "name": "t", "description": "d", "inputSchema": {} });
        let mut after = before.clone();
        after[field] = json!(value);
        assert_ne!(digest(&before), digest(&after));
    }
}
