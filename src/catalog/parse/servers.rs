//! An agent's MCP servers: a list (with `name:`) or a map, private ones and references to shared ones.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::model::{Dialect, ServerEntry, ServerLaunch, Template};
use super::node::{Fields, Node, suggestion};
use super::positions::join_key;
use super::problem::{At, Problems};
use super::sign_in;

const KEYS: &[&str] = &[
    "name",
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "auth",
    "optional",
    "isolation",
    "eager",
    "timeout_ms",
];
const STDIO_KEYS: [&str; 4] = ["command", "args", "env", "cwd"];
const HTTP_KEYS: [&str; 3] = ["url", "headers", "auth"];

/// Reads `mcp_servers`.
pub(super) fn read(node: &Node<'_>, problems: &mut Problems) -> Vec<ServerEntry> {
    let named = match node.value {
        Value::Mapping(_) => from_map(node, problems),
        _ => from_list(node, problems),
    };
    let mut seen = BTreeSet::new();
    let mut servers = Vec::new();
    for (name, at, node) in named {
        if !check_name(&name, at.clone(), problems) {
            continue;
        }
        if !seen.insert(name.clone()) {
            let message = format!("there are two servers of the name `{name}`");
            problems.error("duplicate-server", at, message);
            continue;
        }
        servers.extend(read_server(name, &node, problems));
    }
    servers
}

type Named<'v> = (String, At, Node<'v>);

fn from_map<'v>(node: &Node<'v>, problems: &mut Problems) -> Vec<Named<'v>> {
    let Some(fields) = node.fields(problems) else { return Vec::new() };
    fields.iter().map(|(name, node)| (name.to_owned(), node.at_key(), node)).collect()
}

fn from_list<'v>(node: &Node<'v>, problems: &mut Problems) -> Vec<Named<'v>> {
    let items = node.items(problems).unwrap_or_default();
    items.into_iter().filter_map(|item| from_item(item, problems)).collect()
}

/// `- github`, `- name: github`, or `- github: { … }`.
fn from_item<'v>(item: Node<'v>, problems: &mut Problems) -> Option<Named<'v>> {
    if let Value::String(name) = item.value {
        return Some((name.clone(), item.at(), item));
    }
    let fields = item.fields(problems)?;
    if let Some(name) = fields.get("name") {
        let text = name.text(problems)?.to_owned();
        return Some((text, name.at(), item));
    }
    if let Some((name, inner)) = fields.iter().next().filter(|_| fields.len() == 1)
        && !KEYS.contains(&name)
    {
        return Some((name.to_owned(), inner.at_key(), inner));
    }
    problems
        .error("missing-key", item.at(), "this server has no name")
        .help("write `- name: <server>` first");
    None
}

/// The name becomes a part of tool names and of rules: nothing in it may end one or begin another.
fn check_name(name: &str, at: At, problems: &mut Problems) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let reason = if name.is_empty() || name.len() > 64 {
        "it has 1 to 64 characters"
    } else if !name.chars().all(allowed) {
        "it has only letters, digits, `_` and `-`"
    } else if name.contains("__") || name.starts_with('_') || name.ends_with('_') {
        "`__` divides server and tool in a tool's name, so it has no `__` and no `_` at its ends"
    } else {
        return true;
    };
    let message = format!("`{name}` cannot be a server's name: {reason}");
    problems.error("invalid-server-name", at, message);
    false
}

fn read_server(name: String, node: &Node<'_>, problems: &mut Problems) -> Option<ServerEntry> {
    if matches!(node.value, Value::String(_) | Value::Null) {
        return Some(ServerEntry::new(&name, ServerLaunch::Shared));
    }
    let fields = node.fields(problems)?;
    fields.refuse_unknown(KEYS, problems);
    let flag = |key: &str, problems: &mut Problems| {
        fields.get(key).and_then(|node| node.boolean(problems)).unwrap_or(false)
    };
    let isolation = [("agent", false), ("run", true)];
    let launch = read_launch(&fields, node, problems)?;
    Some(ServerEntry {
        name,
        launch,
        optional: flag("optional", problems),
        eager: flag("eager", problems),
        per_run: fields
            .get("isolation")
            .and_then(|node| node.one_of(&isolation, problems))
            .unwrap_or(false),
        timeout: fields
            .get("timeout_ms")
            .and_then(|node| node.milliseconds(1..=86_400_000, problems)),
        sign_in: sign_in::read(&fields, problems),
    })
}

fn read_launch(
    fields: &Fields<'_>,
    node: &Node<'_>,
    problems: &mut Problems,
) -> Option<ServerLaunch> {
    let kind = read_kind(fields, problems);
    match (fields.get("command"), fields.get("url")) {
        (Some(_), Some(url)) => {
            let message = format!("`{}` has both `command` and `url`", node.path);
            problems.error("conflicting-keys", url.at_key(), message).help("keep one of them");
            None
        }
        (Some(command), None) => {
            refuse_stray(fields, &HTTP_KEYS, "a server with `command`", problems);
            refuse_kind(fields, kind.is_some_and(|kind| kind != Kind::Stdio), problems);
            stdio(fields, &command, problems)
        }
        (None, Some(url)) => {
            refuse_stray(fields, &STDIO_KEYS, "a server with `url`", problems);
            refuse_kind(fields, kind == Some(Kind::Stdio), problems);
            let dialect = match kind {
                Some(Kind::Http(dialect)) => dialect,
                Some(Kind::Stdio) | None => Dialect::default(),
            };
            http(fields, &url, dialect, problems)
        }
        (None, None) => {
            let mut launch_keys = STDIO_KEYS.iter().chain(&HTTP_KEYS).chain(&["type"]);
            if let Some(key) = launch_keys.find(|key| fields.get(key).is_some()) {
                let at = At::Key(join_key(fields.path(), key));
                problems
                    .error(
                        "missing-key",
                        at,
                        format!("`{}` has neither `command` nor `url`", node.path),
                    )
                    .help("add `command:` for a program or `url:` for a server on the network");
                return None;
            }
            Some(ServerLaunch::Shared)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http(Dialect),
}

fn read_kind(fields: &Fields<'_>, problems: &mut Problems) -> Option<Kind> {
    let words = [
        ("stdio", Kind::Stdio),
        ("http", Kind::Http(Dialect::Streamable)),
        ("streamable-http", Kind::Http(Dialect::Streamable)),
        ("sse", Kind::Http(Dialect::Sse)),
    ];
    fields.get("type")?.one_of(&words, problems)
}

fn refuse_kind(fields: &Fields<'_>, differs: bool, problems: &mut Problems) {
    if let Some(node) = fields.get("type").filter(|_| differs) {
        let message = "`type` says another kind of server than the other keys";
        problems.error("conflicting-keys", node.at(), message);
    }
}

fn refuse_stray(fields: &Fields<'_>, keys: &[&str], what: &str, problems: &mut Problems) {
    for node in keys.iter().filter_map(|key| fields.get(key)) {
        let message = format!("`{}` has no meaning for {what}", node.path);
        problems.error("conflicting-keys", node.at_key(), message);
    }
}

fn stdio(fields: &Fields<'_>, command: &Node<'_>, problems: &mut Problems) -> Option<ServerLaunch> {
    command.text(problems)?;
    let args = fields.get("args").and_then(|node| node.items(problems)).unwrap_or_default();
    Some(ServerLaunch::Stdio {
        command: command.template(problems)?,
        args: args.iter().filter_map(|node| node.template(problems)).collect(),
        env: fields.get("env").and_then(|node| node.variables(problems)).unwrap_or_default(),
        cwd: fields.get("cwd").and_then(|node| node.template(problems)),
    })
}

fn http(
    fields: &Fields<'_>,
    url: &Node<'_>,
    dialect: Dialect,
    problems: &mut Problems,
) -> Option<ServerLaunch> {
    url.text(problems)?;
    let template: Template = url.template(problems)?;
    let text = template.as_written();
    if !["http://", "https://", "${"].iter().any(|start| text.starts_with(start)) {
        let message = format!("`{text}` is no URL of an MCP server");
        problems.error("wrong-value", url.at(), message).help("begin it with `https://`");
        return None;
    }
    let headers = fields.get("headers").and_then(|node| node.templates(problems));
    Some(ServerLaunch::Http { url: template, headers: headers.unwrap_or_default(), dialect })
}

/// Says that a server does not exist, with the nearest that do.
pub(super) fn missing_server(server: &str, servers: &[ServerEntry]) -> String {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    if names.is_empty() {
        format!("add `mcp_servers: [{{ name: {server}, … }}]`")
    } else {
        suggestion(server, &names)
    }
}
