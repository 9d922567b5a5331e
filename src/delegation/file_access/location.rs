//! File locations: comparison that recognises two paths to the same file.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use super::control_files::{ControlFile, ControlFileKind};
use crate::store::{normalize, real_path};
use crate::util::Pattern;

/// Identity of a file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// Location of a file: its folded names from the root on, and the ids of those that exist.
///
/// Names are compared case-insensitively, because the file system may do so. Ids recognise bind mounts, hard links, and
/// every spelling that a file system takes for the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileLocation {
    names: Vec<String>,
    /// Id of the path after each name, starting with the root; empty for a location derived from text only.
    ids: Vec<Option<FileId>>,
}

impl FileLocation {
    /// Returns the locations that a path may mean: as text, and with symbolic links resolved, before and
    /// after `..` is removed.
    ///
    /// # Errors
    ///
    /// If symbolic links cannot be resolved.
    pub(crate) fn of_path(path: &Path) -> io::Result<Vec<Self>> {
        let text = normalize(path);
        let (real, direct) = (real_path(&text)?, real_path(path)?);
        let mut places = vec![Self::of_text(&text), Self::of_real(&real), Self::of_real(&direct)];
        places.dedup();
        Ok(places)
    }

    fn of_text(path: &Path) -> Self {
        Self { names: folded(path), ids: Vec::new() }
    }

    fn of_real(path: &Path) -> Self {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        let id = |path: &&Path| fs::metadata(path).ok().map(|found| FileId::of(&found));
        Self { names: folded(path), ids: above.iter().map(id).collect() }
    }

    /// Returns the id of the file itself, if it exists.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.ids.last().copied().flatten()
    }
}

/// A control file with its current locations.
#[derive(Debug)]
pub(crate) struct LocatedControlFile<'f> {
    pub(crate) file: &'f ControlFile,
    text: FileLocation,
    real: Option<FileLocation>,
}

impl<'f> LocatedControlFile<'f> {
    pub(crate) fn new(file: &'f ControlFile) -> Self {
        // If we cannot resolve our own links, no agent of the same user can either.
        let real = real_path(&file.path).ok();
        let real = real.map(|real| FileLocation::of_real(&real));
        Self { file, text: FileLocation::of_text(&file.path), real }
    }

    /// Returns `true` if a location is the control file or below it.
    pub(crate) fn covers(&self, place: &FileLocation) -> bool {
        self.names_below(place).any(|names| self.covers_names(names))
    }

    /// Returns the names of a location relative to the entry's path, for every way in which it is below the
    /// entry.
    fn names_below<'p>(&'p self, place: &'p FileLocation) -> impl Iterator<Item = &'p [String]> {
        let own = [Some(&self.text), self.real.as_ref()].into_iter().flatten();
        let by_name = own.filter_map(|own| place.names.strip_prefix(own.names.as_slice()));
        let id = self.real.as_ref().and_then(FileLocation::id);
        let is_own = move |at: &Option<FileId>| id.is_some() && *at == id;
        let at = place.ids.iter().position(is_own);
        by_name.chain(at.and_then(|at| place.names.get(at..)))
    }

    fn covers_names(&self, names: &[String]) -> bool {
        let has_more = match self.file.kind {
            ControlFileKind::File => false,
            ControlFileKind::Dir | ControlFileKind::ConfigDir => true,
            ControlFileKind::GitDir => return runs_git_commands(names),
            ControlFileKind::GitRepositories => return is_git_control_file(names),
        };
        let patterns = self.file.pattern.as_deref().map(str::to_lowercase).unwrap_or_default();
        let patterns: Vec<&str> = patterns.split('/').filter(|name| !name.is_empty()).collect();
        let fits =
            patterns.iter().zip(names).all(|(pattern, name)| Pattern::new(pattern).matches(name));
        fits && (names.len() == patterns.len() || (has_more && names.len() > patterns.len()))
    }

    /// Returns `true` if the control file is at or below a location: a search that starts there may find
    /// it.
    pub(crate) fn is_below(&self, place: &FileLocation) -> bool {
        let own = [Some(&self.text), self.real.as_ref()].into_iter().flatten();
        let above = place.id();
        let mut ids = self.real.iter().flat_map(|real| real.ids.iter());
        let by_name = |own: &FileLocation| own.names.starts_with(&place.names);
        own.into_iter().any(by_name) || (above.is_some() && ids.any(|id| *id == above))
    }
}

/// True for the link of a worktree or submodule to its git directory, and for what runs commands in a `.git`.
fn is_git_control_file(names: &[String]) -> bool {
    let below = names.iter().position(|name| name == ".git").and_then(|at| names.get(at + 1..));
    below.is_some_and(|below| {
        names.last().is_some_and(|name| name == ".git") || runs_git_commands(below)
    })
}

/// True for a hook or a configuration, by the names below a git directory; `commondir` names the directory of both.
fn runs_git_commands(names: &[String]) -> bool {
    let is_config =
        |name: &String| matches!(name.as_str(), "config" | "config.worktree" | "commondir");
    names.iter().any(|name| name == "hooks") || names.last().is_some_and(is_config)
}

/// The names in a path, in a form in which names compare equal if any file system takes them for the same.
fn folded(path: &Path) -> Vec<String> {
    let mut names = path.components().map(Component::as_os_str);
    // Skip the root.
    names.next();
    names.map(fold).collect()
}

/// Folds case and removes the characters that HFS+ ignores, trailing dots and trailing spaces.
fn fold(name: &OsStr) -> String {
    let text = name.to_string_lossy();
    let seen = text.chars().filter(|c| !is_ignored(*c));
    // Upper case first: it maps the long s and the Kelvin sign to `S` and `K`.
    let text: String = seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let short = text.trim_end_matches(['.', ' ']);
    if short.is_empty() { text } else { short.to_owned() }
}

fn is_ignored(c: char) -> bool {
    matches!(
        c,
        '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(".MCP.json" => ".mcp.json")]
    #[test_case("agent\u{17f}" => "agents"; "long s")]
    #[test_case("to\u{212a}ens.json" => "tokens.json"; "Kelvin sign")]
    #[test_case(".g\u{200c}it" => ".git"; "ignored by HFS")]
    #[test_case(".claude. ." => ".claude")]
    #[test_case("..." => "...")]
    fn names_that_may_be_one_file_are_folded_to_one_text(name: &str) -> String {
        fold(OsStr::new(name))
    }
}
