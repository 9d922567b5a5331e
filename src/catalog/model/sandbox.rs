//! Sandbox that an agent file asks for.

use serde::Serialize;

/// A sandbox as written; `None` in its place means no sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SandboxSettings {
    pub backend: SandboxBackend,
    /// Folders as written: absolute, `~/…`, or relative to the working folder.
    pub write: Vec<String>,
    pub read: Vec<String>,
    pub hide: Vec<String>,
}

/// Program that makes the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    /// Bubblewrap: the only one so far.
    #[default]
    Auto,
    Bwrap,
}

impl SandboxSettings {
    /// `sandbox: read-only`.
    pub fn read_only() -> Self {
        Self::default()
    }

    /// `sandbox: workspace`.
    pub fn workspace() -> Self {
        Self { write: vec![".".to_owned()], ..Self::default() }
    }
}
