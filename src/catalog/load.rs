//! Reads the whole `agents/` folder: side by side, and again only what changed.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use super::defaults::{Defaults, Orchestration};
use super::diagnostic::{Diagnostic, Severity};
use super::extensions::{self, Extension, ExtensionAgent};
use super::load_agent::{self, Surroundings};
use super::model::ServerEntry;
use super::read_defaults::read_defaults;
use super::snapshot::{Common, Entry, Snapshot};
use super::stamp::{Stamp, Stamps};
use crate::base::{RESERVED_MAIN, ReadRefused, read_bounded, read_inside, without_controls};
use crate::config::{GatewayFiles, Settings};

/// The most bytes of an agent's file or of `defaults.yaml` that are read.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Below this a second thread costs more than it brings.
const AGENTS_PER_THREAD: usize = 64;

/// Reads everything; entries of `previous` whose files did not change are kept.
pub(super) fn load(settings: &Settings, previous: Option<&Snapshot>) -> Snapshot {
    let common = match previous {
        Some(previous) if previous.common.stamps.hold() => Arc::clone(&previous.common),
        _ => Arc::new(load_common(settings)),
    };
    let previous = previous.filter(|previous| Arc::ptr_eq(&previous.common, &common));
    let (mut folders, mut diagnostics) = list_folders(settings);
    let extensions = load_extensions(settings, &folders);
    for extension in &extensions {
        diagnostics.extend(extension.diagnostics.iter().cloned());
        folders.extend(folders_of(extension));
    }
    let names: Vec<String> = folders.iter().map(|folder| folder.name.clone()).collect();
    let twins = twins(&names);
    let around = Surroundings {
        root: &settings.root,
        names: &names,
        twins: &twins,
        common: &common,
        previous,
    };
    Snapshot::new(load_all(&folders, &around), common, diagnostics, extensions)
}

/// Names that differ only in upper and lower case: one folder on many disks, so never two agents.
fn twins(names: &[String]) -> HashSet<String> {
    let mut seen = HashSet::new();
    names.iter().map(|name| name.to_lowercase()).filter(|name| !seen.insert(name.clone())).collect()
}

/// A folder below `agents/`, or the place of an extension's agent.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_symlink: bool,
    /// The agent's file.
    pub(super) file: PathBuf,
    /// The extension it comes from.
    pub(super) lender: Option<Lender>,
}

/// What an extension gives to its agents, and how far they may reach.
#[derive(Clone, Debug)]
pub(super) struct Lender {
    pub(super) name: String,
    /// Nothing of the agent may lie outside of it.
    pub(super) folder: PathBuf,
    pub(super) servers: Vec<ServerEntry>,
    pub(super) stamps: Stamps,
}

fn load_extensions(settings: &Settings, folders: &[Folder]) -> Vec<Extension> {
    let agents: Vec<String> = folders.iter().map(|folder| folder.name.clone()).collect();
    let config = GatewayFiles::locate(settings).mcp_config.path;
    extensions::load(&settings.root, &agents, &server_names(&config))
}

/// The names in `.mcp.json`; what else is wrong there is said elsewhere.
fn server_names(path: &Path) -> BTreeSet<String> {
    let bytes = read_bounded(path, MAX_FILE_BYTES).unwrap_or_default();
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let config: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let servers = config.get("mcpServers").and_then(Value::as_object);
    servers.into_iter().flat_map(|servers| servers.keys().cloned()).collect()
}

fn folders_of(extension: &Extension) -> Vec<Folder> {
    let lender = Lender {
        name: extension.name.clone(),
        folder: extension.folder.clone(),
        servers: extension.private_servers(),
        stamps: extension.stamps.clone(),
    };
    let folder = |agent: &ExtensionAgent| Folder {
        name: agent.name.clone(),
        path: agent.file.parent().unwrap_or(&extension.folder).to_path_buf(),
        is_symlink: false,
        file: agent.file.clone(),
        lender: Some(lender.clone()),
    };
    extension.agents.iter().map(folder).collect()
}

fn load_all(folders: &[Folder], around: &Surroundings<'_>) -> Vec<Arc<Entry>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    if threads == 1 || folders.len() < AGENTS_PER_THREAD {
        return folders.iter().filter_map(|folder| load_agent::load(folder, around)).collect();
    }
    let share = folders.len().div_ceil(threads);
    thread::scope(|scope| {
        let shares: Vec<_> = folders
            .chunks(share)
            .map(|folders| {
                scope.spawn(move || {
                    folders.iter().filter_map(|folder| load_agent::load(folder, around)).collect()
                })
            })
            .collect();
        // A reader that panicked is a bug of ours; its agents are missing rather than half read.
        shares.into_iter().filter_map(|share| share.join().ok()).flat_map(|v: Vec<_>| v).collect()
    })
}

/// Reads `agents/defaults.yaml`, if it is there.
fn load_common(settings: &Settings) -> Common {
    let path = settings.defaults_file();
    let file = relative(&settings.root, &path);
    let mut stamps = Stamps::default();
    let (defaults, orchestration, diagnostics) =
        match read_text(&settings.root, &path, &file, &mut stamps) {
            Ok(Some(text)) => read_defaults(&text, &file),
            Ok(None) => (Defaults::default(), Orchestration::default(), Vec::new()),
            Err(problem) => (Defaults::default(), Orchestration::default(), vec![*problem]),
        };
    Common { defaults, orchestration, diagnostics, stamps }
}

/// The text of a file; `None` if there is none.
pub(super) fn read_text(
    root: &Path,
    path: &Path,
    file: &Path,
    stamps: &mut Stamps,
) -> Result<Option<String>, Box<Diagnostic>> {
    match read_settled(root, path) {
        Ok((bytes, metadata)) => {
            stamps.note(path.to_path_buf(), Some(Stamp::of(&metadata)));
            decode(bytes, file).map(Some)
        }
        Err(ReadRefused::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            stamps.note(path.to_path_buf(), Stamp::now(path));
            // A symlink to nothing is a file someone wanted.
            match fs::symlink_metadata(path) {
                Ok(_) => Err(Box::new(refused(file, &ReadRefused::Io(error)))),
                Err(_) => Ok(None),
            }
        }
        Err(error) => {
            stamps.note(path.to_path_buf(), Stamp::now(path));
            Err(Box::new(refused(file, &error)))
        }
    }
}

/// Reads again if the file changed meanwhile: a text half old and half new was written by nobody.
fn read_settled(root: &Path, path: &Path) -> Result<(Vec<u8>, fs::Metadata), ReadRefused> {
    let mut read = read_inside(root, path, MAX_FILE_BYTES)?;
    for _ in 0..3 {
        if Stamp::now(path).is_some_and(|now| now.saw_the_same(Stamp::of(&read.1))) {
            break;
        }
        read = read_inside(root, path, MAX_FILE_BYTES)?;
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
            ..whole_file(file, "not-utf8", "these bytes are not UTF-8".to_owned())
        })
    })
}

fn refused(file: &Path, error: &ReadRefused) -> Diagnostic {
    let (code, help) = match error {
        ReadRefused::Io(_) => ("unreadable", "check its permissions and where it leads"),
        ReadRefused::NotAFile => ("not-a-file", "put a regular file there"),
        ReadRefused::TooLarge { .. } => {
            ("too-large", "move long texts to files the agent can read")
        }
        ReadRefused::LeavesRoot { .. } => {
            ("symlink-leaves-project", "copy the file into the project")
        }
    };
    let message = format!("it cannot be used: {error}");
    Diagnostic { help: Some(help.to_owned()), ..whole_file(file, code, message) }
}

/// An error about a file as a whole.
pub(super) fn whole_file(file: &Path, code: &'static str, message: String) -> Diagnostic {
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

/// The path as findings name it: below the root where it is, and on one line whatever stands in it.
pub(super) fn relative(root: &Path, path: &Path) -> PathBuf {
    let shown = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    without_controls(&shown).replace(['\n', '\t'], " ").into()
}

/// The folders of `agents/` that may be agents, and what is odd about the rest.
fn list_folders(settings: &Settings) -> (Vec<Folder>, Vec<Diagnostic>) {
    let agents = settings.agents_dir();
    let file = relative(&settings.root, &agents);
    let mut diagnostics = Vec::new();
    if let Some(problem) = check_agents_folder(settings, &agents, &file) {
        return (Vec::new(), vec![problem]);
    }
    let listing = match fs::read_dir(&agents) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), diagnostics),
        Err(error) => {
            let message = format!("the folder cannot be listed: {error}");
            return (Vec::new(), vec![whole_file(&file, "unreadable", message)]);
        }
    };
    let mut folders = Vec::new();
    for item in listing.flatten() {
        sort_in(&item, settings, &mut folders, &mut diagnostics);
    }
    folders.sort_by(|a, b| a.name.cmp(&b.name));
    diagnostics.sort_by(|a, b| a.file.cmp(&b.file));
    (folders, diagnostics)
}

fn check_agents_folder(settings: &Settings, agents: &Path, file: &Path) -> Option<Diagnostic> {
    let target = agents.canonicalize().ok()?;
    if !target.starts_with(&settings.root) {
        let message =
            format!("`agents` is a symlink that leaves the project, to `{}`", target.display());
        return Some(whole_file(file, "symlink-leaves-project", message));
    }
    (!target.is_dir())
        .then(|| whole_file(file, "not-a-folder", "`agents` is not a folder".to_owned()))
}

fn sort_in(
    item: &fs::DirEntry,
    settings: &Settings,
    folders: &mut Vec<Folder>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let name = item.file_name().to_string_lossy().into_owned();
    let Ok(kind) = item.file_type() else { return };
    if name.starts_with('.') || name == RESERVED_MAIN {
        return;
    }
    let path = item.path();
    if kind.is_dir() || (kind.is_symlink() && !leads_to_file(&path)) {
        let file = path.join("agent.md");
        folders.push(Folder { name, path, is_symlink: kind.is_symlink(), file, lender: None });
    } else if let Some(stem) = name.strip_suffix(".md").filter(|stem| *stem != "README") {
        let file = relative(&settings.root, &path);
        diagnostics.push(Diagnostic {
            severity: Severity::Warning,
            help: Some(format!("move it to `agents/{stem}/agent.md`")),
            ..whole_file(
                &file,
                "flat-agent-file",
                "an agent is a folder; this file is not read".to_owned(),
            )
        });
    }
}

fn leads_to_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
