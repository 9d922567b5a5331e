//! `.mcp.json`: which servers stand behind the gateway, as their author wrote it.
//!
//! Nothing is resolved here: `${VAR}` stays as written until a server is started, so that
//! whatever prints a [`ServerSpec`] cannot print a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::error::GatewayError;
use super::sign_in::read_sign_in;
use crate::base::shorten;
use crate::catalog::{Dialect, ServerEntry, ServerLaunch, SignIn, Template};

/// How long a call may take where nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a server may take to answer `initialize`; `npx` may have to download it first.
pub(super) const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

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

/// One server as it is meant: how it is reached and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// The name agents know it by.
    pub name: String,
    /// How it is reached; never [`ServerLaunch::Shared`].
    pub launch: ServerLaunch,
    /// One line for the agents.
    pub description: Option<String>,
    /// Who shares its process.
    pub isolation: Isolation,
    /// What happens when a tool's definition changes.
    pub pinning: Pinning,
    /// The longest a call may take, unless the call says otherwise.
    pub timeout: Duration,
    /// From its start to its answer to `initialize`.
    pub startup_timeout: Duration,
    /// How Adjutant signs in to it.
    pub sign_in: SignIn,
    /// When it is started; `None` leaves that to `GATEWAY_INIT_STRATEGY`.
    pub start: Option<Start>,
    pub(super) digest: KnownDigest,
}

/// What [`ServerSpec::digest`] found; every call asks for it.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownDigest(OnceLock<String>);

/// It follows from the rest.
impl PartialEq for KnownDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KnownDigest {}

/// Who shares a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All agents.
    Shared,
    /// Every agent has its own.
    Agent,
}

/// What happens when a tool's definition changes after it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// It is reported.
    Report,
    /// It is reported, and the tool is withheld until a person trusts it.
    Strict,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the gateway.
    Eager,
    /// At the first call.
    Lazy,
}

impl ServerSpec {
    /// A digest of everything that decides how the server is started, as written.
    pub fn digest(&self) -> &str {
        self.digest.0.get_or_init(|| {
            let mut hasher = Sha256::new();
            let Self { launch, isolation, sign_in, .. } = self;
            hasher.update(format!("{launch:?} {isolation:?} {sign_in:?}"));
            format!("{:x}", hasher.finalize())
        })
    }

    /// An agent's own server; `None` for a reference to a shared one.
    pub fn from_agent(entry: &ServerEntry) -> Option<Self> {
        if entry.launch == ServerLaunch::Shared {
            return None;
        }
        Some(Self {
            name: entry.name.clone(),
            launch: entry.launch.clone(),
            description: None,
            isolation: Isolation::Shared,
            pinning: Pinning::Report,
            timeout: entry.timeout.unwrap_or(DEFAULT_TIMEOUT),
            startup_timeout: DEFAULT_STARTUP_TIMEOUT,
            sign_in: entry.sign_in.clone(),
            start: Some(if entry.eager { Start::Eager } else { Start::Lazy }),
            digest: KnownDigest::default(),
        })
    }
}

/// One entry of the file: a server, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key in `mcpServers`.
    pub name: String,
    /// What it says; an entry that says nothing sensible is unavailable, the others are not.
    pub spec: Result<Arc<ServerSpec>, String>,
}

/// All servers of one `.mcp.json`, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSet {
    entries: Vec<Entry>,
    /// What a person should know about the file.
    pub warnings: Vec<String>,
}

impl ServerSet {
    /// Whether it names no server.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the text of `.mcp.json`.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let invalid = |reason: String| GatewayError::InvalidServers { reason };
        let value: Value = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        let Value::Object(file) = value else {
            return Err(invalid("the file is no JSON object".to_owned()));
        };
        let servers = match file.get("mcpServers") {
            Some(Value::Object(servers)) => servers,
            Some(_) => return Err(invalid("`mcpServers` is no JSON object".to_owned())),
            None => return Err(invalid("it has no `mcpServers`".to_owned())),
        };
        let mut set = Self::default();
        for (name, entry) in servers {
            set.read_entry(name, entry);
        }
        Ok(set)
    }

    /// Adds a server from elsewhere; one of that name that is here already stays.
    pub(super) fn add(&mut self, name: &str, entry: &Value) {
        if self.get(name).is_none() {
            self.read_entry(name, entry);
        }
    }

    fn read_entry(&mut self, name: &str, entry: &Value) {
        if let Some(reason) = own_entry(name, entry) {
            self.warnings.push(format!("server `{name}` is left out: {reason}"));
            return;
        }
        if entry.get("disabled").and_then(Value::as_bool) == Some(true) {
            self.warnings.push(format!("server `{name}` is left out: it is disabled"));
            return;
        }
        let spec = read_spec(name, entry, &mut self.warnings).map(Arc::new);
        if let Err(reason) = &spec {
            self.warnings.push(format!("server `{name}` cannot be used: {reason}"));
        }
        self.entries.push(Entry { name: name.to_owned(), spec });
    }

    /// The entries, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this exact name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }
}

/// Why an entry is Adjutant itself, if it is: proxying ourselves would never end.
fn own_entry(name: &str, entry: &Value) -> Option<&'static str> {
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

fn read_spec(name: &str, entry: &Value, warnings: &mut Vec<String>) -> Result<ServerSpec, String> {
    check_name(name)?;
    let Value::Object(entry) = entry else {
        return Err("its entry is no JSON object".to_owned());
    };
    warn_about_keys(name, entry, warnings);
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

fn warn_about_keys(name: &str, entry: &Map<String, Value>, warnings: &mut Vec<String>) {
    for key in entry.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        // Other programs read the same file and have keys of their own; a near miss is a typo.
        let near = KEYS.iter().find(|known| strsim::damerau_levenshtein(known, key) <= 2);
        if let Some(near) = near {
            let key = shorten(key, 40);
            warnings.push(format!("server `{name}`: unknown key `{key}`; is `{near}` meant?"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn parse(servers: &Value) -> ServerSet {
        ServerSet::parse(&json!({ "mcpServers": servers }).to_string()).unwrap()
    }

    #[test]
    fn an_entry_is_read_whole_and_kept_as_written() {
        let set = parse(&json!({"git": {
            "command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${TOKEN}", "N": 3},
            "description": "git", "isolation": "agent", "pin": "strict", "timeout_ms": 5, "start": "eager",
        }}));
        let spec = set.get("git").unwrap().spec.clone().unwrap();
        assert_eq!(
            (spec.isolation, spec.pinning, spec.start),
            (Isolation::Agent, Pinning::Strict, Some(Start::Eager))
        );
        let ServerLaunch::Stdio { env, .. } = &spec.launch else { panic!("{spec:?}") };
        assert_eq!(env["TOKEN"].0, "${TOKEN}");
        assert_eq!(env["N"].0, "3");
    }

    #[test]
    fn a_wrong_entry_harms_no_other() {
        let set =
            parse(&json!({"bad": {"command": "a", "url": "http://x"}, "good": {"command": "b"}}));
        assert!(set.get("bad").unwrap().spec.is_err());
        assert!(set.get("good").unwrap().spec.is_ok());
    }

    #[test_case(&json!({"adjutant": {"command": "anything"}}); "by name")]
    #[test_case(&json!({"me": {"command": "/usr/bin/adjutant", "args": ["serve"]}}); "by program")]
    fn our_own_entry_is_left_out_and_said(servers: &Value) {
        let set = parse(servers);
        assert_eq!(set.entries().len(), 0);
        assert!(set.warnings[0].contains("left out"), "{:?}", set.warnings);
    }

    #[test_case(&json!({"command": ""}), "empty")]
    #[test_case(&json!({}), "neither")]
    #[test_case(&json!({"url": "file:///etc/passwd"}), "begins with")]
    #[test_case(&json!({"command": "a", "type": "http"}), "needs a `url`")]
    #[test_case(&json!({"command": "a", "pin": "strickt"}), "not `report` or `strict`")]
    #[test_case(&json!({"command": "a", "timeout_ms": 0}), "positive")]
    #[test_case(&json!({"command": "a", "args": [1]}), "no text")]
    fn what_is_wrong_is_said(entry: &Value, expected: &str) {
        let reason = parse(&json!({ "x": entry })).get("x").unwrap().spec.clone().unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }

    #[test]
    fn a_near_miss_of_a_key_is_a_warning() {
        let set = parse(&json!({"x": {"command": "a", "pinn": "strict", "headersHelper": "y"}}));
        assert_eq!(set.warnings, ["server `x`: unknown key `pinn`; is `pin` meant?"]);
    }
}
