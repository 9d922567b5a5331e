//! Where the project is and which `claude` it uses.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::env_vars;

/// What holds for the whole process, resolved once at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The project's root, absolute and without symlinks.
    pub root: PathBuf,
    /// The `claude` that was asked for by name, if any; else the one on the `PATH`.
    pub claude: Option<PathBuf>,
}

impl Settings {
    /// `root` comes from `--root`; then the environment; then the current folder.
    pub fn resolve(root: Option<&Path>) -> Result<Self, SettingsError> {
        let root = root
            .map(Path::to_path_buf)
            .or_else(|| variable(env_vars::ADJUTANT_ROOT).map(PathBuf::from))
            .or_else(|| variable(env_vars::CLAUDE_PROJECT_DIR).map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("."));
        let absolute = root
            .canonicalize()
            .map_err(|source| SettingsError::Root { path: root.clone(), source })?;
        if !absolute.is_dir() {
            return Err(SettingsError::RootIsNoFolder { path: root });
        }
        let claude = variable(env_vars::ADJUTANT_CLAUDE).map(PathBuf::from);
        Ok(Self { root: absolute, claude })
    }

    /// `agents/`: one folder per agent.
    pub fn agents_dir(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// `agents/defaults.yaml`.
    pub fn defaults_file(&self) -> PathBuf {
        self.agents_dir().join("defaults.yaml")
    }

    /// `extensions/`: bundles of agents and servers.
    pub fn extensions_dir(&self) -> PathBuf {
        self.root.join("extensions")
    }

    /// `data/`: sessions, events, audit; private.
    pub fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }
}

/// Why a project could not be found.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The folder cannot be reached.
    #[error("the project root `{}` cannot be opened", path.display())]
    Root {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("the project root `{}` is not a folder", path.display())]
    RootIsNoFolder {
        /// What was asked for.
        path: PathBuf,
    },
}

/// The variable, where empty means unset.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
