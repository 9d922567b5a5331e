//! File changes of `init`, computed before anything is written.

use std::io;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use super::json_edit::JsonEditError;
use super::main_prompt_section;
use super::main_prompt_section::SectionError;
use super::merge::{self, MergeResult};
use crate::catalog::{Snapshot, subagent_list};
use crate::config::Settings;
use crate::store::{BoundedReadError, ScratchDir, read_bounded, write_project_file};

/// Example agent for a project without agents.
const EXAMPLE_AGENT: &str = "agents/project-guide/agent.md";
const EXAMPLE_AGENT_TEXT: &str = include_str!("first-agent.md");
/// File with the system prompt of the main agent.
pub(crate) const MAIN_PROMPT: &str = "agents/main/system-prompt.md";

const SERVERS_FILE: &str = ".mcp.json";
const SETTINGS_FILE: &str = ".claude/settings.json";
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Main prompt of a new project: the one of this repository.
const NEW_MAIN_PROMPT: &str = include_str!("../../../../agents/main/system-prompt.md");

/// Content of one file before and after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChange {
    /// Relative to the root of the project.
    pub(crate) path: String,
    /// `None` if the file does not exist.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
    /// Note for the user.
    pub(crate) note: Option<String>,
}

impl FileChange {
    pub(crate) fn is_needed(&self) -> bool {
        self.before.as_deref() != Some(self.after.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("cannot read `{path}`")]
    Read {
        path: String,
        #[source]
        source: BoundedReadError,
    },
    #[error("`{path}` is not UTF-8")]
    NotText {
        path: String,
        #[source]
        source: FromUtf8Error,
    },
    #[error("`{path}` is a link, or lies behind one; put a file of the project in its place")]
    Link { path: String },
    #[error("cannot add to `{path}`")]
    Json {
        path: String,
        #[source]
        source: JsonEditError,
    },
    #[error("cannot renew the subagents in `{path}`")]
    Marks {
        path: String,
        #[source]
        source: SectionError,
    },
    #[error("`{MAIN_PROMPT}` has no subagents section; run `adjutant init` without `--refresh`")]
    NoSection,
    #[error("cannot look at the first agent")]
    Scratch(#[source] io::Error),
    #[error("cannot write `{path}`")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Computes all changes that set up a project for Claude Code.
pub(crate) fn all_changes(
    settings: &Settings,
    program: &str,
) -> Result<Vec<FileChange>, InitError> {
    let root = &settings.root;
    let servers = merge_json_file(root, SERVERS_FILE, |text| merge::add_server(text, program))?;
    let ours = merge::own_servers(&servers.after);
    let hooks =
        merge_json_file(root, SETTINGS_FILE, |text| merge::add_hooks(text, program, &ours))?;
    let mut changes = vec![servers, hooks];
    let first = example_agent(settings)?;
    let section = render_section(settings, first.as_ref())?;
    changes.extend(first);
    changes.push(main_prompt_change(root, &section)?);
    Ok(changes)
}

/// Computes only the change of the subagents section.
pub(crate) fn section_changes(settings: &Settings) -> Result<Vec<FileChange>, InitError> {
    let before = read_project_file(&settings.root, MAIN_PROMPT)?
        .filter(|prompt| main_prompt_section::has_mark(prompt));
    let before = before.ok_or(InitError::NoSection)?;
    let after = replace_section(&before, &render_section(settings, None)?)?;
    Ok(vec![FileChange { path: MAIN_PROMPT.into(), before: Some(before), after, note: None }])
}

/// Writes the changed files, each atomically. An error leaves the files before it written.
pub(crate) fn write(root: &Path, changes: &[FileChange]) -> Result<(), InitError> {
    for change in changes.iter().filter(|change| change.is_needed()) {
        write_project_file(&root.join(&change.path), change.after.as_bytes())
            .map_err(|source| InitError::Write { path: change.path.clone(), source })?;
    }
    Ok(())
}

fn merge_json_file(
    root: &Path,
    path: &str,
    merge: impl Fn(Option<&str>) -> Result<MergeResult, JsonEditError>,
) -> Result<FileChange, InitError> {
    let before = read_project_file(root, path)?;
    let merged = merge(before.as_deref())
        .map_err(|source| InitError::Json { path: path.to_owned(), source })?;
    Ok(FileChange { path: path.to_owned(), before, after: merged.text, note: merged.note })
}

/// Returns the example agent if the project has no agents, not even broken ones.
fn example_agent(settings: &Settings) -> Result<Option<FileChange>, InitError> {
    if !Snapshot::load(settings).entries().is_empty() {
        return Ok(None);
    }
    // The file can exist although the catalog contains no agent; then it belongs to the user.
    let after = EXAMPLE_AGENT_TEXT.to_owned();
    let new = FileChange { path: EXAMPLE_AGENT.into(), before: None, after, note: None };
    Ok(read_project_file(&settings.root, EXAMPLE_AGENT)?.is_none().then_some(new))
}

/// Renders the subagents section, including the example agent if it is about to be created.
fn render_section(settings: &Settings, first: Option<&FileChange>) -> Result<String, InitError> {
    let Some(first) = first else {
        return Ok(subagent_list::render_section(&Snapshot::load(settings)));
    };
    let scratch = ScratchDir::new().map_err(InitError::Scratch)?;
    write(scratch.path(), std::slice::from_ref(first))?;
    let staged = Settings { root: scratch.path().to_owned(), ..settings.clone() };
    Ok(subagent_list::render_section(&Snapshot::load(&staged)))
}

fn main_prompt_change(root: &Path, section: &str) -> Result<FileChange, InitError> {
    let before = read_project_file(root, MAIN_PROMPT)?;
    let after = replace_section(before.as_deref().unwrap_or(NEW_MAIN_PROMPT), section)?;
    Ok(FileChange { path: MAIN_PROMPT.into(), before, after, note: None })
}

fn replace_section(prompt: &str, section: &str) -> Result<String, InitError> {
    main_prompt_section::replace_section(prompt, section)
        .map_err(|source| InitError::Marks { path: MAIN_PROMPT.into(), source })
}

/// Reads a file of the project as text; `None` if it does not exist. A symlink is an error.
pub(crate) fn read_project_file(root: &Path, path: &str) -> Result<Option<String>, InitError> {
    let file = root.join(path);
    if !has_no_symlink(root, &file) {
        return Err(InitError::Link { path: path.to_owned() });
    }
    let bytes = match read_bounded(&file, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(BoundedReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(source) => return Err(InitError::Read { path: path.to_owned(), source }),
    };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|source| InitError::NotText { path: path.to_owned(), source })
}

/// Returns true if neither the file nor a directory between it and the root is a symlink.
///
/// Writing through a symlink would change a file outside of the project, or replace the link.
fn has_no_symlink(root: &Path, file: &Path) -> bool {
    let between: Vec<PathBuf> =
        file.ancestors().take_while(|path| *path != root).map(Path::to_path_buf).collect();
    between.iter().all(|path| !path.is_symlink())
}
