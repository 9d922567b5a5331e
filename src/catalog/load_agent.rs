//! Loads one agent's directory into a catalog entry.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::load::{AgentDir, display_path, file_error, read_text};
use super::snapshot::{AgentState, CatalogEntry, SharedDefaults, Snapshot};
use crate::catalog::model::{Agent, AgentOrigin};
use crate::catalog::parse::{AgentSource, parse_agent};
use crate::store::{FileDependencies, FileVersion};
use crate::util::{AgentName, strip_control_chars};

/// Names in lower case under which an agent's file is written by mistake.
const MISNAMED_FILES: [&str; 7] =
    ["agent.md", "agents.md", "agent.markdown", "agent.mdx", "agent.txt", "agent.yaml", "agent"];

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
    let loader = AgentLoader {
        dir,
        context,
        root: dir.extension.as_ref().map_or(context.root, |grants| &grants.dir),
        origin: match &dir.extension {
            Some(grants) => AgentOrigin::Extension(grants.name.clone()),
            None => AgentOrigin::Project,
        },
        shown: display_path(context.root, &dir.file),
        dependencies: dir
            .extension
            .as_ref()
            .map(|grants| grants.dependencies.clone())
            .unwrap_or_default(),
        diagnostics: Vec::new(),
    };
    loader.unchanged_entry().or_else(|| loader.load().map(Arc::new))
}

struct AgentLoader<'l> {
    dir: &'l AgentDir,
    context: &'l LoadContext<'l>,
    /// Directory that confines the agent's files: the project root or its extension.
    root: &'l Path,
    origin: AgentOrigin,
    /// Path of the agent's file as shown in findings.
    shown: PathBuf,
    dependencies: FileDependencies,
    diagnostics: Vec<Diagnostic>,
}

impl AgentLoader<'_> {
    /// Returns the previous entry if its files are unchanged.
    /// Invalid entries may depend on other agents and are always reloaded.
    fn unchanged_entry(&self) -> Option<Arc<CatalogEntry>> {
        let entry = self.context.previous?.get(&self.dir.name)?;
        let same = entry.file == self.dir.file && entry.origin == self.origin;
        let usable =
            same && entry.agent().is_some() && !self.dir.is_symlink && !self.has_duplicate_name();
        (usable && entry.dependencies.are_current()).then(|| Arc::clone(entry))
    }

    fn load(mut self) -> Option<CatalogEntry> {
        let read = self.check_dir().and_then(|name| {
            let text = read_text(self.root, &self.dir.file, &self.shown, &mut self.dependencies);
            Ok((name, text.map_err(|problem| *problem)?))
        });
        let agent = match read {
            Ok((name, Some(text))) => self.parse(&name, &text),
            Ok((_, None)) => {
                self.diagnostics.push(self.misnamed_file()?);
                None
            }
            Err(problem) => {
                self.diagnostics.push(problem);
                None
            }
        };
        let sound = !self.diagnostics.iter().any(Diagnostic::is_error);
        let state = match agent.filter(|_| sound) {
            Some(agent) => AgentState::Valid(Arc::new(agent)),
            None => AgentState::Invalid,
        };
        Some(CatalogEntry {
            name: strip_control_chars(&self.dir.name).replace('\n', " "),
            origin: self.origin,
            file: self.dir.file.clone(),
            state,
            diagnostics: self.diagnostics.into(),
            dependencies: self.dependencies,
        })
    }

    fn parse(&mut self, name: &AgentName, text: &str) -> Option<Agent> {
        let memory = self.find_memory();
        let source = AgentSource {
            root: self.root,
            dir: self.dir.path.clone(),
            file: self.dir.file.clone(),
            name,
            origin: self.origin.clone(),
            memory,
            siblings: self.context.names,
            extension_servers: self.dir.extension.as_ref().map_or(&[], |grants| &grants.servers),
        };
        let result = parse_agent(text, &source, &self.shown, &self.context.common.template);
        if let Some(schema) = result.schema_dependency {
            let version = FileVersion::read(&schema);
            self.dependencies.add(schema, version);
        }
        self.diagnostics.extend(result.diagnostics);
        self.diagnostics.extend(defaults_error(self.context, &self.shown));
        result.agent
    }

    /// Validates the directory and returns the agent's name.
    fn check_dir(&self) -> Result<AgentName, Diagnostic> {
        let name = self.dir.name.parse::<AgentName>().map_err(|error| Diagnostic {
            help: Some("rename the folder".to_owned()),
            ..file_error(&self.shown, "invalid-name", error.to_string())
        })?;
        if self.dir.is_symlink {
            self.check_symlink()?;
        }
        if self.has_duplicate_name() {
            let message =
                format!("another folder's name differs from `{name}` only in upper and lower case");
            return Err(file_error(&self.shown, "duplicate-name", message));
        }
        Ok(name)
    }

    fn check_symlink(&self) -> Result<(), Diagnostic> {
        let refuse = |code, message| Diagnostic {
            help: Some("copy the folder into the project".to_owned()),
            ..file_error(&self.shown, code, message)
        };
        let target =
            self.dir.path.canonicalize().map_err(|error| {
                refuse("unreadable", format!("the symlink leads nowhere: {error}"))
            })?;
        if target.starts_with(self.context.root) {
            return Ok(());
        }
        let message =
            format!("the folder is a symlink that leaves the project, to `{}`", target.display());
        Err(refuse("symlink-leaves-project", message))
    }

    fn has_duplicate_name(&self) -> bool {
        self.context.duplicate_names.contains(&self.dir.name.to_lowercase())
    }

    /// Reports a misnamed agent file; `None` if the directory contains none.
    fn misnamed_file(&self) -> Option<Diagnostic> {
        let names = fs::read_dir(&self.dir.path).ok()?.flatten().map(|item| item.file_name());
        let misnamed = names
            .map(|name| name.to_string_lossy().into_owned())
            .find(|name| MISNAMED_FILES.contains(&name.to_lowercase().as_str()))?;
        let file = display_path(self.dir.path.parent()?.parent()?, &self.dir.path.join(&misnamed));
        let message = format!("an agent's file is `agent.md`, not `{misnamed}`");
        Some(Diagnostic {
            help: Some("rename it to `agent.md`".to_owned()),
            ..file_error(&file, "misnamed-file", message)
        })
    }

    /// Returns `memory.md` beside `agent.md` if it is a regular file inside the allowed directory.
    fn find_memory(&mut self) -> Option<PathBuf> {
        if self.dir.file.file_name() != Some("agent.md".as_ref()) {
            return None;
        }
        let path = self.dir.path.join("memory.md");
        let seen = fs::symlink_metadata(&path).ok();
        // The content is read at every launch, so the entry depends on the existence only.
        self.dependencies.add_presence(path.clone(), seen.is_some());
        let is_symlink = seen?.is_symlink();
        let target = if is_symlink { path.canonicalize().ok()? } else { path.clone() };
        let (code, message) = if is_symlink && !target.starts_with(self.root) {
            let target = target.display();
            let message = format!("it is a symlink that leaves the project, to `{target}`");
            ("symlink-leaves-project", message)
        } else if !target.is_file() {
            ("not-a-file", "`memory.md` is not a regular file".to_owned())
        } else {
            return Some(path);
        };
        let file = display_path(self.context.root, &path);
        self.diagnostics.push(file_error(&file, code, message));
        None
    }
}

/// With an invalid `defaults.yaml` the limits are unknown, so every agent becomes invalid.
fn defaults_error(context: &LoadContext<'_>, file: &Path) -> Option<Diagnostic> {
    let error = context.common.error()?;
    let (broken, why) = (error.file.display(), &error.message);
    let message = format!("its limits are not known, because {broken} is broken: {why}");
    Some(Diagnostic {
        help: Some(format!("mend {}:{}", error.file.display(), error.line)),
        ..file_error(file, DEFAULTS_BROKEN, message)
    })
}

/// Code of the error that every agent has while `defaults.yaml` is invalid.
pub(crate) const DEFAULTS_BROKEN: &str = "defaults-broken";
