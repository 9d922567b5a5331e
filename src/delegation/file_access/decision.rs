//! Decision on file tools: agents may not change control files, and may not read or search the files of
//! Adjutant.
//!
//! Covers the tools that take a path. A shell, a hook or an MCP server can change every file that the user can change;
//! only a sandbox prevents that. The decision is made before the tool runs: a file swapped in between is not noticed.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::process_spec::resolve_variables;
use super::control_files::{ControlFile, ControlFileKind, ControlFiles};
use super::location::{FileId, FileLocation, LocatedControlFile};
use crate::catalog::Agent;
use crate::store::{normalize, real_path};
use crate::util::{Pattern, one_line, shorten};

/// Limit of files compared with a hard link, about 100 ms. Above it the call is denied.
const MAX_LINK_COMPARISONS: usize = 50_000;
const MAX_PATH_CHARS: usize = 200;

/// Call of a built-in tool, reduced to the arguments that name files.
#[derive(Clone, Debug)]
pub(crate) struct FileRequest {
    tool: FileTool,
    name: String,
    input: BTreeMap<&'static str, Value>,
    /// Directory that relative paths start from.
    cwd: Option<PathBuf>,
}

/// Kind of a file tool, with the argument that holds its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileTool {
    Write(&'static str),
    Read(&'static str),
    Search(SearchTool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchTool {
    Grep,
    Glob,
    List,
}

impl FileRequest {
    /// Reads the request from a tool call; `None` for tools that take no path.
    pub(crate) fn new(name: &str, input: &Value, cwd: Option<&str>) -> Option<Self> {
        let tool = FileTool::from_name(name)?;
        let keys: &[&str] = match tool {
            FileTool::Write(key) | FileTool::Read(key) => &[key],
            FileTool::Search(_) => &["path", "pattern"],
        };
        // Other arguments are dropped: the content to write may have megabytes.
        let given = |key: &&'static str| Some((*key, input.get(key)?.clone()));
        let input = keys.iter().filter_map(given).collect();
        Some(Self { tool, name: name.to_owned(), input, cwd: cwd.map(PathBuf::from) })
    }

    /// Returns `true` for tools that take a path.
    pub(crate) fn is_for(name: &str) -> bool {
        FileTool::from_name(name).is_some()
    }
}

impl FileTool {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "Write" | "Edit" | "MultiEdit" => Some(Self::Write("file_path")),
            "NotebookEdit" => Some(Self::Write("notebook_path")),
            "Read" => Some(Self::Read("file_path")),
            "NotebookRead" => Some(Self::Read("notebook_path")),
            "Grep" => Some(Self::Search(SearchTool::Grep)),
            "Glob" => Some(Self::Search(SearchTool::Glob)),
            "LS" => Some(Self::Search(SearchTool::List)),
            _ => None,
        }
    }
}

impl ControlFiles {
    /// Returns the reason of a denial of a call of a file tool, `None` if the call is allowed.
    ///
    /// Blocks on file I/O. Denies if the file cannot be determined.
    pub(crate) fn denial(&self, agent: &Agent, request: &FileRequest) -> Option<String> {
        let check = FileCheck { files: self, agent, request, homes: home_dirs(agent) };
        let denial = match request.tool {
            _ if agent.may_change_project_config => Ok(None),
            FileTool::Write(key) => check.write(key),
            FileTool::Read(key) => check.read(key),
            FileTool::Search(tool) => check.search(tool),
        };
        denial.unwrap_or_else(|why| {
            let (name, tool) = (&agent.name, &request.name);
            Some(format!("agent `{name}` may not use `{tool}` here: the file it means cannot be determined: {why}"))
        })
    }
}

/// Returns the directories that `~` may mean: the agent's process can have another `HOME` than
/// Adjutant.
fn home_dirs(agent: &Agent) -> Vec<PathBuf> {
    let of_agent = agent.env.get("HOME").and_then(|home| resolve_variables(home).ok());
    dirs::home_dir().into_iter().chain(of_agent.map(PathBuf::from)).collect()
}

/// Result of one check: the reason of a denial, `None` if allowed, or the error that prevented the
/// check.
type DenialReason = Result<Option<String>, String>;

struct FileCheck<'c> {
    files: &'c ControlFiles,
    agent: &'c Agent,
    request: &'c FileRequest,
    homes: Vec<PathBuf>,
}

impl FileCheck<'_> {
    fn write(&self, key: &str) -> DenialReason {
        let text = self.required_path(key)?;
        let current = self.files.current().map_err(|error| error.to_string())?;
        let found = self.control_file(text, &current)?;
        let (agent, path) = (&self.agent.name, quoted(text));
        Ok(found.map(|file| {
            let file = self.describe(file);
            format!(
                "agent `{agent}` may not change {path}: it is a control file ({file}); \
                 `may_change_project_config: true` in its agent.md permits this"
            )
        }))
    }

    fn read(&self, key: &str) -> DenialReason {
        self.read_path(self.required_path(key)?)
    }

    fn read_path(&self, text: &str) -> DenialReason {
        let unreadable: Vec<ControlFile> = self.files.unreadable_files().cloned().collect();
        let found = self.control_file(text, &unreadable)?;
        let (agent, path) = (&self.agent.name, quoted(text));
        Ok(found.map(|file| {
            let file = self.describe(file);
            format!("agent `{agent}` may not read {path}: the file belongs to Adjutant ({file})")
        }))
    }

    fn describe(&self, file: &ControlFile) -> String {
        format!("`{}`: {}", file.display_name(self.files.root()), file.content)
    }

    /// Returns the control file that a path leads to, over symbolic links, `..`, other spellings and hard
    /// links.
    fn control_file<'f>(
        &self,
        text: &str,
        files: &'f [ControlFile],
    ) -> Result<Option<&'f ControlFile>, String> {
        let paths = self.paths(text)?;
        let located: Vec<_> = files.iter().map(LocatedControlFile::new).collect();
        for path in &paths {
            let places = FileLocation::of_path(path).map_err(|error| error.to_string())?;
            let covers = |file: &&LocatedControlFile<'_>| places.iter().any(|at| file.covers(at));
            if let Some(covering) = located.iter().find(covers) {
                return Ok(Some(covering.file));
            }
        }
        for path in &paths {
            if let Some(file) = hard_linked_control_file(path, files)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Denies a search that starts in a file or directory of Adjutant.
    ///
    /// Above them a search is allowed if all tested versions of `claude` apply the `permissions.deny` rules to it;
    /// tests/it/control_files.rs checks that.
    fn search(&self, tool: SearchTool) -> DenialReason {
        let start = match self.request.input.get("path") {
            None | Some(Value::Null) => "",
            Some(Value::String(path)) => path.as_str(),
            Some(_) => return Err("`path` is no text".to_owned()),
        };
        let pattern = match tool {
            SearchTool::Glob => self.required_path("pattern")?,
            SearchTool::Grep | SearchTool::List => "",
        };
        let search = FileSearch::new(tool, start, pattern);
        for from in self.paths(search.start)? {
            let looked_into = normalize(&from.join(&search.directory));
            let named = search.name.map(|name| looked_into.join(name));
            for path in named.iter().chain([&looked_into]) {
                if let denied @ Some(_) = self.read_path(&path.to_string_lossy())? {
                    return Ok(denied);
                }
            }
            if self.reaches_unreadable(&looked_into)? && !self.rules_apply_to(&search, &from) {
                let (agent, dir) = (&self.agent.name, quoted(&looked_into.to_string_lossy()));
                return Ok(Some(format!(
                    "agent `{agent}` may not search {dir} with this call: it holds files of Adjutant that `claude` would not leave out; \
                     search the working directory without `path`, or directories that hold none of them"
                )));
            }
        }
        Ok(None)
    }

    fn reaches_unreadable(&self, dir: &Path) -> Result<bool, String> {
        let places = FileLocation::of_path(dir).map_err(|error| error.to_string())?;
        let reaches =
            |file: &LocatedControlFile<'_>| places.iter().any(|place| file.is_below(place));
        Ok(self.files.unreadable_files().map(LocatedControlFile::new).any(|file| reaches(&file)))
    }

    /// Returns `true` if every tested version of `claude` omits from this search the files in
    /// `permissions.deny`.
    ///
    /// Claude Code 2.1.197 turns the rules into globs of ripgrep, which are relative to the working directory: they do
    /// not apply to a search that starts above it or at a symbolic link, nor to `Glob` in any other directory. 2.1.325
    /// checks every result.
    fn rules_apply_to(&self, search: &FileSearch<'_>, from: &Path) -> bool {
        let Some(cwd) = self.request.cwd.as_deref() else { return false };
        let is_real = |path: &Path| real_path(path).is_ok_and(|real| real == path);
        let from = normalize(from);
        let is_covered = match search.tool {
            SearchTool::Grep => from.starts_with(cwd),
            SearchTool::Glob => from == cwd && !search.has_parent,
            SearchTool::List => false,
        };
        let directory = normalize(&from.join(&search.directory));
        is_covered && is_real(cwd) && is_real(&directory) && self.rules_hold_below(cwd)
    }

    /// Returns `true` if the rules name every file that agents may not read and work as globs: no path
    /// below the working directory has special characters.
    fn rules_hold_below(&self, cwd: &Path) -> bool {
        let special = ['\\', '*', '?', '[', ']', '{', '}', '!', '#'];
        self.files.unreadable_files().all(|file| {
            let real = real_path(&file.path).unwrap_or_else(|_| file.path.clone());
            let is_plain = match real.strip_prefix(cwd) {
                Ok(below) => below.to_str().is_some_and(|text| !text.contains(special)),
                Err(_) => true,
            };
            is_plain && self.files.deny_reads_at(&real)
        })
    }

    fn required_path(&self, key: &str) -> Result<&str, String> {
        match self.request.input.get(key) {
            Some(Value::String(path)) if !trimmed(path).is_empty() => Ok(path),
            Some(Value::String(_)) | None => Err(format!("`{key}` is missing")),
            Some(_) => Err(format!("`{key}` is no text")),
        }
    }

    /// Returns the absolute paths that a text may mean: as written, and as Claude Code reads it (trimmed,
    /// `~` expanded).
    ///
    /// An empty text is the working directory.
    fn paths(&self, text: &str) -> Result<Vec<PathBuf>, String> {
        if text.contains('\0') {
            return Err("it has a NUL character".to_owned());
        }
        let mut paths = Vec::new();
        for text in [text, trimmed(text)] {
            let below_home =
                text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
            if let Some(below) = below_home {
                if self.homes.is_empty() {
                    return Err("there is no home directory".to_owned());
                }
                let below = below.trim_start_matches('/');
                paths.extend(self.homes.iter().map(|home| home.join(below)));
            }
            match &self.request.cwd {
                _ if Path::new(text).is_absolute() => paths.push(PathBuf::from(text)),
                Some(cwd) if cwd.is_absolute() => paths.push(cwd.join(text)),
                _ if below_home.is_some() => {}
                _ => return Err("it is relative, and the working directory is unknown".to_owned()),
            }
        }
        paths.dedup();
        Ok(paths)
    }
}

/// A search, split into directory and name as Claude Code splits it.
struct FileSearch<'s> {
    tool: SearchTool,
    /// Directory that the tool starts from; empty for the working directory.
    start: &'s str,
    /// Directory below `start` that a glob pattern begins with.
    directory: PathBuf,
    /// Last name of a glob pattern without wildcards.
    name: Option<&'s str>,
    has_parent: bool,
}

impl<'s> FileSearch<'s> {
    fn new(tool: SearchTool, start: &'s str, pattern: &'s str) -> Self {
        let has_parent = pattern.split('/').any(|name| name == "..");
        let plain = pattern.split(['*', '?', '[', '{', '\\', '!']).next().unwrap_or(pattern);
        let is_plain = plain.len() == pattern.len() && tool == SearchTool::Glob;
        let (directory, last) = plain
            .rsplit_once('/')
            .map_or(("", plain), |(dir, last)| (if dir.is_empty() { "/" } else { dir }, last));
        let name = is_plain.then_some(last).filter(|name| !name.is_empty());
        // Claude Code starts an absolute pattern in its own directory, whatever `path` says.
        let is_absolute = Path::new(pattern).is_absolute();
        let (start, directory) = if is_absolute { (directory, "") } else { (start, directory) };
        Self { tool, start, directory: directory.into(), name, has_parent }
    }
}

/// Returns the control file that `path` is a hard link to.
fn hard_linked_control_file<'f>(
    path: &Path,
    files: &'f [ControlFile],
) -> Result<Option<&'f ControlFile>, String> {
    let Ok(real) = real_path(&normalize(path)) else { return Ok(None) };
    let Some(target) = hard_linked_id(&real) else { return Ok(None) };
    let mut scan = HardLinkScan { target, seen: 0 };
    for file in files {
        if scan.matches(file).map_err(|error| error.to_string())? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Returns the id of a file with more than one hard link.
fn hard_linked_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let is_link = |found: &Metadata| found.is_file() && found.nlink() > 1;
    fs::metadata(path).ok().filter(is_link).map(|found| FileId::of(&found))
}

/// Search for one inode in the control files, bounded over all of them.
struct HardLinkScan {
    target: FileId,
    seen: usize,
}

impl HardLinkScan {
    fn matches(&mut self, file: &ControlFile) -> io::Result<bool> {
        match (&file.pattern, file.kind) {
            (None, ControlFileKind::File) => {
                Ok(fs::metadata(&file.path).is_ok_and(|found| FileId::of(&found) == self.target))
            }
            (None, ControlFileKind::Dir | ControlFileKind::ConfigDir) => {
                self.search(&file.path, "*", true)
            }
            // Not compared: they are in every repository on the disk. Those of the project's own have entries.
            (None, ControlFileKind::GitDir | ControlFileKind::GitRepositories) => Ok(false),
            (Some(pattern), _) => match pattern.split_once('/') {
                None => self.search(&file.path, pattern, false),
                // Manifests are listed one by one in `ControlFiles::current`.
                Some(_) => Ok(false),
            },
        }
    }

    fn search(&mut self, dir: &Path, names: &str, deep: bool) -> io::Result<bool> {
        let Ok(entries) = fs::read_dir(dir) else { return Ok(false) };
        let names = Pattern::new(names);
        for entry in entries {
            let entry = entry?;
            self.seen += 1;
            if self.seen > MAX_LINK_COMPARISONS {
                return Err(io::Error::other(
                    "it is a hard link, and the control files are too many to compare",
                ));
            }
            let Ok(found) = entry.metadata() else { continue };
            let fits = names.matches(&entry.file_name().to_string_lossy());
            if found.is_file() && fits && FileId::of(&found) == self.target {
                return Ok(true);
            }
            if deep && found.is_dir() && self.search(&entry.path(), "*", true)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Trims as JavaScript's `trim` does, which also removes U+FEFF.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

fn quoted(text: &str) -> String {
    format!("`{}`", one_line(&shorten(text, MAX_PATH_CHARS)))
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
