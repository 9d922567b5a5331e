//! Extensions: bundles of agents and MCP servers below `extensions/`, each confined to its directory.
//!
//! An extension grants no permission: its public servers are subject to the gateway rules, its private servers are
//! available to its own agents only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::diagnostic::{Diagnostic, Severity};
use super::load::{display_path, file_error, read_text};
use crate::catalog::model::ServerEntry;
use crate::catalog::parse::{FileFormat, JsonCheck, member, parse_json_entry};
use crate::store::FileDependencies;
use crate::util::{AgentName, SpannedKind, SpannedMember, SpannedValue};

/// Manifest file names in order of precedence.
/// A directory below `extensions/` with one of them is an extension.
pub(crate) const EXTENSION_MANIFESTS: [&str; 2] = ["extension.json", "gemini-extension.json"];
const MANIFEST_KEYS: [&str; 12] = [
    "name",
    "version",
    "description",
    "mcpServers",
    "agents",
    "author",
    "license",
    "homepage",
    // Keys of the `gemini-extension.json` format that are ignored.
    "contextFileName",
    "excludeTools",
    "settings",
    "themes",
];
/// Keys of a server that have no effect behind the gateway. `trust` is a key of the `gemini-extension.json` format; it is
/// ignored, because it is set in agent files.
const MANIFEST_ONLY_KEYS: [&str; 2] = ["visibility", "trust"];
/// Keys of a server that have an effect behind the gateway only, which checks them.
const GATEWAY_KEYS: [&str; 3] = ["description", "pin", "start"];

/// An extension. Without agents and servers if its manifest has errors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extension {
    /// Directory name.
    pub name: String,
    /// Path of the manifest.
    pub file: PathBuf,
    pub agents: Vec<ExtensionAgent>,
    pub servers: Vec<ExtensionServer>,
    /// Findings about the manifest.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    #[serde(skip)]
    pub(crate) dir: PathBuf,
    #[serde(skip)]
    pub(crate) dependencies: FileDependencies,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExtensionAgent {
    pub name: String,
    /// Canonical path inside the extension.
    pub file: PathBuf,
    #[serde(skip)]
    line: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtensionServer {
    pub name: String,
    pub visibility: Visibility,
    /// As an entry of an agent file.
    #[serde(skip)]
    pub(crate) entry: ServerEntry,
    /// As an entry of `.mcp.json`.
    #[serde(skip)]
    pub mcp_json_entry: Value,
    #[serde(skip)]
    line: u32,
}

/// Agents that may use a server of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// All agents that the gateway rules grant it to.
    Public,
    /// Only the agents of the extension.
    Private,
}

impl Extension {
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Returns the servers available to the extension's agents only.
    pub(crate) fn private_servers(&self) -> Vec<ServerEntry> {
        let private = |server: &&ExtensionServer| server.visibility == Visibility::Private;
        self.servers.iter().filter(private).map(|server| server.entry.clone()).collect()
    }
}

/// Reads all extensions of the project.
///
/// Agents whose names clash with `agents` and public servers whose names clash with `servers`, or with those of another
/// extension, are left out and reported.
pub(crate) fn load(root: &Path, agents: &[String], servers: &BTreeSet<String>) -> Vec<Extension> {
    let listing = fs::read_dir(root.join("extensions")).into_iter().flatten().flatten();
    let mut found: Vec<Extension> = listing
        .filter(|item| !item.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|item| read_extension(root, &item.path()))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let own = |name: &String| (name.to_lowercase(), format!("agents/{name}/agent.md"));
    remove_duplicates(root, &mut found, agents.iter().map(own), |found| &mut found.agents);
    let own = |name: &String| (name.clone(), ".mcp.json".to_owned());
    remove_duplicates(root, &mut found, servers.iter().map(own), |found| &mut found.servers);
    found
}

/// Returns all possible manifest paths; a change of any may change servers and agents.
pub(crate) fn extension_manifests(root: &Path) -> Vec<PathBuf> {
    let dirs = fs::read_dir(root.join("extensions")).into_iter().flatten().flatten();
    dirs.flat_map(|dir| EXTENSION_MANIFESTS.map(|name| dir.path().join(name))).collect()
}

/// Returns the public servers of all extensions as entries of `.mcp.json`, except names in `taken`.
pub(crate) fn public_servers(root: &Path, taken: &BTreeSet<String>) -> Vec<(String, Value)> {
    let public = |server: &ExtensionServer| server.visibility == Visibility::Public;
    load(root, &[], taken)
        .into_iter()
        .flat_map(|extension| extension.servers)
        .filter(public)
        .map(|server| (server.name, server.mcp_json_entry))
        .collect()
}

fn read_extension(root: &Path, path: &Path) -> Option<Extension> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let file =
        EXTENSION_MANIFESTS.map(|name| path.join(name)).into_iter().find(|file| file.exists())?;
    let shown = display_path(root, &file);
    let mut extension = Extension {
        name: name.clone(),
        agents: Vec::new(),
        servers: Vec::new(),
        diagnostics: Vec::new(),
        dir: path.to_path_buf(),
        dependencies: FileDependencies::default(),
        file,
    };
    extension.diagnostics.extend(shadowed_manifest(root, path));
    match resolve_dir(root, path, &name) {
        Ok(dir) => extension.dir = dir,
        Err((code, message)) => {
            extension.diagnostics.push(file_error(&shown, code, message));
            return Some(extension);
        }
    }
    let dir = extension.dir.clone();
    match read_text(&dir, &extension.file, &shown, &mut extension.dependencies) {
        Ok(Some(text)) => read_manifest(root, &text, &shown, &mut extension),
        Ok(None) => return None,
        Err(problem) => extension.diagnostics.push(*problem),
    }
    if extension.has_errors() {
        extension.agents.clear();
        extension.servers.clear();
    }
    Some(extension)
}

/// Warning about `gemini-extension.json` beside `extension.json`.
fn shadowed_manifest(root: &Path, path: &Path) -> Option<Diagnostic> {
    let [own, other] = EXTENSION_MANIFESTS.map(|name| path.join(name));
    let both = own.exists() && other.exists();
    let message = "`extension.json` is read, and nothing of this file counts".to_owned();
    both.then(|| Diagnostic {
        severity: Severity::Warning,
        help: Some("keep one of the two".to_owned()),
        ..file_error(&display_path(root, &other), "second-manifest", message)
    })
}

/// Returns the canonical directory, which must be below `root` and have a valid name.
fn resolve_dir(root: &Path, path: &Path, name: &str) -> Result<PathBuf, (&'static str, String)> {
    if let Err(error) = name.parse::<AgentName>() {
        return Err(("invalid-name", error.to_string()));
    }
    let dir = path.canonicalize().map_err(|error| ("unreadable", error.to_string()))?;
    if dir.starts_with(root) {
        return Ok(dir);
    }
    let message = format!("the extension leads out of the project, to `{}`", dir.display());
    Err(("symlink-leaves-project", message))
}

fn read_manifest(root: &Path, text: &str, shown: &Path, extension: &mut Extension) {
    let mut check = JsonCheck::new(shown);
    if let Some(value) = check.parse(text)
        && let Some(members) = check.object(&value, "the file")
        && let Ok(Value::Object(values)) = serde_json::from_str(text)
    {
        let mut manifest = ManifestReader { root, dir: &extension.dir, members, check: &mut check };
        manifest.check_keys(&extension.name, value.line);
        extension.servers = manifest.read_servers(&values);
        extension.agents = manifest.read_agents();
    }
    extension.diagnostics.extend(check.found);
}

/// Reader of the members of one manifest.
struct ManifestReader<'m, 'f> {
    root: &'m Path,
    dir: &'m Path,
    members: &'m [SpannedMember],
    check: &'m mut JsonCheck<'f>,
}

impl ManifestReader<'_, '_> {
    fn check_keys(&mut self, extension: &str, line: u32) {
        for member in self.members.iter().filter(|one| !MANIFEST_KEYS.contains(&one.key.as_str())) {
            let message = format!("unknown key `{}`", member.key);
            self.check.warning("unknown-key", member.line, message, "it has no effect");
        }
        self.check.required_text(self.members, "name", line);
        if let Some((line, written)) = text(self.members, "name")
            && written != extension
        {
            let message = format!("`{written}` lies in the folder `{extension}`");
            self.check.error("name-mismatch", line, message, "give both the same name");
        }
    }

    fn read_servers(&mut self, values: &Map<String, Value>) -> Vec<ExtensionServer> {
        let Some(servers) = member(self.members, "mcpServers") else { return Vec::new() };
        let mut read = Vec::new();
        for server in self.check.object(&servers.value, "`mcpServers`").unwrap_or_default() {
            let written = values.get("mcpServers").and_then(|all| all.get(&server.key));
            match written.map(|written| self.read_server(&server.key, server.line, written)) {
                None => {}
                Some(Ok(server)) => read.push(server),
                Some(Err(problem)) => {
                    let message = format!("the server `{}` cannot be used: {problem}", server.key);
                    self.check.error("invalid-server", server.line, message, "");
                }
            }
        }
        read
    }

    fn read_server(
        &self,
        name: &str,
        line: u32,
        written: &Value,
    ) -> Result<ExtensionServer, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) || name.contains("__") {
            return Err("its name has letters, digits, `-` and `_`, and no `__`".to_owned());
        }
        let Value::Object(written) = written else {
            return Err("its entry is no object".to_owned());
        };
        let mut entry = self.resolve_placeholders(written);
        let visibility = match entry.get("visibility").map(Value::as_str) {
            None | Some(Some("public")) => Visibility::Public,
            Some(Some("private")) => Visibility::Private,
            Some(_) => return Err("`visibility` is `public` or `private`".to_owned()),
        };
        entry.retain(|key, _| !MANIFEST_ONLY_KEYS.contains(&key.as_str()));
        if let Some(url) = entry.shift_remove("httpUrl") {
            entry.entry("url").or_insert(url);
        }
        let mut own = entry.clone();
        own.retain(|key, _| !GATEWAY_KEYS.contains(&key.as_str()));
        let own = Value::Object(own);
        let server = parse_json_entry(name, &own, FileFormat::Manifest, &mut Vec::new())
            .map_err(|mistake| mistake.message)?;
        let (name, mcp_json_entry) = (name.to_owned(), Value::Object(entry));
        Ok(ExtensionServer { name, visibility, entry: server, mcp_json_entry, line })
    }

    /// Replaces `${extensionPath}`, `${workspacePath}`, `${/}` and `${pathSeparator}`, which both manifest formats use.
    fn resolve_placeholders(&self, entry: &Map<String, Value>) -> Map<String, Value> {
        entry.iter().map(|(key, value)| (key.clone(), self.resolve_value(value))).collect()
    }

    fn resolve_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let text = text
                    .replace("${extensionPath}", &self.dir.to_string_lossy())
                    .replace("${workspacePath}", &self.root.to_string_lossy())
                    .replace("${/}", "/")
                    .replace("${pathSeparator}", "/");
                Value::String(text)
            }
            Value::Array(items) => items.iter().map(|item| self.resolve_value(item)).collect(),
            Value::Object(members) => Value::Object(self.resolve_placeholders(members)),
            other => other.clone(),
        }
    }

    fn read_agents(&mut self) -> Vec<ExtensionAgent> {
        let Some(agents) = member(self.members, "agents") else { return Vec::new() };
        let list = self.check.list(&agents.value, "`agents`").unwrap_or_default();
        list.iter().filter_map(|agent| self.read_agent(agent)).collect()
    }

    fn read_agent(&mut self, agent: &SpannedValue) -> Option<ExtensionAgent> {
        let members = self.check.object(agent, "an agent of the extension")?;
        self.check.required_text(members, "name", agent.line);
        self.check.required_text(members, "path", agent.line);
        let (_, name) = text(members, "name")?;
        let (line, path) = text(members, "path")?;
        if let Err(error) = name.parse::<AgentName>() {
            self.check.error("invalid-name", agent.line, error.to_string(), "");
            return None;
        }
        match resolve_agent_file(self.dir, path) {
            Ok(file) => Some(ExtensionAgent { name: name.to_owned(), file, line: agent.line }),
            Err(why) => {
                let message = format!("`{path}` cannot be the agent `{name}`: {why}");
                let help = "name a file, or a folder with `agent.md`, inside the extension";
                self.check.error("path-leaves-extension", line, message, help);
                None
            }
        }
    }
}

/// Returns the line and the value of a text member.
fn text<'m>(members: &'m [SpannedMember], key: &str) -> Option<(u32, &'m str)> {
    let member = member(members, key)?;
    match &member.value.kind {
        SpannedKind::String(text) => Some((member.line, text)),
        _ => None,
    }
}

/// Returns the canonical file of an agent, which must be inside the extension.
fn resolve_agent_file(dir: &Path, path: &str) -> Result<PathBuf, String> {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(plain) {
        return Err("a path stays inside the extension".to_owned());
    }
    let target = dir.join(path);
    let target = if target.is_dir() { target.join("agent.md") } else { target };
    let file = target.canonicalize().map_err(|error| error.to_string())?;
    if !file.starts_with(dir) {
        return Err(format!("it leads out of the extension, to `{}`", file.display()));
    }
    if file.is_file() { Ok(file) } else { Err("it is no file".to_owned()) }
}

/// A name that must be unique among all extensions and the project.
trait UniqueName {
    /// Returns the name to compare, or `None` if it need not be unique.
    fn unique_name(&self) -> Option<String>;
    /// Returns the file that defines the name; `manifest` is that of the extension.
    fn file<'f>(&'f self, manifest: &'f Path) -> &'f Path;
    /// Returns the line in the manifest and a description.
    fn describe(&self) -> (u32, String);
}

impl UniqueName for ExtensionAgent {
    fn unique_name(&self) -> Option<String> {
        Some(self.name.to_lowercase())
    }

    fn file<'f>(&'f self, _manifest: &'f Path) -> &'f Path {
        &self.file
    }

    fn describe(&self) -> (u32, String) {
        (self.line, format!("the agent `{}`", self.name))
    }
}

/// Private servers may share names.
impl UniqueName for ExtensionServer {
    fn unique_name(&self) -> Option<String> {
        (self.visibility == Visibility::Public).then(|| self.name.clone())
    }

    fn file<'f>(&'f self, manifest: &'f Path) -> &'f Path {
        manifest
    }

    fn describe(&self) -> (u32, String) {
        (self.line, format!("the server `{}`", self.name))
    }
}

/// Removes items with duplicate names: the project keeps the name, of two extensions neither does.
/// `project` has the names of the project and the files that own them.
fn remove_duplicates<T: UniqueName>(
    root: &Path,
    found: &mut [Extension],
    project: impl Iterator<Item = (String, String)>,
    items: fn(&mut Extension) -> &mut Vec<T>,
) {
    let shown = |path: &Path| display_path(root, path).display().to_string();
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, owner) in project {
        owners.entry(name).or_default().push(owner);
    }
    for extension in &mut *found {
        let manifest = extension.file.clone();
        for item in items(extension).iter() {
            if let Some(name) = item.unique_name() {
                owners.entry(name).or_default().push(shown(item.file(&manifest)));
            }
        }
    }
    for extension in found {
        let manifest = display_path(root, &extension.file);
        let mut check = JsonCheck::new(&manifest);
        let file = extension.file.clone();
        items(extension).retain(|item| {
            let own = shown(item.file(&file));
            let others = item.unique_name().and_then(|name| other_owners(&owners, &name, &own));
            if let Some(others) = &others {
                let (line, what) = item.describe();
                let message = format!("{what} is there twice: here (`{own}`) and in `{others}`");
                let help = "rename one of them; this one is left out";
                check.error("duplicate-name", line, message, help);
            }
            others.is_none()
        });
        extension.diagnostics.extend(check.found);
    }
}

/// Returns all other owners of the name.
fn other_owners(owners: &BTreeMap<String, Vec<String>>, name: &str, own: &str) -> Option<String> {
    let all = owners.get(name)?;
    // A second entry of the same file counts as another owner.
    let mut others: Vec<&str> = all.iter().map(String::as_str).collect();
    let at = others.iter().position(|owner| *owner == own)?;
    others.remove(at);
    (!others.is_empty()).then(|| others.join("` and `"))
}
