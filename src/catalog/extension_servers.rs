//! Parser of an extension's MCP server: an entry as in `.mcp.json` plus its visibility.

use serde::Serialize;
use serde_json::{Map, Value};

use super::extensions::ExtensionDirs;
use crate::catalog::model::ServerEntry;
use crate::catalog::parse::{FileFormat, parse_json_entry};

/// Keys that have no effect behind the gateway. `trust` is a key of the `gemini-extension.json` format; it is ignored,
/// because it is set in agent files.
const MANIFEST_KEYS: [&str; 2] = ["visibility", "trust"];
/// Keys that have an effect behind the gateway only, which checks them.
const GATEWAY_KEYS: [&str; 3] = ["description", "pin", "start"];

/// Agents that may use the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// All agents that the gateway rules grant it to.
    Public,
    /// Only the agents of the extension.
    Private,
}

/// Returns the server as an entry of an agent file and as an entry of `.mcp.json`.
pub(crate) fn parse_server(
    name: &str,
    written: &Value,
    places: &ExtensionDirs<'_>,
) -> Result<(Visibility, ServerEntry, Value), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || name.contains("__") {
        return Err("its name has letters, digits, `-` and `_`, and no `__`".to_owned());
    }
    let Value::Object(entry) = written else { return Err("its entry is no object".to_owned()) };
    let mut entry = resolve_placeholders(entry, places);
    let visibility = visibility(&entry)?;
    for key in MANIFEST_KEYS {
        entry.shift_remove(key);
    }
    if let Some(url) = entry.shift_remove("httpUrl") {
        entry.entry("url").or_insert(url);
    }
    let mut own = entry.clone();
    own.retain(|key, _| !GATEWAY_KEYS.contains(&key.as_str()));
    let own = Value::Object(own);
    let server = parse_json_entry(name, &own, FileFormat::Manifest, &mut Vec::new())
        .map_err(|mistake| mistake.message)?;
    Ok((visibility, server, Value::Object(entry)))
}

/// Replaces `${extensionPath}`, `${workspacePath}`, `${/}` and `${pathSeparator}`.
/// Both manifest formats use them.
fn resolve_placeholders(
    entry: &Map<String, Value>,
    places: &ExtensionDirs<'_>,
) -> Map<String, Value> {
    entry.iter().map(|(key, value)| (key.clone(), resolve_value(value, places))).collect()
}

fn resolve_value(value: &Value, places: &ExtensionDirs<'_>) -> Value {
    match value {
        Value::String(text) => {
            let text = text
                .replace("${extensionPath}", &places.dir.to_string_lossy())
                .replace("${workspacePath}", &places.root.to_string_lossy())
                .replace("${/}", "/")
                .replace("${pathSeparator}", "/");
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| resolve_value(item, places)).collect(),
        Value::Object(members) => Value::Object(resolve_placeholders(members, places)),
        other => other.clone(),
    }
}

fn visibility(entry: &Map<String, Value>) -> Result<Visibility, String> {
    match entry.get("visibility").map(Value::as_str) {
        None | Some(Some("public")) => Ok(Visibility::Public),
        Some(Some("private")) => Ok(Visibility::Private),
        Some(_) => Err("`visibility` is `public` or `private`".to_owned()),
    }
}
