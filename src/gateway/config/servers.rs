//! `.mcp.json`: which servers stand behind the gateway, as their author wrote it.
//!
//! Nothing is resolved here: `${VAR}` stays as written until a server is started, so that
//! whatever prints a [`ServerSpec`] cannot print a secret.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::GatewayError;
use super::server_entry::{own_entry, read_spec};
use crate::base::{Lined, LinedMember, LinedValue, parse_json_lines};
use crate::catalog::{ServerEntry, ServerLaunch, SignIn};

/// How long a call may take where nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a server may take to answer `initialize`; `npx` may have to download it first.
pub(super) const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// The line it begins on, if it stands in a file that was read.
    pub line: Option<u32>,
    /// What it says; an entry that says nothing sensible is unavailable, the others are not.
    pub spec: Result<Arc<ServerSpec>, String>,
}

/// Something about an entry that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub weight: Weight,
    /// The line of the file, where it is known.
    pub line: Option<u32>,
    /// What there is to know, with the server's name.
    pub sentence: String,
}

/// How much a [`Remark`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The server is not there, and that was wanted.
    LeftOut,
    /// Something may not be what its author meant.
    Odd,
    /// The server cannot be used.
    Refused,
}

/// All servers of one `.mcp.json`, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSet {
    entries: Vec<Entry>,
    /// In the file, and not behind the gateway: each with why.
    left_out: Vec<(String, &'static str)>,
    /// What a person should know about the file.
    pub remarks: Vec<Remark>,
}

const DISABLED: &str = "it is disabled in `.mcp.json`";

impl ServerSet {
    /// Whether it names no server.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the text of `.mcp.json`; a byte order mark before it is skipped.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Two readings: this one knows lines and what is written twice, the other one values.
        let lined = parse_json_lines(text)
            .map_err(|error| invalid(error.line, format!("this is no JSON: {error}")))?;
        let value: Value =
            serde_json::from_str(text).map_err(|error| invalid(1, error.to_string()))?;
        let places = server_places(&lined)?;
        let mut set = Self::default();
        let servers = value.get("mcpServers").and_then(Value::as_object).into_iter().flatten();
        for (name, entry) in servers {
            set.read_entry(name, entry, &written(places, name));
        }
        Ok(set)
    }

    /// Adds a server from elsewhere; one of that name that is here already stays.
    pub(super) fn add(&mut self, name: &str, entry: &Value) {
        if self.get(name).is_none() {
            self.read_entry(name, entry, &[]);
        }
    }

    /// `places` is where the entry stands: nowhere that is known, once, or too often.
    fn read_entry(&mut self, name: &str, entry: &Value, places: &[&LinedMember]) {
        let disabled = entry.get("disabled").and_then(Value::as_bool) == Some(true);
        let why = own_entry(name, entry).or_else(|| disabled.then_some(DISABLED));
        let line = places.first().map(|place| place.line);
        if let (Some(why), [] | [_]) = (why, places) {
            self.remark(Weight::LeftOut, line, format!("server `{name}` is left out: {why}"));
            self.left_out.push((name.to_owned(), why));
            return;
        }
        let mut odd = Vec::new();
        let spec = written_once(places)
            .and_then(|()| read_spec(name, entry, &mut odd).map_err(|why| (why, None)));
        for what in odd {
            let line = line_of(&what, places).or(line);
            self.remark(Weight::Odd, line, format!("server `{name}`: {what}"));
        }
        let spec = spec.map(Arc::new).map_err(|(why, known)| {
            let line = known.or_else(|| line_of(&why, places)).or(line);
            self.remark(Weight::Refused, line, format!("server `{name}` cannot be used: {why}"));
            why
        });
        self.entries.push(Entry { name: name.to_owned(), line, spec });
    }

    fn remark(&mut self, weight: Weight, line: Option<u32>, sentence: String) {
        self.remarks.push(Remark { weight, line, sentence });
    }

    /// Why a server that the file has is not here.
    pub(super) fn left_out(&self, name: &str) -> Option<&'static str> {
        self.left_out.iter().find(|(left, _)| left == name).map(|(_, why)| *why)
    }

    /// The names that the file has, of servers that are left out too.
    pub fn written_names(&self) -> impl Iterator<Item = &str> {
        self.names().chain(self.left_out.iter().map(|(name, _)| name.as_str()))
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

fn invalid(line: u32, reason: impl Into<String>) -> GatewayError {
    GatewayError::InvalidServers { line, reason: reason.into() }
}

/// The members of the one `mcpServers`.
fn server_places(file: &LinedValue) -> Result<&[LinedMember], GatewayError> {
    let Lined::Object(members) = &file.value else {
        return Err(invalid(file.line, "the file is no JSON object"));
    };
    match written(members, "mcpServers").as_slice() {
        [] => Err(invalid(file.line, "there is no `mcpServers`")),
        [LinedMember { value: LinedValue { value: Lined::Object(places), .. }, .. }] => Ok(places),
        [section] => Err(invalid(section.line, "`mcpServers` is no JSON object")),
        [_, second, ..] => Err(invalid(second.line, "`mcpServers` is written twice")),
    }
}

/// Where `name` is written.
fn written<'m>(members: &'m [LinedMember], name: &str) -> Vec<&'m LinedMember> {
    members.iter().filter(|member| member.key == name).collect()
}

/// Refuses what is written twice, the entry as well as anything in it: no typo decides which one counts.
fn written_once(places: &[&LinedMember]) -> Result<(), (String, Option<u32>)> {
    match places {
        [] => Ok(()),
        [place] => match twice(&place.value, "") {
            None => Ok(()),
            Some((path, line)) => Err((format!("`{path}` is written twice"), Some(line))),
        },
        [first, second, ..] => {
            let why =
                format!("it is written twice, first on line {}; keep one of them", first.line);
            Err((why, Some(second.line)))
        }
    }
}

/// The first key that an object in `value` has twice, and the line of the second.
fn twice(value: &LinedValue, path: &str) -> Option<(String, u32)> {
    let within = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match &value.value {
        Lined::Object(members) => members.iter().enumerate().find_map(|(index, member)| {
            let repeated = members.iter().take(index).any(|earlier| earlier.key == member.key);
            let path = within(&member.key);
            if repeated { Some((path, member.line)) } else { twice(&member.value, &path) }
        }),
        Lined::Array(items) => items.iter().find_map(|item| twice(item, path)),
        Lined::Null | Lined::Bool(_) | Lined::Number | Lined::String(_) => None,
    }
}

/// The line of the first key of the entry that a sentence names; at worst it points at a wrong line.
fn line_of(sentence: &str, places: &[&LinedMember]) -> Option<u32> {
    let [LinedMember { value: LinedValue { value: Lined::Object(members), .. }, .. }] = places
    else {
        return None;
    };
    let named = sentence.split('`').skip(1).step_by(2);
    let key = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    named.map(key).find_map(|key| members.iter().find(|m| m.key == key)).map(|member| member.line)
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

    #[test]
    fn a_name_that_is_written_twice_is_refused_and_harms_no_other() {
        let text = "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"x\"},\n\"b\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}";
        let set = ServerSet::parse(text).unwrap();
        let reason = set.get("a").unwrap().spec.clone().unwrap_err();
        assert_eq!(reason, "it is written twice, first on line 1; keep one of them");
        assert!(set.get("b").unwrap().spec.is_ok());
    }

    #[test_case(&json!({"adjutant": {"command": "anything"}}); "by name")]
    #[test_case(&json!({"me": {"command": "/usr/bin/adjutant", "args": ["serve"]}}); "by program")]
    fn our_own_entry_is_left_out_and_said(servers: &Value) {
        let set = parse(servers);
        assert_eq!(set.entries().len(), 0);
        assert_eq!(set.remarks[0].weight, Weight::LeftOut, "{:?}", set.remarks);
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
        let sentences: Vec<&str> = set.remarks.iter().map(|r| r.sentence.as_str()).collect();
        assert_eq!(sentences, ["server `x`: unknown key `pinn`; is `pin` meant?"]);
    }
}
