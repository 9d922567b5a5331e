//! A server of an extension: the same words as in `.mcp.json`, and who can have it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::extensions::Places;
use super::model::{Dialect, ServerEntry, ServerLaunch, Template};

const KEYS: [&str; 18] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "httpUrl",
    "headers",
    "type",
    "description",
    "visibility",
    "optional",
    "eager",
    "isolation",
    "timeout_ms",
    "timeout",
    "pin",
    "start",
    // What the other form has: `trust` is the agents' to say.
    "trust",
];

/// Who can have a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Whoever the gateway's rules grant it to.
    Public,
    /// The agents of the extension.
    Private,
}

/// The server as an agent's own, and as an entry of `.mcp.json`.
pub(super) fn read(
    name: &str,
    written: &Value,
    places: &Places<'_>,
) -> Result<(Visibility, ServerEntry, Value), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || name.contains("__") {
        return Err("its name has letters, digits, `-` and `_`, and no `__`".to_owned());
    }
    let Value::Object(entry) = written else { return Err("its entry is no object".to_owned()) };
    if let Some(key) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("unknown key `{key}`"));
    }
    let mut entry = placed(entry, places);
    let visibility = visibility(&entry)?;
    for key in ["visibility", "trust"] {
        entry.shift_remove(key);
    }
    if let Some(url) = entry.shift_remove("httpUrl") {
        entry.entry("url").or_insert(url);
    }
    let server = ServerEntry {
        optional: flag(&entry, "optional")?,
        eager: flag(&entry, "eager")?,
        per_run: isolation(&entry)?,
        timeout: timeout(&entry)?,
        ..ServerEntry::new(name, launch(&entry)?)
    };
    Ok((visibility, server, Value::Object(entry)))
}

/// `${extensionPath}` and its like, which both forms have, stand for real folders.
fn placed(entry: &Map<String, Value>, places: &Places<'_>) -> Map<String, Value> {
    entry.iter().map(|(key, value)| (key.clone(), replaced(value, places))).collect()
}

fn replaced(value: &Value, places: &Places<'_>) -> Value {
    match value {
        Value::String(text) => {
            let text = text
                .replace("${extensionPath}", &places.folder.to_string_lossy())
                .replace("${workspacePath}", &places.root.to_string_lossy())
                .replace("${/}", "/")
                .replace("${pathSeparator}", "/");
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| replaced(item, places)).collect(),
        Value::Object(members) => Value::Object(placed(members, places)),
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

fn launch(entry: &Map<String, Value>) -> Result<ServerLaunch, String> {
    let dialect = dialect(entry)?;
    match (entry.get("command"), entry.get("url")) {
        (Some(_), Some(_)) => Err("it has both `command` and `url`".to_owned()),
        (None, None) => Err("it has neither `command` nor `url`".to_owned()),
        (Some(_), None) if dialect.is_some() => {
            Err("it has a `command`, and a `type` that needs a `url`".to_owned())
        }
        (Some(command), None) => Ok(ServerLaunch::Stdio {
            command: template("command", command)?,
            args: templates(entry)?,
            env: named(entry, "env")?,
            cwd: entry.get("cwd").map(|cwd| template("cwd", cwd)).transpose()?,
        }),
        (None, Some(url)) => {
            let url = template("url", url)?;
            let known = ["http://", "https://", "${"];
            if !known.iter().any(|start| url.as_written().starts_with(start)) {
                return Err("`url` begins with `https://` or `http://`".to_owned());
            }
            let headers = named(entry, "headers")?;
            Ok(ServerLaunch::Http { url, headers, dialect: dialect.unwrap_or_default() })
        }
    }
}

/// What `type` says about a server on the network.
fn dialect(entry: &Map<String, Value>) -> Result<Option<Dialect>, String> {
    match entry.get("type").map(Value::as_str) {
        Some(Some("stdio")) if entry.contains_key("url") => {
            Err("it has a `url`, and the type `stdio`".to_owned())
        }
        None | Some(Some("stdio")) => Ok(None),
        Some(Some("http" | "streamable-http")) => Ok(Some(Dialect::Streamable)),
        Some(Some("sse")) => Ok(Some(Dialect::Sse)),
        Some(_) => Err("`type` is `stdio`, `http` or `sse`".to_owned()),
    }
}

fn template(key: &str, value: &Value) -> Result<Template, String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    let template =
        text.map(|text| Template(text.to_owned())).ok_or(format!("`{key}` is no text"))?;
    match template.mistake() {
        Some(mistake) => Err(format!("{mistake} in `{key}`")),
        None => Ok(template),
    }
}

fn templates(entry: &Map<String, Value>) -> Result<Vec<Template>, String> {
    let args = match entry.get("args") {
        None => return Ok(Vec::new()),
        Some(args) => args.as_array().ok_or("`args` is no list")?,
    };
    args.iter().map(|arg| template("args", arg)).collect()
}

fn named(entry: &Map<String, Value>, key: &str) -> Result<BTreeMap<String, Template>, String> {
    let members = match entry.get(key) {
        None => return Ok(BTreeMap::new()),
        Some(members) => members.as_object().ok_or(format!("`{key}` is no object"))?,
    };
    members.iter().map(|(name, value)| Ok((name.clone(), template(key, value)?))).collect()
}

fn flag(entry: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match entry.get(key) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or(format!("`{key}` is `true` or `false`")),
    }
}

fn isolation(entry: &Map<String, Value>) -> Result<bool, String> {
    match entry.get("isolation").map(Value::as_str) {
        None | Some(Some("agent" | "shared")) => Ok(false),
        Some(Some("run")) => Ok(true),
        Some(_) => Err("`isolation` is `shared`, `agent` or `run`".to_owned()),
    }
}

fn timeout(entry: &Map<String, Value>) -> Result<Option<Duration>, String> {
    let value = entry.get("timeout_ms").or_else(|| entry.get("timeout"));
    let milliseconds = |value: &Value| {
        value.as_u64().filter(|ms| *ms > 0).ok_or("`timeout_ms` is a whole number".to_owned())
    };
    Ok(value.map(milliseconds).transpose()?.map(Duration::from_millis))
}
