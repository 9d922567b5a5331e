//! One entry of `.mcp.json`, as its author wrote it: which words it has, and whether they go together.
//!
//! What is refused here is refused everywhere: the gateway, `check` and `doctor` say the same sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::server_config::{
    DEFAULT_STARTUP_TIMEOUT, DEFAULT_TIMEOUT, Isolation, KnownDigest, Pinning, ServerSpec, Start,
};
use super::sign_in::read_sign_in;
use crate::base::shorten;
use crate::catalog::{Dialect, ServerLaunch, Template};

/// The name our own entry has in `.mcp.json`: it must not be started by itself.
const OWN_NAME: &str = "adjutant";

const KEYS: [&str; 22] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "auth",
    "oauth",
    "type",
    "transport",
    "description",
    "isolation",
    "pin",
    "timeout_ms",
    "timeout",
    "startup_timeout_ms",
    "start",
    "eager",
    "lazy",
    "disabled",
    "visibility",
    "optional",
];
/// Why an entry is Adjutant itself, if it is: proxying ourselves would never end.
pub(super) fn own_entry(name: &str, entry: &Value) -> Option<&'static str> {
    if name == OWN_NAME {
        return Some("it is Adjutant itself");
    }
    let command = entry.get("command").and_then(Value::as_str)?;
    let program = command.rsplit('/').next().unwrap_or(command);
    let serves = entry
        .get("args")
        .and_then(Value::as_array)
        .is_some_and(|args| args.iter().any(|a| matches!(a.as_str(), Some("serve" | "gateway"))));
    (program == OWN_NAME && serves).then_some("it starts Adjutant itself")
}

/// The server that an entry describes; `odd` takes what may not be what its author meant.
pub(super) fn read_spec(
    name: &str,
    entry: &Value,
    odd: &mut Vec<String>,
) -> Result<ServerSpec, String> {
    check_name(name)?;
    let Value::Object(entry) = entry else {
        return Err("its entry is no JSON object".to_owned());
    };
    note_near_misses(entry, odd);
    let launch = read_launch(entry)?;
    let sign_in = read_sign_in(entry)?;
    let words = [("shared", Isolation::Shared), ("agent", Isolation::Agent)];
    let isolation = match sign_in.per_agent {
        // Who signs in alone is served alone: a session belongs to whoever opened it.
        true => Some(Isolation::Agent),
        false => choice(entry, "isolation", &words)?,
    };
    Ok(ServerSpec {
        name: name.to_owned(),
        launch,
        description: text(entry, "description")?.map(str::to_owned),
        isolation: isolation.unwrap_or(Isolation::Shared),
        sign_in,
        pinning: choice(entry, "pin", &[("report", Pinning::Report), ("strict", Pinning::Strict)])?
            .unwrap_or(Pinning::Report),
        timeout: milliseconds(entry, &["timeout_ms", "timeout"])?.unwrap_or(DEFAULT_TIMEOUT),
        startup_timeout: milliseconds(entry, &["startup_timeout_ms"])?
            .unwrap_or(DEFAULT_STARTUP_TIMEOUT),
        start: read_start(entry)?,
        digest: KnownDigest::default(),
    })
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        return Err("a server's name has 1 to 128 printable characters".to_owned());
    }
    Ok(())
}

fn note_near_misses(entry: &Map<String, Value>, odd: &mut Vec<String>) {
    for key in entry.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        // Other programs read the same file and have keys of their own; a near miss is a typo.
        let near = KEYS.iter().find(|known| strsim::damerau_levenshtein(known, key) <= 2);
        if let Some(near) = near {
            let key = shorten(key, 40);
            odd.push(format!("unknown key `{key}`; is `{near}` meant?"));
        }
    }
}

/// What `type` says: a program, or what is spoken over the network.
enum Kind {
    Stdio,
    Http(Dialect),
}

fn read_kind(entry: &Map<String, Value>) -> Result<Option<Kind>, String> {
    match text(entry, "type")?.or(text(entry, "transport")?) {
        None | Some("") => Ok(None),
        Some("stdio") => Ok(Some(Kind::Stdio)),
        Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => {
            Ok(Some(Kind::Http(Dialect::Streamable)))
        }
        Some("sse") => Ok(Some(Kind::Http(Dialect::Sse))),
        Some(other) => {
            Err(format!("`type` is `{}`, not `stdio`, `http` or `sse`", shorten(other, 40)))
        }
    }
}

fn read_launch(entry: &Map<String, Value>) -> Result<ServerLaunch, String> {
    match (text(entry, "command")?, text(entry, "url")?, read_kind(entry)?) {
        (Some(_), Some(_), _) => Err("it has both `command` and `url`".to_owned()),
        (None, None, _) => Err("it has neither `command` nor `url`".to_owned()),
        (Some(command), None, None | Some(Kind::Stdio)) => read_stdio(command, entry),
        (Some(_), None, Some(Kind::Http(_))) => {
            Err("it has a `command`, and a `type` that needs a `url`".to_owned())
        }
        (None, Some(url), None) => read_http(url, Dialect::default(), entry),
        (None, Some(url), Some(Kind::Http(dialect))) => read_http(url, dialect, entry),
        (None, Some(_), Some(Kind::Stdio)) => {
            Err("it has a `url`, and the type `stdio`".to_owned())
        }
    }
}

fn read_stdio(command: &str, entry: &Map<String, Value>) -> Result<ServerLaunch, String> {
    if command.trim().is_empty() {
        return Err("its `command` is empty".to_owned());
    }
    let args = match entry.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(args)) => args
            .iter()
            .map(|arg| arg.as_str().map(|arg| Template(arg.to_owned())))
            .collect::<Option<_>>()
            .ok_or("`args` holds something that is no text")?,
        Some(_) => return Err("`args` is no list".to_owned()),
    };
    Ok(ServerLaunch::Stdio {
        command: Template(command.to_owned()),
        args,
        env: text_map(entry, "env")?,
        cwd: text(entry, "cwd")?.map(|cwd| Template(cwd.to_owned())),
    })
}

fn read_http(
    url: &str,
    dialect: Dialect,
    entry: &Map<String, Value>,
) -> Result<ServerLaunch, String> {
    let written = url.trim_start().to_ascii_lowercase();
    let known = ["http://", "https://", "${"].iter().any(|start| written.starts_with(start));
    if !known {
        return Err("its `url` begins with neither `http://` nor `https://`".to_owned());
    }
    let headers = text_map(entry, "headers")?;
    Ok(ServerLaunch::Http { url: Template(url.to_owned()), headers, dialect })
}

fn text<'a>(entry: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` is no text")),
    }
}

fn text_map(entry: &Map<String, Value>, key: &str) -> Result<BTreeMap<String, Template>, String> {
    let map = match entry.get(key) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(format!("`{key}` is no JSON object")),
    };
    let template = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), Template(text.clone()))),
        Value::Number(number) => Ok((name.clone(), Template(number.to_string()))),
        Value::Bool(flag) => Ok((name.clone(), Template(flag.to_string()))),
        _ => Err(format!("`{key}.{}` is no text", shorten(name, 40))),
    };
    map.iter().map(template).collect()
}

fn choice<T: Copy>(
    entry: &Map<String, Value>,
    key: &str,
    known: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(written) = text(entry, key)? else { return Ok(None) };
    let found = known.iter().find(|(word, _)| *word == written);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let words: Vec<String> = known.iter().map(|(word, _)| format!("`{word}`")).collect();
        format!("`{key}` is `{}`, not {}", shorten(written, 40), words.join(" or "))
    })
}

fn milliseconds(entry: &Map<String, Value>, keys: &[&str]) -> Result<Option<Duration>, String> {
    let written = keys.iter().find_map(|key| entry.get(*key).filter(|v| !v.is_null()));
    match written.map(Value::as_u64) {
        None => Ok(None),
        Some(Some(milliseconds)) if milliseconds > 0 => {
            Ok(Some(Duration::from_millis(milliseconds)))
        }
        Some(_) => Err(format!("`{}` is no positive whole number", keys.join("` or `"))),
    }
}

fn read_start(entry: &Map<String, Value>) -> Result<Option<Start>, String> {
    let flag = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(format!("`{key}` is neither true nor false")),
    };
    let named = choice(entry, "start", &[("eager", Start::Eager), ("lazy", Start::Lazy)])?;
    let eager = flag("eager")?.map(|yes| if yes { Start::Eager } else { Start::Lazy });
    let lazy = flag("lazy")?.map(|yes| if yes { Start::Lazy } else { Start::Eager });
    Ok(named.or(eager).or(lazy))
}
