//! Loads one agent's directory into a catalog entry.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Severity};
use super::load::{AgentDir, display_path, file_error, read_text};
use super::snapshot::{AgentState, CatalogEntry, SharedDefaults, Snapshot};
use crate::catalog::model::AgentOrigin;
use crate::catalog::parse::{AgentSource, parse_agent};
use crate::store::{FileDependencies, FileVersion};
use crate::util::{AgentName, strip_control_chars};

/// Inputs shared by all agents of one load.
#[derive(Clone, Copy)]
pub(crate) struct LoadContext<'s> {
    pub(crate) root: &'s Path,
    pub(crate) names: &'s [String],
    /// Lower-cased names of more than one directory.
    pub(crate) duplicate_names: &'s HashSet<String>,
    pub(crate) common: &'s SharedDefaults,
    pub(crate) previous: Option<&'s Snapshot>,
}

/// Loads the entry of a directory; `None` if the directory contains no agent file.
pub(crate) fn load_entry(dir: &AgentDir, context: &LoadContext<'_>) -> Option<Arc<CatalogEntry>> {
    if let Some(kept) = unchanged_entry(dir, context) {
        return Some(kept);
    }
    read_entry(dir, context).map(Arc::new)
}

/// Returns the previous entry if its files are unchanged.
/// Invalid entries may depend on other agents and are always reloaded.
fn unchanged_entry(dir: &AgentDir, context: &LoadContext<'_>) -> Option<Arc<CatalogEntry>> {
    let entry = context.previous?.get(&dir.name)?;
    let same = entry.file == dir.file && entry.origin == origin(dir);
    let usable =
        same && entry.agent().is_some() && !dir.is_symlink && !has_duplicate_name(dir, context);
    (usable && entry.dependencies.are_current()).then(|| Arc::clone(entry))
}

fn read_entry(dir: &AgentDir, context: &LoadContext<'_>) -> Option<CatalogEntry> {
    let path = dir.file.clone();
    let file = display_path(context.root, &path);
    let mut dependencies =
        dir.extension.as_ref().map(|grants| grants.dependencies.clone()).unwrap_or_default();
    let text = match check_dir(dir, &file, context) {
        Err(problem) => return Some(invalid_entry(dir, path, vec![problem], dependencies)),
        Ok(name) => match read_text(allowed_root(dir, context), &path, &file, &mut dependencies) {
            Ok(Some(text)) => (name, text),
            Ok(None) => return misnamed_file_entry(dir, path, dependencies),
            Err(problem) => return Some(invalid_entry(dir, path, vec![*problem], dependencies)),
        },
    };
    Some(build_entry(dir, path, &text.0, &text.1, dependencies, context))
}

fn build_entry(
    dir: &AgentDir,
    path: PathBuf,
    name: &AgentName,
    text: &str,
    mut dependencies: FileDependencies,
    context: &LoadContext<'_>,
) -> CatalogEntry {
    let file = display_path(context.root, &path);
    let mut diagnostics = Vec::new();
    let memory = find_memory(dir, context, &mut dependencies, &mut diagnostics);
    let source = AgentSource {
        root: allowed_root(dir, context),
        dir: dir.path.clone(),
        file: dir.file.clone(),
        name,
        origin: origin(dir),
        memory,
        siblings: context.names,
        extension_servers: dir.extension.as_ref().map_or(&[], |grants| &grants.servers),
    };
    let reading = parse_agent(text, &source, &file, &context.common.template);
    if let Some(schema) = reading.schema_dependency {
        let version = FileVersion::read(&schema);
        dependencies.add(schema, version);
    }
    diagnostics.extend(reading.diagnostics);
    diagnostics.extend(defaults_error(context, &file));
    let sound = !diagnostics.iter().any(Diagnostic::is_error);
    let state = match reading.agent.filter(|_| sound) {
        Some(agent) => AgentState::Valid(Arc::new(agent)),
        None => AgentState::Invalid,
    };
    CatalogEntry {
        name: dir.name.clone(),
        origin: origin(dir),
        file: path,
        state,
        diagnostics: diagnostics.into(),
        dependencies,
    }
}

fn origin(dir: &AgentDir) -> AgentOrigin {
    match &dir.extension {
        Some(grants) => AgentOrigin::Extension(grants.name.clone()),
        None => AgentOrigin::Project,
    }
}

/// Directory that confines the agent's files: the project root or its extension.
fn allowed_root<'b>(dir: &'b AgentDir, context: &LoadContext<'b>) -> &'b Path {
    dir.extension.as_ref().map_or(context.root, |grants| &grants.dir)
}

fn invalid_entry(
    dir: &AgentDir,
    file: PathBuf,
    found: Vec<Diagnostic>,
    dependencies: FileDependencies,
) -> CatalogEntry {
    CatalogEntry {
        name: strip_control_chars(&dir.name).replace('\n', " "),
        origin: origin(dir),
        file,
        state: AgentState::Invalid,
        diagnostics: found.into(),
        dependencies,
    }
}

/// Reports a misnamed agent file; `None` if the directory contains none.
fn misnamed_file_entry(
    dir: &AgentDir,
    path: PathBuf,
    dependencies: FileDependencies,
) -> Option<CatalogEntry> {
    let names = fs::read_dir(&dir.path).ok()?.flatten().map(|item| item.file_name());
    let misnamed = names.map(|name| name.to_string_lossy().into_owned()).find(|name| {
        let lower = name.to_lowercase();
        ["agent.md", "agents.md", "agent.markdown", "agent.mdx", "agent.txt", "agent.yaml", "agent"]
            .contains(&lower.as_str())
    })?;
    let file = dir.path.join(&misnamed);
    let file = display_path(dir.path.parent()?.parent()?, &file);
    let problem = Diagnostic {
        help: Some("rename it to `agent.md`".to_owned()),
        ..file_error(
            &file,
            "misnamed-file",
            format!("an agent's file is `agent.md`, not `{misnamed}`"),
        )
    };
    Some(invalid_entry(dir, path, vec![problem], dependencies))
}

/// Validates the directory and returns the agent's name.
fn check_dir(
    dir: &AgentDir,
    file: &Path,
    context: &LoadContext<'_>,
) -> Result<AgentName, Diagnostic> {
    let name = dir.name.parse::<AgentName>().map_err(|error| Diagnostic {
        help: Some("rename the folder".to_owned()),
        ..file_error(file, "invalid-name", error.to_string())
    })?;
    if dir.is_symlink {
        check_symlink(dir, file, context)?;
    }
    if has_duplicate_name(dir, context) {
        let message =
            format!("another folder's name differs from `{name}` only in upper and lower case");
        return Err(file_error(file, "duplicate-name", message));
    }
    Ok(name)
}

fn check_symlink(dir: &AgentDir, file: &Path, context: &LoadContext<'_>) -> Result<(), Diagnostic> {
    let refuse = |code, message| Diagnostic {
        help: Some("copy the folder into the project".to_owned()),
        ..file_error(file, code, message)
    };
    let target = dir
        .path
        .canonicalize()
        .map_err(|error| refuse("unreadable", format!("the symlink leads nowhere: {error}")))?;
    if target.starts_with(context.root) {
        return Ok(());
    }
    let message =
        format!("the folder is a symlink that leaves the project, to `{}`", target.display());
    Err(refuse("symlink-leaves-project", message))
}

fn has_duplicate_name(dir: &AgentDir, context: &LoadContext<'_>) -> bool {
    context.duplicate_names.contains(&dir.name.to_lowercase())
}

/// Returns `memory.md` beside `agent.md` if it is a regular file inside the allowed directory.
fn find_memory(
    dir: &AgentDir,
    context: &LoadContext<'_>,
    dependencies: &mut FileDependencies,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<PathBuf> {
    if dir.file.file_name() != Some("agent.md".as_ref()) {
        return None;
    }
    let path = dir.path.join("memory.md");
    let seen = fs::symlink_metadata(&path).ok();
    // The content is read at every launch, so the entry depends on the existence only.
    dependencies.add_presence(path.clone(), seen.is_some());
    let seen = seen?;
    let target = if seen.is_symlink() { path.canonicalize().ok()? } else { path.clone() };
    let file = display_path(context.root, &path);
    if seen.is_symlink() && !target.starts_with(allowed_root(dir, context)) {
        let message = format!("it is a symlink that leaves the project, to `{}`", target.display());
        diagnostics.push(file_error(&file, "symlink-leaves-project", message));
        return None;
    }
    if !target.is_file() {
        let message = "`memory.md` is not a regular file".to_owned();
        diagnostics.push(file_error(&file, "not-a-file", message));
        return None;
    }
    Some(path)
}

/// With an invalid `defaults.yaml` the limits are unknown, so every agent becomes invalid.
fn defaults_error(context: &LoadContext<'_>, file: &Path) -> Option<Diagnostic> {
    let error = context.common.error()?;
    Some(Diagnostic {
        severity: Severity::Error,
        help: Some(format!("mend {}:{}", error.file.display(), error.line)),
        ..file_error(
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

/// Code of the error that every agent has while `defaults.yaml` is invalid.
pub(crate) const DEFAULTS_BROKEN: &str = "defaults-broken";
