//! Root of the project and path of `claude`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, io};

use super::env_vars;

/// Settings of the process, resolved once at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Absolute, without symlinks.
    pub root: PathBuf,
    /// Configured path; `None` for the one on `PATH`.
    pub claude: Option<PathBuf>,
}

impl Settings {
    /// Resolves the root: `root` (from `--root`), `ADJUTANT_ROOT`, `CLAUDE_PROJECT_DIR`, current directory.
    pub fn resolve(root: Option<&Path>) -> Result<Self, SettingsError> {
        let root = root
            .map(Path::to_path_buf)
            .or_else(|| non_empty_variable(env_vars::ADJUTANT_ROOT).map(PathBuf::from))
            .or_else(|| non_empty_variable(env_vars::CLAUDE_PROJECT_DIR).map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("."));
        let absolute = root
            .canonicalize()
            .map_err(|source| SettingsError::Root { path: root.clone(), source })?;
        if !absolute.is_dir() {
            return Err(SettingsError::RootNotADirectory { path: root });
        }
        let claude = non_empty_variable(env_vars::ADJUTANT_CLAUDE).map(PathBuf::from);
        Ok(Self { root: absolute, claude })
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
}

/// Returns the value of a variable; an empty value counts as unset.
fn non_empty_variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
