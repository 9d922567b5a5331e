//! Root of the project and path of `claude`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, io};

use super::{env_vars, find_project};

/// Settings of the process, resolved once at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Absolute, without symlinks.
    pub root: PathBuf,
    /// Configured path; `None` for the one on `PATH`.
    pub claude: Option<PathBuf>,
}

impl Settings {
    /// Resolves the root: `root` (from `--root`), `ADJUTANT_ROOT`, `CLAUDE_PROJECT_DIR`, or the nearest project above
    /// the current folder.
    pub fn resolve(root: Option<&Path>) -> Result<Self, SettingsError> {
        Self::resolve_with(root, find_project)
    }

    /// Like [`resolve`](Self::resolve), with the current folder if no project is found.
    pub(crate) fn resolve_or_current(root: Option<&Path>) -> Result<Self, SettingsError> {
        Self::resolve_with(root, |start| {
            Ok(find_project(start).unwrap_or_else(|_| start.to_owned()))
        })
    }

    fn resolve_with(
        root: Option<&Path>,
        find: impl Fn(&Path) -> Result<PathBuf, SettingsError>,
    ) -> Result<Self, SettingsError> {
        let named = root
            .map(Path::to_path_buf)
            .or_else(|| non_empty_variable(env_vars::ADJUTANT_ROOT).map(PathBuf::from))
            .or_else(|| non_empty_variable(env_vars::CLAUDE_PROJECT_DIR).map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| PathBuf::from("."));
        let absolute = path
            .canonicalize()
            .map_err(|source| SettingsError::Root { path: path.clone(), source })?;
        if !absolute.is_dir() {
            return Err(SettingsError::RootNotADirectory { path });
        }
        let root = if named.is_some() { absolute } else { find(&absolute)? };
        let claude = non_empty_variable(env_vars::ADJUTANT_CLAUDE).map(PathBuf::from);
        Ok(Self { root, claude })
    }

    /// Returns the path relative to the root, for the user; a path outside of the project stays as it is.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// `agents/`: one directory per agent.
    pub fn agents_dir(&self) -> PathBuf {
        self.root.join("agents")
    }

    pub fn defaults_file(&self) -> PathBuf {
        self.agents_dir().join("defaults.yaml")
    }

    /// `extensions/`: bundles of agents and servers.
    pub fn extensions_dir(&self) -> PathBuf {
        self.root.join("extensions")
    }

    /// `data/`: sessions, events, audit log; private.
    pub fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }
}

/// Reason why the project root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("the project root `{}` cannot be opened", path.display())]
    Root {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the project root `{}` is not a folder", path.display())]
    RootNotADirectory {
        /// As given, before it was resolved.
        path: PathBuf,
    },
    #[error(
        "`{}` is not in a project; run `adjutant init` to make it one, or name a project with `--root DIR`", start.display()
    )]
    NoProject { start: PathBuf },
    #[error(
        "the project `{}` belongs to another user, whose files would decide what is run; name it with `--root` if you \
         trust it", path.display()
    )]
    ForeignProject { path: PathBuf },
}

/// Returns the value of a variable; an empty value counts as unset.
fn non_empty_variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
