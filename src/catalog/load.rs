//! Loads all agents in parallel; unchanged ones are taken from the previous snapshot.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io, thread};

use serde_json::Value;

use super::diagnostic::{Diagnostic, Severity};
use super::extensions::{self, Extension, ExtensionAgent};
use super::load_agent::{self, LoadContext};
use super::snapshot::{CatalogEntry, SharedDefaults, Snapshot};
use crate::catalog::model::{Agent, Orchestration, ServerEntry};
use crate::catalog::parse::parse_defaults;
use crate::config::{GatewayFiles, Settings};
use crate::store::{
    BoundedReadError, FileDependencies, FileVersion, read_bounded, read_within_root,
};
use crate::util::{RESERVED_MAIN, strip_control_chars};

/// Maximum size of an agent's file and of `defaults.yaml`.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Minimum number of agents per load to use threads; below it threads cost more than they save.
const MIN_AGENTS_FOR_THREADS: usize = 64;

/// Loads a snapshot; keeps entries of `previous` whose files are unchanged.
pub(crate) fn load_snapshot(settings: &Settings, previous: Option<&Snapshot>) -> Snapshot {
    let common = match previous {
        Some(previous) if previous.common.dependencies.are_current() => {
            Arc::clone(&previous.common)
        }
        _ => Arc::new(load_defaults(settings)),
    };
    let previous = previous.filter(|previous| Arc::ptr_eq(&previous.common, &common));
    let (mut dirs, mut diagnostics) = list_agent_dirs(settings);
    let extensions = load_extensions(settings, &dirs);
    for extension in &extensions {
        diagnostics.extend(extension.diagnostics.iter().cloned());
        dirs.extend(extension_agent_dirs(extension));
    }
    let names: Vec<String> = dirs.iter().map(|dir| dir.name.clone()).collect();
    let duplicates = duplicate_names(&names);
    let context = LoadContext {
        root: &settings.root,
        names: &names,
        duplicate_names: &duplicates,
        common: &common,
        previous,
    };
    Snapshot::new(load_entries(&dirs, &context), common, diagnostics, extensions)
}

/// Returns lower-cased names that occur more than once.
/// Case-insensitive file systems treat such directories as one, so none of them is an agent.
fn duplicate_names(names: &[String]) -> HashSet<String> {
    let mut seen = HashSet::new();
    names.iter().map(|name| name.to_lowercase()).filter(|name| !seen.insert(name.clone())).collect()
}

/// Directory of an agent, below `agents/` or in an extension.
#[derive(Clone, Debug)]
pub(crate) struct AgentDir {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) is_symlink: bool,
    /// Path of the agent's file.
    pub(crate) file: PathBuf,
    /// Set for an agent of an extension.
    pub(crate) extension: Option<ExtensionGrants>,
}

/// Servers that an extension grants to its agents, and the directory that confines them.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionGrants {
    pub(crate) name: String,
    /// Files of the agent outside this directory are rejected.
    pub(crate) dir: PathBuf,
    pub(crate) servers: Vec<ServerEntry>,
    pub(crate) dependencies: FileDependencies,
}

fn load_extensions(settings: &Settings, dirs: &[AgentDir]) -> Vec<Extension> {
    let agents: Vec<String> = dirs.iter().map(|dir| dir.name.clone()).collect();
    let config = GatewayFiles::locate(settings).mcp_config.path;
    extensions::load(&settings.root, &agents, &server_names(&config))
}

/// Returns the server names in `.mcp.json`. Syntax errors are reported by the gateway configuration.
fn server_names(path: &Path) -> BTreeSet<String> {
    let bytes = read_bounded(path, MAX_FILE_BYTES).unwrap_or_default();
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let config: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let servers = config.get("mcpServers").and_then(Value::as_object);
    servers.into_iter().flat_map(|servers| servers.keys().cloned()).collect()
}

fn extension_agent_dirs(extension: &Extension) -> Vec<AgentDir> {
    let grants = ExtensionGrants {
        name: extension.name.clone(),
        dir: extension.dir.clone(),
        servers: extension.private_servers(),
        dependencies: extension.dependencies.clone(),
    };
    let dir = |agent: &ExtensionAgent| AgentDir {
        name: agent.name.clone(),
        path: agent.file.parent().unwrap_or(&extension.dir).to_path_buf(),
        is_symlink: false,
        file: agent.file.clone(),
        extension: Some(grants.clone()),
    };
    extension.agents.iter().map(dir).collect()
}

fn load_entries(dirs: &[AgentDir], context: &LoadContext<'_>) -> Vec<Arc<CatalogEntry>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    if threads == 1 || dirs.len() < MIN_AGENTS_FOR_THREADS {
        return dirs.iter().filter_map(|dir| load_agent::load_entry(dir, context)).collect();
    }
    let share = dirs.len().div_ceil(threads);
    thread::scope(|scope| {
        let shares: Vec<_> = dirs
            .chunks(share)
            .map(|dirs| {
                scope.spawn(move || {
                    dirs.iter().filter_map(|dir| load_agent::load_entry(dir, context)).collect()
                })
            })
            .collect();
        // A panicking thread is a bug; its agents are missing from the snapshot.
        shares.into_iter().filter_map(|share| share.join().ok()).flat_map(|v: Vec<_>| v).collect()
    })
}

impl Orchestration {
    /// Reads the limits in `agents/defaults.yaml` without reading agent files.
    ///
    /// Returns the built-in limits if the file is missing or has errors.
    pub fn load(settings: &Settings) -> Self {
        load_defaults(settings).orchestration
    }
}

/// Reads `agents/defaults.yaml`; built-in values if the file is missing or unreadable.
fn load_defaults(settings: &Settings) -> SharedDefaults {
    let path = settings.defaults_file();
    let file = display_path(&settings.root, &path);
    let mut dependencies = FileDependencies::default();
    let (template, orchestration, diagnostics) =
        match read_text(&settings.root, &path, &file, &mut dependencies) {
            Ok(text) => parse_defaults(text.as_deref().unwrap_or_default(), &file),
            Err(problem) => (Agent::template(), Orchestration::default(), vec![*problem]),
        };
    SharedDefaults { template, orchestration, diagnostics, dependencies }
}

/// Reads a UTF-8 file of at most 1 MiB and records its version; `None` if the file does not exist.
pub(crate) fn read_text(
    root: &Path,
    path: &Path,
    file: &Path,
    dependencies: &mut FileDependencies,
) -> Result<Option<String>, Box<Diagnostic>> {
    match read_consistent(root, path) {
        Ok((bytes, metadata)) => {
            dependencies.add(path.to_path_buf(), Some(FileVersion::from_metadata(&metadata)));
            decode(bytes, file).map(Some)
        }
        Err(BoundedReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            dependencies.add(path.to_path_buf(), FileVersion::read(path));
            // A dangling symlink is an error, not a missing file.
            match fs::symlink_metadata(path) {
                Ok(_) => Err(Box::new(read_error(file, &BoundedReadError::Io(error)))),
                Err(_) => Ok(None),
            }
        }
        Err(error) => {
            dependencies.add(path.to_path_buf(), FileVersion::read(path));
            Err(Box::new(read_error(file, &error)))
        }
    }
}

/// Reads a file; up to 3 retries if the file changes during the read, so that no mixed content is used.
fn read_consistent(root: &Path, path: &Path) -> Result<(Vec<u8>, fs::Metadata), BoundedReadError> {
    let mut read = read_within_root(root, path, MAX_FILE_BYTES)?;
    for _ in 0..3 {
        if FileVersion::read(path)
            .is_some_and(|now| now.same_metadata(FileVersion::from_metadata(&read.1)))
        {
            break;
        }
        read = read_within_root(root, path, MAX_FILE_BYTES)?;
    }
    Ok(read)
}

fn decode(bytes: Vec<u8>, file: &Path) -> Result<String, Box<Diagnostic>> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let before = String::from_utf8_lossy(before);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Box::new(Diagnostic {
            line,
            column,
            help: Some("save it as UTF-8".to_owned()),
            ..file_error(file, "not-utf8", "these bytes are not UTF-8".to_owned())
        })
    })
}

fn read_error(file: &Path, error: &BoundedReadError) -> Diagnostic {
    let (code, help) = match error {
        BoundedReadError::Io(_) => ("unreadable", "check its permissions and where it leads"),
        BoundedReadError::NotRegularFile => ("not-a-file", "put a regular file there"),
        BoundedReadError::TooLarge { .. } => {
            ("too-large", "move long texts to files the agent can read")
        }
        BoundedReadError::EscapesRoot { .. } => {
            ("symlink-leaves-project", "copy the file into the project")
        }
    };
    let message = format!("it cannot be used: {error}");
    Diagnostic { help: Some(help.to_owned()), ..file_error(file, code, message) }
}

/// An error about a whole file.
pub(crate) fn file_error(file: &Path, code: &'static str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code,
        file: file.to_path_buf(),
        line: 1,
        column: 1,
        length: 1,
        message,
        help: None,
    }
}

/// Path as shown in findings: relative to the root if below it, on one line.
pub(crate) fn display_path(root: &Path, path: &Path) -> PathBuf {
    let shown = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    strip_control_chars(&shown).replace(['\n', '\t'], " ").into()
}

/// Lists agent directories and reports other entries of `agents/`.
fn list_agent_dirs(settings: &Settings) -> (Vec<AgentDir>, Vec<Diagnostic>) {
    let agents = settings.agents_dir();
    let file = display_path(&settings.root, &agents);
    let mut diagnostics = Vec::new();
    if let Some(problem) = check_agents_dir(settings, &agents, &file) {
        return (Vec::new(), vec![problem]);
    }
    let listing = match fs::read_dir(&agents) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), diagnostics),
        Err(error) => {
            let message = format!("the folder cannot be listed: {error}");
            return (Vec::new(), vec![file_error(&file, "unreadable", message)]);
        }
    };
    let mut dirs = Vec::new();
    for item in listing.flatten() {
        classify_entry(&item, settings, &mut dirs, &mut diagnostics);
    }
    dirs.sort_by(|a, b| a.name.cmp(&b.name));
    diagnostics.sort_by(|a, b| a.file.cmp(&b.file));
    (dirs, diagnostics)
}

fn check_agents_dir(settings: &Settings, agents: &Path, file: &Path) -> Option<Diagnostic> {
    let target = agents.canonicalize().ok()?;
    if !target.starts_with(&settings.root) {
        let message =
            format!("`agents` is a symlink that leaves the project, to `{}`", target.display());
        return Some(file_error(file, "symlink-leaves-project", message));
    }
    (!target.is_dir())
        .then(|| file_error(file, "not-a-folder", "`agents` is not a folder".to_owned()))
}

fn classify_entry(
    item: &fs::DirEntry,
    settings: &Settings,
    dirs: &mut Vec<AgentDir>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let name = item.file_name().to_string_lossy().into_owned();
    let Ok(kind) = item.file_type() else { return };
    if name.starts_with('.') || name == RESERVED_MAIN {
        return;
    }
    let path = item.path();
    if kind.is_dir() || (kind.is_symlink() && !points_to_file(&path)) {
        let file = path.join("agent.md");
        dirs.push(AgentDir { name, path, is_symlink: kind.is_symlink(), file, extension: None });
    } else if let Some(stem) = name.strip_suffix(".md").filter(|stem| *stem != "README") {
        let file = display_path(&settings.root, &path);
        diagnostics.push(Diagnostic {
            severity: Severity::Warning,
            help: Some(format!("move it to `agents/{stem}/agent.md`")),
            ..file_error(
                &file,
                "flat-agent-file",
                "an agent is a folder; this file is not read".to_owned(),
            )
        });
    }
}

fn points_to_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
