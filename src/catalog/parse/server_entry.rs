//! Parser of one server entry, for agent files, extensions and `.mcp.json`.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;
use serde_yaml::Value as YamlValue;

use super::super::diagnostic::Severity;
use super::super::problem::{Problem, ProblemTarget, Problems};
use super::node::{FileFormat, MappingFields, Node};
use super::positions::join_key;
use super::shape::{Property, Shape, names, property};
use crate::catalog::model::{
    HttpTransportKind, OAuthConfig, Pinning, ServerEntry, ServerIsolation, ServerLaunch,
    StartPolicy,
};
use crate::util::shorten;

const ALL: &[FileFormat] = &[FileFormat::Yaml, FileFormat::Manifest, FileFormat::McpJson];
const YAML: &[FileFormat] = &[FileFormat::Yaml];
const YAML_AND_MCP_JSON: &[FileFormat] = &[FileFormat::Yaml, FileFormat::McpJson];
const MCP_JSON: &[FileFormat] = &[FileFormat::McpJson];
const EITHER_JSON: &[FileFormat] = &[FileFormat::Manifest, FileFormat::McpJson];

const MAX_TIMEOUT_MS: u64 = 86_400_000;

/// A key of an entry, and the formats that have it. Keys that only JSON files have need no schema.
struct EntryKey(&'static [FileFormat], Property);

const fn json_key(formats: &'static [FileFormat], name: &'static str) -> EntryKey {
    EntryKey(formats, property(name, Shape::Any, ""))
}

const fn key(
    formats: &'static [FileFormat],
    name: &'static str,
    shape: Shape,
    doc: &'static str,
) -> EntryKey {
    EntryKey(formats, property(name, shape, doc))
}

/// Keys of an entry.
const KEYS: &[EntryKey] = &[
    key(
        YAML,
        "name",
        Shape::Pattern("^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$"),
        "Name of the server; its tools are called `mcp__<name>__<tool>`",
    ),
    key(
        ALL,
        "type",
        Shape::Words(&["stdio", "http", "streamable-http", "sse"]),
        "Transport: `sse` for the older HTTP+SSE; must fit the other keys",
    ),
    json_key(MCP_JSON, "transport"),
    key(ALL, "command", Shape::Text, "Program to start"),
    key(ALL, "args", Shape::List(&Shape::Text), "Arguments of the program"),
    key(ALL, "env", Shape::Map(&Shape::Text), "Environment variables of the program"),
    key(ALL, "cwd", Shape::Text, "Working directory of the program"),
    key(ALL, "url", Shape::Text, "Address of a remote server"),
    key(ALL, "headers", Shape::Map(&Shape::Text), "Sent with every request to `url`"),
    key(
        YAML_AND_MCP_JSON,
        "auth",
        Shape::Object(AUTH),
        "Sign-in settings that the server does not publish",
    ),
    json_key(MCP_JSON, "oauth"),
    json_key(MCP_JSON, "description"),
    key(ALL, "optional", Shape::Flag, "A run may start without the server; default `false`"),
    json_key(MCP_JSON, "visibility"),
    key(
        ALL,
        "isolation",
        Shape::Words(&["agent", "run"]),
        "One process for all runs of the agent (`agent`, default), or one per run (`run`)",
    ),
    json_key(MCP_JSON, "pin"),
    key(ALL, "eager", Shape::Flag, "Started before the first call; default `false`"),
    json_key(MCP_JSON, "lazy"),
    json_key(MCP_JSON, "start"),
    json_key(MCP_JSON, "disabled"),
    key(
        ALL,
        "timeout_ms",
        Shape::Number(1..=MAX_TIMEOUT_MS),
        "Timeout of one tool call, in milliseconds; without the key, the gateway's timeout",
    ),
    json_key(EITHER_JSON, "timeout"),
    json_key(MCP_JSON, "startup_timeout_ms"),
];

/// Keys of `auth`; `.mcp.json` has `isolation`, too.
const AUTH: &[Property] = &[
    property(
        "client_id",
        Shape::Text,
        "Client that is registered by hand; without it, Adjutant registers itself",
    ),
    property("client_secret", Shape::Text, "Secret of the client, as `${VARIABLE}`"),
    property("scopes", Shape::Texts, "Requested in addition to what the server requires"),
    property(
        "redirect_port",
        Shape::Number(1..=65_535),
        "Port of the redirect address; without it, any free port",
    ),
    property(
        "private_addresses",
        Shape::Flag,
        "Endpoints that the server publishes may be in a private network; default `false`",
    ),
];

/// Words of `type`; the last two are read in JSON only.
const TYPES: &[(&str, TransportType)] = &[
    ("stdio", TransportType::Stdio),
    ("http", TransportType::Http(HttpTransportKind::Streamable)),
    ("streamable-http", TransportType::Http(HttpTransportKind::Streamable)),
    ("sse", TransportType::Http(HttpTransportKind::Sse)),
    ("streamable_http", TransportType::Http(HttpTransportKind::Streamable)),
    ("streamableHttp", TransportType::Http(HttpTransportKind::Streamable)),
];

const STDIO_KEYS: [&str; 4] = ["command", "args", "env", "cwd"];
const HTTP_KEYS: [&str; 3] = ["url", "headers", "auth"];

/// Finding about an entry in a JSON file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryFinding {
    pub(crate) message: String,
    /// Path in the entry; empty for the entry itself.
    pub(crate) path: String,
}

impl From<Problem> for EntryFinding {
    fn from(problem: Problem) -> Self {
        let path = match problem.at {
            ProblemTarget::Key(path) | ProblemTarget::Value(path) => path,
            ProblemTarget::File | ProblemTarget::Place(_) => String::new(),
        };
        Self { message: problem.message, path }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportType {
    Stdio,
    Http(HttpTransportKind),
}

/// Returns the keys that an entry can have in `format`.
pub(crate) fn entry_keys(format: FileFormat) -> Vec<&'static str> {
    keys_of(format).map(|property| property.name).collect()
}

/// Returns the keys of an entry of an agent file.
pub(crate) fn yaml_properties() -> impl Iterator<Item = &'static Property> {
    keys_of(FileFormat::Yaml)
}

fn keys_of(format: FileFormat) -> impl Iterator<Item = &'static Property> {
    KEYS.iter().filter(move |key| key.0.contains(&format)).map(|key| &key.1)
}

/// Parses an entry of a JSON file. The error is the first mistake; `odd` collects warnings.
pub(crate) fn parse_json_entry(
    name: &str,
    entry: &Value,
    format: FileFormat,
    odd: &mut Vec<EntryFinding>,
) -> Result<ServerEntry, EntryFinding> {
    let unreadable = |message: String| EntryFinding { message, path: String::new() };
    if !entry.is_object() {
        return Err(unreadable("its entry is no JSON object".to_owned()));
    }
    let value = serde_yaml::to_value(entry).map_err(|error| unreadable(error.to_string()))?;
    let problems = Problems::default();
    let node = Node { value: &value, path: String::new(), format, problems: &problems };
    let read = parse_entry(name, &node);
    let (errors, warnings): (Vec<_>, Vec<_>) =
        problems.take().into_iter().partition(|problem| problem.severity == Severity::Error);
    odd.extend(warnings.into_iter().map(EntryFinding::from));
    match errors.into_iter().next() {
        Some(mistake) => Err(mistake.into()),
        None => read.ok_or_else(|| unreadable("its entry cannot be read".to_owned())),
    }
}

/// Parses an entry and reports its mistakes. Unusable after a mistake, even if an entry is returned.
pub(crate) fn parse_entry(name: &str, node: &Node<'_>) -> Option<ServerEntry> {
    let fields = node.fields()?;
    check_keys(&fields, node.format);
    let launch = read_launch(&fields, node)?;
    let sign_in = read_oauth(&fields);
    let pins = [("report", Pinning::Report), ("strict", Pinning::Strict)];
    let is_mcp_json = node.format == FileFormat::McpJson;
    Some(ServerEntry {
        isolation: read_isolation(&fields, node.format, &sign_in),
        description: fields.read("description", Node::string).map(str::to_owned),
        pinning: fields.choose("pin", &pins).unwrap_or(Pinning::Report),
        timeout: read_timeout(&fields, &["timeout_ms", "timeout"]),
        startup_timeout: read_timeout(&fields, &["startup_timeout_ms"]),
        // `GATEWAY_INIT_STRATEGY` is the default in `.mcp.json` only.
        start: read_start(&fields).or((!is_mcp_json).then_some(StartPolicy::Lazy)),
        // Without effect in `.mcp.json`, where it can be a key of another program.
        optional: !is_mcp_json && fields.read("optional", Node::boolean).unwrap_or_default(),
        sign_in,
        ..ServerEntry::new(name, launch)
    })
}

fn check_keys(fields: &MappingFields<'_>, format: FileFormat) {
    let known = entry_keys(format);
    if format != FileFormat::McpJson {
        return fields.reject_unknown(&known);
    }
    for (key, node) in fields.iter().filter(|(key, _)| !known.contains(key)) {
        // Other programs have keys of their own in this file, so only a key similar to a known one is reported.
        let near = known.iter().find(|known| strsim::damerau_levenshtein(known, key) <= 2);
        if let Some(near) = near {
            let message = format!("unknown key `{}`; is `{near}` meant?", shorten(key, 40));
            node.key_warning("unknown-key", message);
        }
    }
}

fn read_isolation(
    fields: &MappingFields<'_>,
    format: FileFormat,
    sign_in: &OAuthConfig,
) -> ServerIsolation {
    let [shared, agent, run] = [
        ("shared", ServerIsolation::Shared),
        ("agent", ServerIsolation::Agent),
        ("run", ServerIsolation::Run),
    ];
    let (words, default): (&[_], _) = match format {
        // A sign-in per agent requires a process per agent: an MCP session belongs to the account that opened it.
        _ if sign_in.per_agent => return ServerIsolation::Agent,
        FileFormat::Yaml => (&[agent, run], ServerIsolation::Agent),
        FileFormat::Manifest => (&[shared, agent, run], ServerIsolation::Agent),
        FileFormat::McpJson => (&[shared, agent], ServerIsolation::Shared),
    };
    fields.choose("isolation", words).unwrap_or(default)
}

/// Reads the first of `keys` that is given. YAML limits a timeout to one day.
fn read_timeout(fields: &MappingFields<'_>, keys: &[&str]) -> Option<Duration> {
    let node = keys.iter().find_map(|key| fields.get(key))?;
    let range = 1..=if node.is_yaml() { MAX_TIMEOUT_MS } else { u64::MAX };
    let what = format!("`{}` is no positive whole number", keys.join("` or `"));
    read_number(&node, range, what).map(Duration::from_millis)
}

/// Reads an integer within `range`; `json_message` is the message for JSON.
fn read_number(node: &Node<'_>, range: RangeInclusive<u64>, json_message: String) -> Option<u64> {
    if node.is_yaml() {
        return node.integer(range);
    }
    let value = node.value.as_u64().filter(|value| range.contains(value));
    if value.is_none() {
        node.error("out-of-range", json_message);
    }
    value
}

fn read_start(fields: &MappingFields<'_>) -> Option<StartPolicy> {
    let policy = |eager| if eager { StartPolicy::Eager } else { StartPolicy::Lazy };
    let words = [("eager", StartPolicy::Eager), ("lazy", StartPolicy::Lazy)];
    let named = fields.choose("start", &words);
    let eager = fields.read("eager", Node::boolean);
    let lazy = fields.read("lazy", Node::boolean);
    named.or(eager.map(policy)).or(lazy.map(|lazy| policy(!lazy)))
}

fn read_type(fields: &MappingFields<'_>) -> Option<TransportType> {
    let node = fields.get("type").or_else(|| fields.get("transport"))?;
    let words = if node.is_yaml() { TYPES.split_at(4).0 } else { TYPES };
    // Some programs write `"type": ""`.
    let is_absent = node.format == FileFormat::McpJson && node.value.as_str() == Some("");
    if is_absent { None } else { node.one_of(words) }
}

fn read_launch(fields: &MappingFields<'_>, node: &Node<'_>) -> Option<ServerLaunch> {
    let kind = read_type(fields);
    let (command, url) = (fields.get("command"), fields.get("url"));
    let conflict = match (&command, &url, kind) {
        (Some(_), Some(_), _) => Some(("url", "both `command` and `url`")),
        (Some(_), None, Some(TransportType::Http(_))) => {
            Some(("type", "a `command`, and a `type` that needs a `url`"))
        }
        (None, Some(_), Some(TransportType::Stdio)) => {
            Some(("type", "a `url`, and the type `stdio`"))
        }
        _ => None,
    };
    if let Some((key, what)) = conflict {
        let at = ProblemTarget::Key(join_key(&node.path, key));
        let message = format!("{} has {what}", node.subject());
        node.problems.error("conflicting-keys", at, message).help("keep one of them");
        return None;
    }
    match (command, url) {
        (Some(command), _) => {
            reject_keys(fields, &HTTP_KEYS, "a server with `command`");
            read_stdio(fields, &command)
        }
        (None, Some(url)) => {
            reject_keys(fields, &STDIO_KEYS, "a server with `url`");
            read_http(fields, &url, kind)
        }
        (None, None) => read_reference(fields, node),
    }
}

/// Returns a reference to a shared server for an entry of an agent file that says nothing about the launch.
fn read_reference(fields: &MappingFields<'_>, node: &Node<'_>) -> Option<ServerLaunch> {
    let mut launch_keys = STDIO_KEYS.iter().chain(&HTTP_KEYS).chain(&["type"]);
    let key = launch_keys.find(|key| fields.get(key).is_some());
    if key.is_none() && node.is_yaml() {
        return Some(ServerLaunch::Shared);
    }
    let at = match key {
        Some(key) if node.is_yaml() => ProblemTarget::Key(join_key(&node.path, key)),
        _ => node.at(),
    };
    node.problems
        .error("missing-key", at, format!("{} has neither `command` nor `url`", node.subject()))
        .help("add `command:` for a program or `url:` for a server on the network");
    None
}

/// Reports keys without effect in YAML. JSON files can have keys for other programs.
fn reject_keys(fields: &MappingFields<'_>, keys: &[&str], what: &str) {
    for node in keys.iter().filter_map(|key| fields.get(key)).filter(Node::is_yaml) {
        let message = format!("`{}` has no meaning for {what}", node.path);
        node.key_error("conflicting-keys", message);
    }
}

fn read_stdio(fields: &MappingFields<'_>, command: &Node<'_>) -> Option<ServerLaunch> {
    let args = fields.read("args", Node::items).unwrap_or_default();
    Some(ServerLaunch::Stdio {
        command: command.filled_template()?,
        args: args.iter().filter_map(Node::template).collect(),
        env: fields.read("env", Node::variables).unwrap_or_default(),
        cwd: fields.read("cwd", Node::template),
    })
}

fn read_http(
    fields: &MappingFields<'_>,
    url: &Node<'_>,
    kind: Option<TransportType>,
) -> Option<ServerLaunch> {
    let written = url.string()?.trim_start().to_ascii_lowercase();
    if !["http://", "https://", "${"].iter().any(|start| written.starts_with(start)) {
        let message = "its `url` begins with neither `http://` nor `https://`";
        url.error("wrong-value", message).help("begin it with `https://`");
        return None;
    }
    let dialect = match kind {
        Some(TransportType::Http(dialect)) => dialect,
        Some(TransportType::Stdio) | None => HttpTransportKind::default(),
    };
    let headers = fields.read("headers", Node::templates).unwrap_or_default();
    Some(ServerLaunch::Http { url: url.template()?, headers, dialect })
}

/// Reads `auth`, and `oauth`, the key of other programs.
///
/// An unknown key in `auth` is an error: a typo could sign in with the wrong account.
fn read_oauth(fields: &MappingFields<'_>) -> OAuthConfig {
    let auth = fields.get("auth");
    let own = auth.as_ref().and_then(Node::fields);
    let foreign = fields.read("oauth", Node::fields);
    let get = |key: &str| own.as_ref()?.get(key);
    let get_foreign = |key: &str| foreign.as_ref()?.get(key);
    let client_id = get("client_id").or_else(|| get_foreign("clientId"));
    if let (Some(auth), Some(own)) = (&auth, &own) {
        let mut known = names(AUTH);
        known.extend((auth.format == FileFormat::McpJson).then_some("isolation"));
        own.reject_unknown(&known);
        if get("client_secret").is_some() && client_id.is_none() {
            let message = format!("`{}` has a `client_secret` and no `client_id`", auth.path);
            auth.key_error("missing-key", message);
        }
    }
    let port = get("redirect_port").or_else(|| get_foreign("callbackPort"));
    OAuthConfig {
        client_id: client_id.and_then(|node| node.filled_template()),
        client_secret: get("client_secret").and_then(|node| node.filled_template()),
        scopes: get("scopes").map(|node| read_scopes(&node)).unwrap_or_default(),
        redirect_port: port
            .and_then(|node| {
                let what = format!("`{}` is no port", node.path);
                read_number(&node, 1..=65_535, what)
            })
            .and_then(|port| u16::try_from(port).ok()),
        private_addresses: get("private_addresses")
            .and_then(|node| node.boolean())
            .unwrap_or_default(),
        per_agent: get("isolation").is_some_and(|node| is_per_agent(&node)),
    }
}

fn read_scopes(node: &Node<'_>) -> Vec<String> {
    let json_texts = match node.value {
        YamlValue::String(_) => true,
        YamlValue::Sequence(items) => items.iter().all(YamlValue::is_string),
        _ => false,
    };
    if !node.is_yaml() && !json_texts {
        let message = format!("`{}` is neither a text nor a list of texts", node.path);
        node.error("wrong-type", message);
        return Vec::new();
    }
    let items = node.items_or_text().unwrap_or_default();
    let texts = items.iter().filter_map(Node::string);
    texts.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

fn is_per_agent(node: &Node<'_>) -> bool {
    let word = node.value.as_str();
    if !matches!(word, Some("shared" | "agent")) {
        let message = format!("`{}` is neither `shared` nor `agent`", node.path);
        node.error("wrong-value", message);
    }
    word == Some("agent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::model::Template;
    use serde_json::json;
    use test_case::test_case;

    fn read(entry: Value) -> Result<OAuthConfig, String> {
        let mut entry = entry;
        entry["url"] = json!("https://x");
        parse_json_entry("x", &entry, FileFormat::McpJson, &mut Vec::new())
            .map(|entry| entry.sign_in)
            .map_err(|mistake| mistake.message)
    }

    #[test]
    fn both_keys_are_parsed() {
        let own = read(json!({"auth": {
            "isolation": "agent", "client_id": "${ID}", "client_secret": "${SECRET}",
            "scopes": ["a b", "c"], "redirect_port": 8123, "private_addresses": true,
        }}));
        let expected = OAuthConfig {
            client_id: Some(Template("${ID}".to_owned())),
            client_secret: Some(Template("${SECRET}".to_owned())),
            scopes: ["a", "b", "c"].map(str::to_owned).to_vec(),
            redirect_port: Some(8123),
            private_addresses: true,
            per_agent: true,
        };
        assert_eq!(own, Ok(expected));
        let foreign =
            read(json!({"oauth": {"clientId": "x", "callbackPort": 1, "more": 2}})).unwrap();
        assert_eq!((foreign.client_id.unwrap().0.as_str(), foreign.redirect_port), ("x", Some(1)));
        assert_eq!(read(json!({})), Ok(OAuthConfig::default()));
    }

    #[test_case(&json!({"scope": "a"}), "`auth` has an unknown key `scope`")]
    #[test_case(&json!({"client_secret": "s"}), "`auth` has a `client_secret` and no `client_id`")]
    #[test_case(&json!({"isolation": "run"}), "`auth.isolation` is neither `shared` nor `agent`")]
    #[test_case(&json!({"redirect_port": 70_000}), "`auth.redirect_port` is no port")]
    #[test_case(&json!({"scopes": [1]}), "`auth.scopes` is neither a text nor a list of texts")]
    fn an_invalid_key_or_value_is_an_error(auth: &Value, expected: &str) {
        assert_eq!(read(json!({ "auth": auth })), Err(expected.to_owned()));
    }

    #[test]
    fn every_format_has_its_own_keys_and_reads_the_others_as_mistakes() {
        let read = |format, entry: &Value| {
            let mut odd = Vec::new();
            let read = parse_json_entry("x", entry, format, &mut odd);
            let read = read.map(|entry| (entry.isolation, entry.is_eager(), entry.optional));
            (read.map_err(|mistake| (mistake.path, mistake.message)), odd.len())
        };
        let entry = json!({"command": "c", "isolation": "run", "eager": true, "optional": true});
        let run = (ServerIsolation::Run, true, true);
        assert_eq!(read(FileFormat::Yaml, &entry), (Ok(run), 0));
        assert_eq!(read(FileFormat::Manifest, &entry), (Ok(run), 0));
        let message = "`isolation` is `run`, not `shared` or `agent`".to_owned();
        let mistake = ("isolation".to_owned(), message);
        assert_eq!(read(FileFormat::McpJson, &entry), (Err(mistake), 0));
        let entry = json!({"command": "${", "lazy": false, "isolation": null, "optional": "no"});
        let wrong = |format| read(format, &entry).0.unwrap_err().0;
        assert_eq!(wrong(FileFormat::Yaml), "lazy");
        assert_eq!(wrong(FileFormat::Manifest), "lazy");
        let read = read(FileFormat::McpJson, &entry);
        assert_eq!(read, (Ok((ServerIsolation::Shared, true, false)), 0));
    }
}
