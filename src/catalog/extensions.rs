//! Extensions: bundles of agents and MCP servers below `extensions/`, each in a folder that nothing of it leaves.
//!
//! An extension brings agents and servers and grants nothing: its public servers stand behind the gateway, whose rules
//! decide, and its private ones belong to its own agents alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::diagnostic::{Diagnostic, Severity};
use super::extension_servers::{self, Visibility};
use super::json_file::{JsonCheck, member};
use super::load::{read_text, relative, whole_file};
use super::model::ServerEntry;
use super::stamp::Stamps;
use crate::base::{AgentName, Lined, LinedMember, LinedValue};

/// Our own form first; the other is read where that is missing.
const MANIFESTS: [&str; 2] = ["extension.json", "gemini-extension.json"];
const KEYS: [&str; 12] = [
    "name",
    "version",
    "description",
    "mcpServers",
    "agents",
    "author",
    "license",
    "homepage",
    // What the other form has and has no meaning here.
    "contextFileName",
    "excludeTools",
    "settings",
    "themes",
];

/// One extension, as far as it can be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extension {
    /// Its folder's name.
    pub name: String,
    /// Its manifest.
    pub file: PathBuf,
    /// Its agents.
    pub agents: Vec<ExtensionAgent>,
    /// Its servers.
    pub servers: Vec<ExtensionServer>,
    /// What was found about it; with an error in its manifest nothing of it counts.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    #[serde(skip)]
    pub(super) folder: PathBuf,
    #[serde(skip)]
    pub(super) stamps: Stamps,
}

/// An agent of an extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExtensionAgent {
    /// Its name.
    pub name: String,
    /// Its file, inside the extension and without symlinks.
    pub file: PathBuf,
    #[serde(skip)]
    line: u32,
}

/// A server of an extension.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtensionServer {
    /// Its name.
    pub name: String,
    /// Who can have it.
    pub visibility: Visibility,
    /// As an agent's own server.
    #[serde(skip)]
    pub(super) entry: ServerEntry,
    /// As an entry of `.mcp.json`.
    #[serde(skip)]
    pub written: Value,
    #[serde(skip)]
    line: u32,
}

impl Extension {
    /// Whether anything about it is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// The servers that its agents have and nobody else.
    pub(super) fn private_servers(&self) -> Vec<ServerEntry> {
        let private = |server: &&ExtensionServer| server.visibility == Visibility::Private;
        self.servers.iter().filter(private).map(|server| server.entry.clone()).collect()
    }
}

/// Reads all extensions of the project. What has the name of one of `agents`, one of `servers` or of another
/// extension's is left out and said.
pub(super) fn load(root: &Path, agents: &[String], servers: &BTreeSet<String>) -> Vec<Extension> {
    let listing = fs::read_dir(root.join("extensions")).into_iter().flatten().flatten();
    let mut found: Vec<Extension> = listing
        .filter(|item| !item.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|item| read(root, &item.path()))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    refuse_taken_agents(root, &mut found, agents);
    refuse_taken_servers(root, &mut found, servers);
    found
}

/// Every file that may say what an extension is: their changes change servers and agents.
pub fn extension_manifests(root: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(root.join("extensions")).into_iter().flatten().flatten();
    folders.flat_map(|folder| MANIFESTS.map(|name| folder.path().join(name))).collect()
}

/// The public servers of all extensions, by name, as entries of `.mcp.json`. `taken` are the names that are there already.
pub fn public_servers(root: &Path, taken: &BTreeSet<String>) -> Vec<(String, Value)> {
    let public = |server: &ExtensionServer| server.visibility == Visibility::Public;
    load(root, &[], taken)
        .into_iter()
        .flat_map(|extension| extension.servers)
        .filter(public)
        .map(|server| (server.name, server.written))
        .collect()
}

fn read(root: &Path, path: &Path) -> Option<Extension> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let file = MANIFESTS.map(|name| path.join(name)).into_iter().find(|file| file.exists())?;
    let shown = relative(root, &file);
    let mut extension = Extension {
        name: name.clone(),
        agents: Vec::new(),
        servers: Vec::new(),
        diagnostics: Vec::new(),
        folder: path.to_path_buf(),
        stamps: Stamps::default(),
        file,
    };
    extension.diagnostics.extend(second_manifest(root, path));
    match folder_of(root, path, &name) {
        Ok(folder) => extension.folder = folder,
        Err((code, message)) => {
            extension.diagnostics.push(whole_file(&shown, code, message));
            return Some(extension);
        }
    }
    let folder = extension.folder.clone();
    match read_text(&folder, &extension.file, &shown, &mut extension.stamps) {
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

/// A manifest that has no effect because there is one in our own form.
fn second_manifest(root: &Path, path: &Path) -> Option<Diagnostic> {
    let [own, other] = MANIFESTS.map(|name| path.join(name));
    let both = own.exists() && other.exists();
    let message = "`extension.json` is read, and nothing of this file counts".to_owned();
    both.then(|| Diagnostic {
        severity: Severity::Warning,
        help: Some("keep one of the two".to_owned()),
        ..whole_file(&relative(root, &other), "second-manifest", message)
    })
}

/// The folder without symlinks; it must lie in the project and have a name that can be used.
fn folder_of(root: &Path, path: &Path, name: &str) -> Result<PathBuf, (&'static str, String)> {
    if let Err(error) = name.parse::<AgentName>() {
        return Err(("invalid-name", error.to_string()));
    }
    let folder = path.canonicalize().map_err(|error| ("unreadable", error.to_string()))?;
    if folder.starts_with(root) {
        return Ok(folder);
    }
    let message = format!("the extension leads out of the project, to `{}`", folder.display());
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
        let places = Places { root, folder: &extension.folder };
        extension.servers = read_servers(members, &values, &places, &mut check);
        extension.agents = read_agents(members, &places, &mut check);
    }
    extension.diagnostics.extend(check.found);
}

/// What stands around an extension.
pub(super) struct Places<'p> {
    pub(super) root: &'p Path,
    pub(super) folder: &'p Path,
}

fn warn_about_keys(members: &[LinedMember], check: &mut JsonCheck<'_>) {
    for member in members.iter().filter(|member| !KEYS.contains(&member.key.as_str())) {
        let message = format!("unknown key `{}`", member.key);
        check.warning("unknown-key", member.line, message, "it has no effect");
    }
}

fn check_name(
    members: &[LinedMember],
    line: u32,
    extension: &Extension,
    check: &mut JsonCheck<'_>,
) {
    check.required_text(members, "name", line);
    let Some(name) = member(members, "name") else { return };
    if let Lined::String(written) = &name.value.value
        && *written != extension.name
    {
        let message = format!("`{written}` lies in the folder `{}`", extension.name);
        check.error("name-mismatch", name.line, message, "give both the same name");
    }
}

fn read_servers(
    members: &[LinedMember],
    values: &Map<String, Value>,
    places: &Places<'_>,
    check: &mut JsonCheck<'_>,
) -> Vec<ExtensionServer> {
    let Some(servers) = member(members, "mcpServers") else { return Vec::new() };
    let lined = check.object(&servers.value, "`mcpServers`").unwrap_or_default();
    let mut read = Vec::new();
    for server in lined {
        let written = values.get("mcpServers").and_then(|all| all.get(&server.key));
        let Some(written) = written else { continue };
        match extension_servers::read(&server.key, written, places) {
            Ok((visibility, entry, written)) => read.push(ExtensionServer {
                name: server.key.clone(),
                visibility,
                entry,
                written,
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
    members: &[LinedMember],
    places: &Places<'_>,
    check: &mut JsonCheck<'_>,
) -> Vec<ExtensionAgent> {
    let Some(agents) = member(members, "agents") else { return Vec::new() };
    let list = check.list(&agents.value, "`agents`").unwrap_or_default();
    list.iter().filter_map(|agent| read_agent(agent, places, check)).collect()
}

fn read_agent(
    agent: &LinedValue,
    places: &Places<'_>,
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
    match inside(places.folder, path) {
        Ok(file) => Some(ExtensionAgent { name: name.to_owned(), file, line: agent.line }),
        Err(why) => {
            let message = format!("`{path}` cannot be the agent `{name}`: {why}");
            let help = "name a file, or a folder with `agent.md`, inside the extension";
            check.error("path-leaves-extension", line, message, help);
            None
        }
    }
}

fn text<'m>(members: &'m [LinedMember], key: &str) -> Option<&'m str> {
    match &member(members, key)?.value.value {
        Lined::String(text) => Some(text),
        _ => None,
    }
}

/// The agent's file, every symlink followed; it must still lie inside the extension.
fn inside(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(plain) {
        return Err("a path stays inside the extension".to_owned());
    }
    let target = folder.join(path);
    let target = if target.is_dir() { target.join("agent.md") } else { target };
    let file = target.canonicalize().map_err(|error| error.to_string())?;
    if !file.starts_with(folder) {
        return Err(format!("it leads out of the extension, to `{}`", file.display()));
    }
    if file.is_file() { Ok(file) } else { Err("it is no file".to_owned()) }
}

/// One name for one agent: whoever is in the project keeps it, of two extensions neither has it.
fn refuse_taken_agents(root: &Path, found: &mut [Extension], taken: &[String]) {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in taken {
        let owner = format!("agents/{name}/agent.md");
        owners.entry(name.to_lowercase()).or_default().push(owner);
    }
    for extension in &*found {
        for agent in &extension.agents {
            let owner = relative(root, &agent.file).display().to_string();
            owners.entry(agent.name.to_lowercase()).or_default().push(owner);
        }
    }
    for extension in found {
        let (agents, file) = (std::mem::take(&mut extension.agents), extension.file.clone());
        for agent in agents {
            let own = relative(root, &agent.file).display().to_string();
            match others(&owners, &agent.name.to_lowercase(), &own) {
                Some(others) => {
                    let what = format!("the agent `{}` is there twice: here", agent.name);
                    extension
                        .diagnostics
                        .push(clash(root, &file, agent.line, &what, &own, &others));
                }
                None => extension.agents.push(agent),
            }
        }
    }
}

/// One name for one public server. Private ones are nobody else's business.
fn refuse_taken_servers(root: &Path, found: &mut [Extension], taken: &BTreeSet<String>) {
    let public = |server: &ExtensionServer| server.visibility == Visibility::Public;
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in taken {
        owners.entry(name.clone()).or_default().push(".mcp.json".to_owned());
    }
    for extension in &*found {
        let own = relative(root, &extension.file).display().to_string();
        for server in extension.servers.iter().filter(|server| public(server)) {
            owners.entry(server.name.clone()).or_default().push(own.clone());
        }
    }
    for extension in found {
        let (servers, file) = (std::mem::take(&mut extension.servers), extension.file.clone());
        let own = relative(root, &file).display().to_string();
        for server in servers {
            match others(&owners, &server.name, &own).filter(|_| public(&server)) {
                Some(others) => {
                    let what = format!("the server `{}` is there twice: here", server.name);
                    extension.diagnostics.push(clash(
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

/// Who else has the name.
fn others(owners: &BTreeMap<String, Vec<String>>, name: &str, own: &str) -> Option<String> {
    let all = owners.get(name)?;
    // The same file twice is a clash too.
    let mut others: Vec<&str> = all.iter().map(String::as_str).collect();
    let at = others.iter().position(|owner| *owner == own)?;
    others.remove(at);
    (!others.is_empty()).then(|| others.join("` and `"))
}

fn clash(root: &Path, file: &Path, line: u32, what: &str, own: &str, others: &str) -> Diagnostic {
    let shown = relative(root, file);
    let mut check = JsonCheck::new(&shown);
    let message = format!("{what} (`{own}`) and in `{others}`");
    check.error("duplicate-name", line, message, "rename one of them; this one is left out");
    check.found.pop().unwrap_or_else(|| whole_file(&shown, "duplicate-name", what.to_owned()))
}
