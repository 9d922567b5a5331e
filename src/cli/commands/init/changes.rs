//! What `init` would change, worked out before anything is written.

use std::io;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use super::json_text::JsonRefused;
use super::merge::{self, Merged};
use super::section::{self, MarksRefused};
use crate::base::{self, ReadRefused};
use crate::catalog::{Snapshot, subagents_section};
use crate::config::Settings;

/// The agent that a project without agents gets.
const FIRST_AGENT: &str = "agents/project-guide/agent.md";
const FIRST_AGENT_TEXT: &str = include_str!("../../init/first-agent.md");
/// The main agent's prompt.
pub(super) const MAIN_PROMPT: &str = "agents/main/system-prompt.md";

const SERVERS_FILE: &str = ".mcp.json";
const SETTINGS_FILE: &str = ".claude/settings.json";
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// A new project's prompt for its main agent is the one this project uses itself.
const NEW_MAIN_PROMPT: &str = include_str!("../../../../agents/main/system-prompt.md");

/// One file, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Below the project's root.
    pub(super) path: String,
    /// `None` where there is no such file.
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// What a person should know about it.
    pub(super) note: Option<String>,
}

impl Change {
    /// Whether there is anything to write.
    pub(super) fn is_needed(&self) -> bool {
        self.before.as_deref() != Some(self.after.as_str())
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    #[error("cannot read `{path}`")]
    Read {
        path: String,
        #[source]
        source: ReadRefused,
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
        source: JsonRefused,
    },
    #[error("cannot renew the subagents in `{path}`")]
    Marks {
        path: String,
        #[source]
        source: MarksRefused,
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

/// Everything that makes a project ready for Claude Code.
pub(super) fn whole(settings: &Settings, program: &str) -> Result<Vec<Change>, InitError> {
    let root = &settings.root;
    let servers = json_file(root, SERVERS_FILE, |text| merge::add_server(text, program))?;
    let ours = merge::own_servers(&servers.after);
    let hooks = json_file(root, SETTINGS_FILE, |text| merge::add_hooks(text, program, &ours))?;
    let mut changes = vec![servers, hooks];
    let first = first_agent(settings)?;
    let section = section_of(settings, first.as_ref())?;
    changes.extend(first);
    changes.push(main_prompt(root, &section)?);
    Ok(changes)
}

/// The subagents section alone.
pub(super) fn section_only(settings: &Settings) -> Result<Vec<Change>, InitError> {
    let before = read(&settings.root, MAIN_PROMPT)?.filter(|prompt| section::is_in(prompt));
    let before = before.ok_or(InitError::NoSection)?;
    let after = renewed(&before, &section_of(settings, None)?)?;
    Ok(vec![Change { path: MAIN_PROMPT.into(), before: Some(before), after, note: None }])
}

/// Writes what is needed, each file whole.
pub(super) fn write(root: &Path, changes: &[Change]) -> Result<(), InitError> {
    for change in changes.iter().filter(|change| change.is_needed()) {
        base::write_project_file(&root.join(&change.path), change.after.as_bytes())
            .map_err(|source| InitError::Write { path: change.path.clone(), source })?;
    }
    Ok(())
}

fn json_file(
    root: &Path,
    path: &str,
    merge: impl Fn(Option<&str>) -> Result<Merged, JsonRefused>,
) -> Result<Change, InitError> {
    let before = read(root, path)?;
    let merged = merge(before.as_deref())
        .map_err(|source| InitError::Json { path: path.to_owned(), source })?;
    Ok(Change { path: path.to_owned(), before, after: merged.text, note: merged.note })
}

/// A first agent, for a project that has none, broken ones included.
fn first_agent(settings: &Settings) -> Result<Option<Change>, InitError> {
    if !Snapshot::load(settings).entries().is_empty() {
        return Ok(None);
    }
    // With a folder and no agent in it, the file may still be there: it is not ours then.
    let after = FIRST_AGENT_TEXT.to_owned();
    let new = Change { path: FIRST_AGENT.into(), before: None, after, note: None };
    Ok(read(&settings.root, FIRST_AGENT)?.is_none().then_some(new))
}

/// The section as it will be once the first agent is there.
fn section_of(settings: &Settings, first: Option<&Change>) -> Result<String, InitError> {
    let Some(first) = first else {
        return Ok(subagents_section::render(&Snapshot::load(settings)));
    };
    let scratch = base::ScratchDir::new().map_err(InitError::Scratch)?;
    write(scratch.path(), std::slice::from_ref(first))?;
    let staged = Settings { root: scratch.path().to_owned(), ..settings.clone() };
    Ok(subagents_section::render(&Snapshot::load(&staged)))
}

fn main_prompt(root: &Path, section: &str) -> Result<Change, InitError> {
    let before = read(root, MAIN_PROMPT)?;
    let after = renewed(before.as_deref().unwrap_or(NEW_MAIN_PROMPT), section)?;
    Ok(Change { path: MAIN_PROMPT.into(), before, after, note: None })
}

fn renewed(prompt: &str, section: &str) -> Result<String, InitError> {
    section::renew(prompt, section)
        .map_err(|source| InitError::Marks { path: MAIN_PROMPT.into(), source })
}

/// A file of the project as text, if it is there; never one that lies outside of it.
pub(super) fn read(root: &Path, path: &str) -> Result<Option<String>, InitError> {
    let file = root.join(path);
    if !stays_inside(root, &file) {
        return Err(InitError::Link { path: path.to_owned() });
    }
    let bytes = match base::read_bounded(&file, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(ReadRefused::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(InitError::Read { path: path.to_owned(), source }),
    };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|source| InitError::NotText { path: path.to_owned(), source })
}

/// Whether a file, and each folder between it and the root, is what it seems to be: writing through a
/// link would change a file that is not the project's, or lose the link.
fn stays_inside(root: &Path, file: &Path) -> bool {
    let between: Vec<PathBuf> =
        file.ancestors().take_while(|path| *path != root).map(Path::to_path_buf).collect();
    between.iter().all(|path| !path.is_symlink())
}
