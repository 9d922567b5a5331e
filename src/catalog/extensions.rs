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
use super::extension_servers::{self, Visibility};
use super::load::{display_path, file_error, read_text};
use crate::catalog::model::ServerEntry;
use crate::catalog::parse::{JsonCheck, member};
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
    remove_duplicate_agents(root, &mut found, agents);
    remove_duplicate_servers(root, &mut found, servers);
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
        warn_about_keys(members, &mut check);
        check_name(members, value.line, extension, &mut check);
        let dirs = ExtensionDirs { root, dir: &extension.dir };
        extension.servers = read_servers(members, &values, &dirs, &mut check);
        extension.agents = read_agents(members, &dirs, &mut check);
    }
    extension.diagnostics.extend(check.found);
}

/// Directories that placeholders in a manifest refer to.
pub(crate) struct ExtensionDirs<'p> {
    pub(crate) root: &'p Path,
    pub(crate) dir: &'p Path,
}

fn warn_about_keys(members: &[SpannedMember], check: &mut JsonCheck<'_>) {
    for member in members.iter().filter(|member| !MANIFEST_KEYS.contains(&member.key.as_str())) {
        let message = format!("unknown key `{}`", member.key);
        check.warning("unknown-key", member.line, message, "it has no effect");
    }
}

fn check_name(
    members: &[SpannedMember],
    line: u32,
    extension: &Extension,
    check: &mut JsonCheck<'_>,
) {
    check.required_text(members, "name", line);
    let Some(name) = member(members, "name") else { return };
    if let SpannedKind::String(written) = &name.value.kind
        && *written != extension.name
    {
        let message = format!("`{written}` lies in the folder `{}`", extension.name);
        check.error("name-mismatch", name.line, message, "give both the same name");
    }
}

fn read_servers(
    members: &[SpannedMember],
    values: &Map<String, Value>,
    dirs: &ExtensionDirs<'_>,
    check: &mut JsonCheck<'_>,
) -> Vec<ExtensionServer> {
    let Some(servers) = member(members, "mcpServers") else { return Vec::new() };
    let lined = check.object(&servers.value, "`mcpServers`").unwrap_or_default();
    let mut read = Vec::new();
    for server in lined {
        let written = values.get("mcpServers").and_then(|all| all.get(&server.key));
        let Some(written) = written else { continue };
        match extension_servers::parse_server(&server.key, written, dirs) {
            Ok((visibility, entry, written)) => read.push(ExtensionServer {
                name: server.key.clone(),
                visibility,
                entry,
                mcp_json_entry: written,
                line: server.line,
            }),
            Err(problem) => {
                let message = format!("the server `{}` cannot be used: {problem}", server.key);
                check.error("invalid-server", server.line, message, "");
            }
        }
    }
    read
}

fn read_agents(
    members: &[SpannedMember],
    dirs: &ExtensionDirs<'_>,
    check: &mut JsonCheck<'_>,
) -> Vec<ExtensionAgent> {
    let Some(agents) = member(members, "agents") else { return Vec::new() };
    let list = check.list(&agents.value, "`agents`").unwrap_or_default();
    list.iter().filter_map(|agent| read_agent(agent, dirs, check)).collect()
}

fn read_agent(
    agent: &SpannedValue,
    dirs: &ExtensionDirs<'_>,
    check: &mut JsonCheck<'_>,
) -> Option<ExtensionAgent> {
    let members = check.object(agent, "an agent of the extension")?;
    check.required_text(members, "name", agent.line);
    check.required_text(members, "path", agent.line);
    let name = text(members, "name")?;
    let (line, path) = (member(members, "path")?.line, text(members, "path")?);
    if let Err(error) = name.parse::<AgentName>() {
        check.error("invalid-name", agent.line, error.to_string(), "");
        return None;
    }
    match resolve_agent_file(dirs.dir, path) {
        Ok(file) => Some(ExtensionAgent { name: name.to_owned(), file, line: agent.line }),
        Err(why) => {
            let message = format!("`{path}` cannot be the agent `{name}`: {why}");
            let help = "name a file, or a folder with `agent.md`, inside the extension";
            check.error("path-leaves-extension", line, message, help);
            None
        }
    }
}

fn text<'m>(members: &'m [SpannedMember], key: &str) -> Option<&'m str> {
    match &member(members, key)?.value.kind {
        SpannedKind::String(text) => Some(text),
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

/// Removes agents with duplicate names: project agents keep the name, of two extensions neither does.
fn remove_duplicate_agents(root: &Path, found: &mut [Extension], taken: &[String]) {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in taken {
        let owner = format!("agents/{name}/agent.md");
        owners.entry(name.to_lowercase()).or_default().push(owner);
    }
    for extension in &*found {
        for agent in &extension.agents {
            let owner = display_path(root, &agent.file).display().to_string();
            owners.entry(agent.name.to_lowercase()).or_default().push(owner);
        }
    }
    for extension in found {
        let (agents, file) = (std::mem::take(&mut extension.agents), extension.file.clone());
        for agent in agents {
            let own = display_path(root, &agent.file).display().to_string();
            match other_owners(&owners, &agent.name.to_lowercase(), &own) {
                Some(others) => {
                    let what = format!("the agent `{}` is there twice: here", agent.name);
                    extension
                        .diagnostics
                        .push(duplicate_name(root, &file, agent.line, &what, &own, &others));
                }
                None => extension.agents.push(agent),
            }
        }
    }
}

/// Removes public servers with duplicate names. Private servers may share names.
fn remove_duplicate_servers(root: &Path, found: &mut [Extension], taken: &BTreeSet<String>) {
    let public = |server: &ExtensionServer| server.visibility == Visibility::Public;
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in taken {
        owners.entry(name.clone()).or_default().push(".mcp.json".to_owned());
    }
    for extension in &*found {
        let own = display_path(root, &extension.file).display().to_string();
        for server in extension.servers.iter().filter(|server| public(server)) {
            owners.entry(server.name.clone()).or_default().push(own.clone());
        }
    }
    for extension in found {
        let (servers, file) = (std::mem::take(&mut extension.servers), extension.file.clone());
        let own = display_path(root, &file).display().to_string();
        for server in servers {
            match other_owners(&owners, &server.name, &own).filter(|_| public(&server)) {
                Some(others) => {
                    let what = format!("the server `{}` is there twice: here", server.name);
                    extension.diagnostics.push(duplicate_name(
                        root,
                        &file,
                        server.line,
                        &what,
                        &own,
                        &others,
                    ));
                }
                None => extension.servers.push(server),
            }
        }
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

fn duplicate_name(
    root: &Path,
    file: &Path,
    line: u32,
    what: &str,
    own: &str,
    others: &str,
) -> Diagnostic {
    let shown = display_path(root, file);
    let mut check = JsonCheck::new(&shown);
    let message = format!("{what} (`{own}`) and in `{others}`");
    check.error("duplicate-name", line, message, "rename one of them; this one is left out");
    check.found.pop().unwrap_or_else(|| file_error(&shown, "duplicate-name", what.to_owned()))
}
