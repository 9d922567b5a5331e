//! Reads one agent's folder into an entry of the catalog.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Severity};
use super::load::{Folder, read_text, relative, whole_file};
use super::model::Origin;
use super::read_agent::{AgentSource, read_agent};
use super::snapshot::{Common, Entry, Snapshot, State};
use super::stamp::{Stamp, Stamps};
use crate::base::{AgentName, without_controls};

/// What is the same for every agent of one reading.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'s> {
    pub(super) root: &'s Path,
    pub(super) names: &'s [String],
    /// Names, in lower case, that more than one folder has.
    pub(super) twins: &'s HashSet<String>,
    pub(super) common: &'s Common,
    pub(super) previous: Option<&'s Snapshot>,
}

/// The entry of a folder; `None` where the folder has no agent's file.
pub(super) fn load(folder: &Folder, around: &Surroundings<'_>) -> Option<Arc<Entry>> {
    if let Some(kept) = unchanged(folder, around) {
        return Some(kept);
    }
    load_fresh(folder, around).map(Arc::new)
}

/// The entry read before, if nothing about it changed. Broken ones depend on their neighbours and are read again.
fn unchanged(folder: &Folder, around: &Surroundings<'_>) -> Option<Arc<Entry>> {
    let entry = around.previous?.get(&folder.name)?;
    let same = entry.file == folder.file && entry.origin == origin(folder);
    let usable = same && entry.agent().is_some() && !folder.is_symlink && !has_twin(folder, around);
    (usable && entry.stamps.hold()).then(|| Arc::clone(entry))
}

fn load_fresh(folder: &Folder, around: &Surroundings<'_>) -> Option<Entry> {
    let path = folder.file.clone();
    let file = relative(around.root, &path);
    let mut stamps = folder.lender.as_ref().map(|lender| lender.stamps.clone()).unwrap_or_default();
    let text = match check_folder(folder, &file, around) {
        Err(problem) => return Some(broken(folder, path, vec![problem], stamps)),
        Ok(name) => match read_text(bounds(folder, around), &path, &file, &mut stamps) {
            Ok(Some(text)) => (name, text),
            Ok(None) => return without_file(folder, path, stamps),
            Err(problem) => return Some(broken(folder, path, vec![*problem], stamps)),
        },
    };
    Some(read(folder, path, &text.0, &text.1, stamps, around))
}

fn read(
    folder: &Folder,
    path: PathBuf,
    name: &AgentName,
    text: &str,
    mut stamps: Stamps,
    around: &Surroundings<'_>,
) -> Entry {
    let file = relative(around.root, &path);
    let mut diagnostics = Vec::new();
    let memory = find_memory(folder, around, &mut stamps, &mut diagnostics);
    let source = AgentSource {
        root: bounds(folder, around),
        folder: folder.path.clone(),
        file: folder.file.clone(),
        name,
        origin: origin(folder),
        memory,
        siblings: around.names,
        lent: folder.lender.as_ref().map_or(&[], |lender| &lender.servers),
    };
    let reading = read_agent(text, &source, &file, &around.common.defaults);
    if let Some(schema) = reading.schema_file {
        let stamp = Stamp::now(&schema);
        stamps.note(schema, stamp);
    }
    diagnostics.extend(reading.diagnostics);
    diagnostics.extend(unknown_limits(around, &file));
    let sound = !diagnostics.iter().any(Diagnostic::is_error);
    let state = match reading.agent.filter(|_| sound) {
        Some(agent) => State::Sound(Arc::new(agent)),
        None => State::Broken,
    };
    Entry {
        name: folder.name.clone(),
        origin: origin(folder),
        file: path,
        state,
        diagnostics: diagnostics.into(),
        stamps,
    }
}

fn origin(folder: &Folder) -> Origin {
    match &folder.lender {
        Some(lender) => Origin::Extension(lender.name.clone()),
        None => Origin::Project,
    }
}

/// What nothing of the agent may leave: the project, or its extension.
fn bounds<'b>(folder: &'b Folder, around: &Surroundings<'b>) -> &'b Path {
    folder.lender.as_ref().map_or(around.root, |lender| &lender.folder)
}

fn broken(folder: &Folder, file: PathBuf, found: Vec<Diagnostic>, stamps: Stamps) -> Entry {
    Entry {
        name: without_controls(&folder.name).replace('\n', " "),
        origin: origin(folder),
        file,
        state: State::Broken,
        diagnostics: found.into(),
        stamps,
    }
}

/// A folder without `agent.md` is no agent, unless a file in it was plainly meant to be one.
fn without_file(folder: &Folder, path: PathBuf, stamps: Stamps) -> Option<Entry> {
    let meant = fs::read_dir(&folder.path).ok()?.flatten().map(|item| item.file_name());
    let slip = meant.map(|name| name.to_string_lossy().into_owned()).find(|name| {
        let lower = name.to_lowercase();
        ["agent.md", "agents.md", "agent.markdown", "agent.mdx", "agent.txt", "agent.yaml", "agent"]
            .contains(&lower.as_str())
    })?;
    let file = folder.path.join(&slip);
    let file = relative(folder.path.parent()?.parent()?, &file);
    let problem = Diagnostic {
        help: Some("rename it to `agent.md`".to_owned()),
        ..whole_file(&file, "misnamed-file", format!("an agent's file is `agent.md`, not `{slip}`"))
    };
    Some(broken(folder, path, vec![problem], stamps))
}

/// Checks the folder itself, and gives the agent's name.
fn check_folder(
    folder: &Folder,
    file: &Path,
    around: &Surroundings<'_>,
) -> Result<AgentName, Diagnostic> {
    let name = folder.name.parse::<AgentName>().map_err(|error| Diagnostic {
        help: Some("rename the folder".to_owned()),
        ..whole_file(file, "invalid-name", error.to_string())
    })?;
    if folder.is_symlink {
        check_symlink(folder, file, around)?;
    }
    if has_twin(folder, around) {
        let message =
            format!("another folder's name differs from `{name}` only in upper and lower case");
        return Err(whole_file(file, "duplicate-name", message));
    }
    Ok(name)
}

fn check_symlink(
    folder: &Folder,
    file: &Path,
    around: &Surroundings<'_>,
) -> Result<(), Diagnostic> {
    let refuse = |code, message| Diagnostic {
        help: Some("copy the folder into the project".to_owned()),
        ..whole_file(file, code, message)
    };
    let target = folder
        .path
        .canonicalize()
        .map_err(|error| refuse("unreadable", format!("the symlink leads nowhere: {error}")))?;
    if target.starts_with(around.root) {
        return Ok(());
    }
    let message =
        format!("the folder is a symlink that leaves the project, to `{}`", target.display());
    Err(refuse("symlink-leaves-project", message))
}

fn has_twin(folder: &Folder, around: &Surroundings<'_>) -> bool {
    around.twins.contains(&folder.name.to_lowercase())
}

/// `memory.md` beside the agent's file, if it is a file inside the project.
fn find_memory(
    folder: &Folder,
    around: &Surroundings<'_>,
    stamps: &mut Stamps,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<PathBuf> {
    if folder.file.file_name() != Some("agent.md".as_ref()) {
        return None;
    }
    let path = folder.path.join("memory.md");
    let seen = fs::symlink_metadata(&path).ok();
    // Its content is read at every launch, so that only its being there is part of the contract.
    stamps.note_presence(path.clone(), seen.is_some());
    let seen = seen?;
    let target = if seen.is_symlink() { path.canonicalize().ok()? } else { path.clone() };
    let file = relative(around.root, &path);
    if seen.is_symlink() && !target.starts_with(bounds(folder, around)) {
        let message = format!("it is a symlink that leaves the project, to `{}`", target.display());
        diagnostics.push(whole_file(&file, "symlink-leaves-project", message));
        return None;
    }
    if !target.is_file() {
        let message = "`memory.md` is not a regular file".to_owned();
        diagnostics.push(whole_file(&file, "not-a-file", message));
        return None;
    }
    Some(path)
}

/// With a broken `defaults.yaml` nobody knows an agent's limits, so it is not run.
fn unknown_limits(around: &Surroundings<'_>, file: &Path) -> Option<Diagnostic> {
    let error = around.common.error()?;
    Some(Diagnostic {
        severity: Severity::Error,
        help: Some(format!("mend {}:{}", error.file.display(), error.line)),
        ..whole_file(
            file,
            DEFAULTS_BROKEN,
            format!(
                "its limits are not known, because {} is broken: {}",
                error.file.display(),
                error.message
            ),
        )
    })
}

/// The code of the finding that every agent has while `defaults.yaml` is broken.
pub(crate) const DEFAULTS_BROKEN: &str = "defaults-broken";
