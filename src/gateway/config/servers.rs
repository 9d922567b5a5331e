//! Parser of `.mcp.json`.
//!
//! Variables are not resolved here: `${VAR}` stays as written until the server is started, so printing a [`ServerSpec`]
//! cannot reveal a secret.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::error::GatewayError;
use crate::catalog::{
    EntryFinding, FileFormat, OAuthConfig, Pinning, ServerEntry, ServerIsolation, ServerLaunch,
    StartPolicy, parse_json_entry,
};
use crate::util::{SpannedKind, SpannedMember, SpannedValue, parse_spanned_json};

/// Timeout of a call if neither the call nor the entry sets one.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// Timeout for the response to `initialize`; `npx` may have to download the server first.
pub(crate) const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of Adjutant's own entry in `.mcp.json`.
const OWN_NAME: &str = "adjutant";

/// Validated entry of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    pub name: String,
    /// Never [`ServerLaunch::Shared`].
    pub launch: ServerLaunch,
    /// One line, shown to agents.
    pub description: Option<String>,
    pub isolation: ServerIsolation,
    pub pinning: Pinning,
    /// Timeout of a call that sets none.
    pub timeout: Duration,
    /// Maximum time from the start to the response to `initialize`.
    pub startup_timeout: Duration,
    pub oauth: OAuthConfig,
    /// Start policy; `None` uses `GATEWAY_INIT_STRATEGY`.
    pub start: Option<StartPolicy>,
    /// SHA-256 of the fields that decide how the server is started, as written.
    pub digest: String,
}

impl ServerSpec {
    /// Applies the defaults of the gateway to an entry; `None` for a reference to a shared server.
    pub fn from_entry(entry: &ServerEntry) -> Option<Self> {
        if entry.launch == ServerLaunch::Shared {
            return None;
        }
        let ServerEntry { launch, isolation, sign_in, .. } = entry;
        let digest = Sha256::digest(format!("{launch:?} {isolation:?} {sign_in:?}"));
        Some(Self {
            name: entry.name.clone(),
            launch: entry.launch.clone(),
            description: entry.description.clone(),
            isolation: entry.isolation,
            pinning: entry.pinning,
            timeout: entry.timeout.unwrap_or(DEFAULT_TIMEOUT),
            startup_timeout: entry.startup_timeout.unwrap_or(DEFAULT_STARTUP_TIMEOUT),
            oauth: entry.sign_in.clone(),
            start: entry.start,
            digest: format!("{digest:x}"),
        })
    }
}

/// One entry of `.mcp.json`: a server, or the reason why it is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfigEntry {
    pub name: String,
    /// First line of the entry; `None` for a server of an extension.
    pub line: Option<u32>,
    /// An invalid entry makes only its own server unavailable.
    pub spec: Result<Arc<ServerSpec>, String>,
}

/// Finding about an entry of `.mcp.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    pub level: FindingLevel,
    pub line: Option<u32>,
    /// Message with the name of the server.
    pub message: String,
}

/// Severity of a [`ConfigFinding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingLevel {
    /// Server left out on purpose.
    Excluded,
    /// Possible mistake.
    Suspicious,
    /// Server unusable.
    Invalid,
}

/// All servers of one `.mcp.json`, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSet {
    entries: Vec<ServerConfigEntry>,
    /// Servers in the file that are not behind the gateway, with the reason.
    left_out: Vec<(String, &'static str)>,
    /// Findings for the user.
    pub findings: Vec<ConfigFinding>,
}

const DISABLED_REASON: &str = "it is disabled in `.mcp.json`";

impl ServerSet {
    /// Returns true if no server is behind the gateway.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Parses the text of `.mcp.json`; skips a byte order mark.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Parsed twice: once for line numbers and duplicate keys, once for values.
        let lined = parse_spanned_json(text)
            .map_err(|error| invalid_file(error.line, format!("this is no JSON: {error}")))?;
        let value: Value =
            serde_json::from_str(text).map_err(|error| invalid_file(1, error.to_string()))?;
        let places = mcp_servers_members(&lined)?;
        let mut set = Self::default();
        let servers = value.get("mcpServers").and_then(Value::as_object).into_iter().flatten();
        for (name, entry) in servers {
            set.read_entry(name, entry, &members_named(places, name));
        }
        Ok(set)
    }

    /// Adds a server of an extension, unless one of that name exists.
    pub(crate) fn add(&mut self, name: &str, entry: &Value) {
        if self.get(name).is_none() {
            self.read_entry(name, entry, &[]);
        }
    }

    /// `places` are the occurrences of the key in the file.
    ///
    /// None for a server of an extension, two or more for a duplicate key.
    fn read_entry(&mut self, name: &str, entry: &Value, places: &[&SpannedMember]) {
        let disabled = entry.get("disabled").and_then(Value::as_bool) == Some(true);
        let why = own_entry_reason(name, entry).or_else(|| disabled.then_some(DISABLED_REASON));
        let line = places.first().map(|place| place.line);
        if let (Some(why), [] | [_]) = (why, places) {
            let message = format!("server `{name}` is left out: {why}");
            self.add_finding(FindingLevel::Excluded, line, message);
            self.left_out.push((name.to_owned(), why));
            return;
        }
        let mut odd = Vec::new();
        let spec = check_duplicates(places).and_then(|()| check_name(name)).and_then(|()| {
            let entry = parse_json_entry(name, entry, FileFormat::McpJson, &mut odd)
                .map_err(|mistake| (line_of(&mistake, places), mistake.message))?;
            ServerSpec::from_entry(&entry).ok_or((None, "it is a reference".to_owned()))
        });
        for finding in odd {
            let line = line_of(&finding, places).or(line);
            let message = format!("server `{name}`: {}", finding.message);
            self.add_finding(FindingLevel::Suspicious, line, message);
        }
        let spec = spec.map(Arc::new).map_err(|(known, why)| {
            let message = format!("server `{name}` cannot be used: {why}");
            self.add_finding(FindingLevel::Invalid, known.or(line), message);
            why
        });
        self.entries.push(ServerConfigEntry { name: name.to_owned(), line, spec });
    }

    fn add_finding(&mut self, weight: FindingLevel, line: Option<u32>, sentence: String) {
        self.findings.push(ConfigFinding { level: weight, line, message: sentence });
    }

    /// Returns the reason why a server in the file is left out.
    pub(crate) fn exclusion_reason(&self, name: &str) -> Option<&'static str> {
        self.left_out.iter().find(|(left, _)| left == name).map(|(_, why)| *why)
    }

    /// Returns all names in the file, including servers that are left out.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        self.names().chain(self.left_out.iter().map(|(name, _)| name.as_str()))
    }

    /// Returns the entries in the order of the file.
    pub fn entries(&self) -> &[ServerConfigEntry] {
        &self.entries
    }

    /// Returns the entry with exactly this name.
    pub fn get(&self, name: &str) -> Option<&ServerConfigEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the names in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }
}

/// Returns the reason if an entry is Adjutant itself.
///
/// Adjutant behind its own gateway would recurse forever.
fn own_entry_reason(name: &str, entry: &Value) -> Option<&'static str> {
    if name == OWN_NAME {
        return Some("it is Adjutant itself");
    }
    let command = entry.get("command").and_then(Value::as_str)?;
    let program = command.rsplit('/').next().unwrap_or(command);
    let mut args = entry.get("args").and_then(Value::as_array).into_iter().flatten();
    let serves = args.any(|argument| matches!(argument.as_str(), Some("serve" | "gateway")));
    (program == OWN_NAME && serves).then_some("it starts Adjutant itself")
}

fn check_name(name: &str) -> Result<(), (Option<u32>, String)> {
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        return Err((None, "a server's name has 1 to 128 printable characters".to_owned()));
    }
    Ok(())
}

fn invalid_file(line: u32, reason: impl Into<String>) -> GatewayError {
    GatewayError::InvalidServers { line, reason: reason.into() }
}

/// Returns the members of the `mcpServers` object, which must occur exactly once.
fn mcp_servers_members(file: &SpannedValue) -> Result<&[SpannedMember], GatewayError> {
    let SpannedKind::Object(members) = &file.kind else {
        return Err(invalid_file(file.line, "the file is no JSON object"));
    };
    match members_named(members, "mcpServers").as_slice() {
        [] => Err(invalid_file(file.line, "there is no `mcpServers`")),
        [SpannedMember { value: SpannedValue { kind: SpannedKind::Object(places), .. }, .. }] => {
            Ok(places)
        }
        [section] => Err(invalid_file(section.line, "`mcpServers` is no JSON object")),
        [_, second, ..] => Err(invalid_file(second.line, "`mcpServers` is written twice")),
    }
}

/// Returns all members with the key `name`.
fn members_named<'m>(members: &'m [SpannedMember], name: &str) -> Vec<&'m SpannedMember> {
    members.iter().filter(|member| member.key == name).collect()
}

/// Rejects duplicate keys, of the entry and inside it, since JSON does not define which one is used.
fn check_duplicates(places: &[&SpannedMember]) -> Result<(), (Option<u32>, String)> {
    match places {
        [] => Ok(()),
        [place] => match find_duplicate_key(&place.value, "") {
            None => Ok(()),
            Some((path, line)) => Err((Some(line), format!("`{path}` is written twice"))),
        },
        [first, second, ..] => {
            let why =
                format!("it is written twice, first on line {}; keep one of them", first.line);
            Err((Some(second.line), why))
        }
    }
}

/// Returns the path of the first duplicate key in `value`, and the line of its second occurrence.
fn find_duplicate_key(value: &SpannedValue, path: &str) -> Option<(String, u32)> {
    let within = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match &value.kind {
        SpannedKind::Object(members) => members.iter().enumerate().find_map(|(index, member)| {
            let repeated = members.iter().take(index).any(|earlier| earlier.key == member.key);
            let path = within(&member.key);
            if repeated {
                Some((path, member.line))
            } else {
                find_duplicate_key(&member.value, &path)
            }
        }),
        SpannedKind::Array(items) => items.iter().find_map(|item| find_duplicate_key(item, path)),
        SpannedKind::Null | SpannedKind::Bool(_) | SpannedKind::Number | SpannedKind::String(_) => {
            None
        }
    }
}

/// Returns the line of the key that the finding is about.
fn line_of(finding: &EntryFinding, places: &[&SpannedMember]) -> Option<u32> {
    let [SpannedMember { value: SpannedValue { kind: SpannedKind::Object(members), .. }, .. }] =
        places
    else {
        return None;
    };
    let key = finding.path.split(['.', '[']).next()?;
    members.iter().find(|member| member.key == key).map(|member| member.line)
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
    fn an_entry_is_parsed_without_resolving_variables() {
        let set = parse(&json!({"git": {
            "command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${TOKEN}", "N": 3},
            "description": "git", "isolation": "agent", "pin": "strict", "timeout_ms": 5, "start": "eager",
        }}));
        let spec = set.get("git").unwrap().spec.clone().unwrap();
        assert_eq!(
            (spec.isolation, spec.pinning, spec.start),
            (ServerIsolation::Agent, Pinning::Strict, Some(StartPolicy::Eager))
        );
        let ServerLaunch::Stdio { env, .. } = &spec.launch else { panic!("{spec:?}") };
        assert_eq!(env["TOKEN"].0, "${TOKEN}");
        assert_eq!(env["N"].0, "3");
    }

    #[test]
    fn an_invalid_entry_does_not_affect_others() {
        let set =
            parse(&json!({"bad": {"command": "a", "url": "http://x"}, "good": {"command": "b"}}));
        assert!(set.get("bad").unwrap().spec.is_err());
        assert!(set.get("good").unwrap().spec.is_ok());
    }

    #[test]
    fn a_duplicate_name_is_rejected_and_does_not_affect_others() {
        let text = "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"x\"},\n\"b\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}";
        let set = ServerSet::parse(text).unwrap();
        let reason = set.get("a").unwrap().spec.clone().unwrap_err();
        assert_eq!(reason, "it is written twice, first on line 1; keep one of them");
        assert!(set.get("b").unwrap().spec.is_ok());
    }

    #[test_case(&json!({"adjutant": {"command": "anything"}}); "by name")]
    #[test_case(&json!({"me": {"command": "/usr/bin/adjutant", "args": ["serve"]}}); "by program")]
    fn our_own_entry_is_excluded_and_reported(servers: &Value) {
        let set = parse(servers);
        assert_eq!(set.entries().len(), 0);
        assert_eq!(set.findings[0].level, FindingLevel::Excluded, "{:?}", set.findings);
    }

    #[test_case(&json!({"command": ""}), "empty")]
    #[test_case(&json!({}), "neither")]
    #[test_case(&json!({"url": "file:///etc/passwd"}), "begins with")]
    #[test_case(&json!({"command": "a", "type": "http"}), "needs a `url`")]
    #[test_case(&json!({"command": "a", "pin": "strickt"}), "not `report` or `strict`")]
    #[test_case(&json!({"command": "a", "timeout_ms": 0}), "positive")]
    #[test_case(&json!({"command": "a", "args": [1]}), "no text")]
    fn an_invalid_entry_is_reported_with_its_reason(entry: &Value, expected: &str) {
        let reason = parse(&json!({ "x": entry })).get("x").unwrap().spec.clone().unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }

    #[test]
    fn a_misspelt_key_is_a_warning() {
        let set = parse(&json!({"x": {"command": "a", "pinn": "strict", "headersHelper": "y"}}));
        let sentences: Vec<&str> = set.findings.iter().map(|r| r.message.as_str()).collect();
        assert_eq!(sentences, ["server `x`: unknown key `pinn`; is `pin` meant?"]);
    }
}
