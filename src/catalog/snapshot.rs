//! Immutable snapshot of all agents, with constant-time lookup by name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::extensions::Extension;
use super::load;
use crate::catalog::model::{Agent, AgentOrigin, Orchestration};
use crate::config::Settings;
use crate::store::FileDependencies;

/// An agent of the catalog, valid or not.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// Name of the agent's directory.
    pub name: String,
    pub origin: AgentOrigin,
    /// Path of `agent.md`.
    pub file: PathBuf,
    pub state: AgentState,
    /// All findings, in file order.
    pub diagnostics: Arc<[Diagnostic]>,
    pub(crate) dependencies: FileDependencies,
}

/// Validity of an agent.
#[derive(Clone, Debug)]
pub enum AgentState {
    Valid(Arc<Agent>),
    /// The diagnostics contain at least one error.
    Invalid,
}

impl CatalogEntry {
    /// Returns the agent if it is valid.
    pub fn agent(&self) -> Option<&Arc<Agent>> {
        match &self.state {
            AgentState::Valid(agent) => Some(agent),
            AgentState::Invalid => None,
        }
    }

    /// Returns the first error as one line.
    pub fn reason(&self) -> Option<String> {
        match self.state {
            AgentState::Valid(_) => None,
            AgentState::Invalid => self.errors().next().map(ToString::to_string),
        }
    }

    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error())
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| !diagnostic.is_error())
    }
}

/// All agents, extensions and defaults at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) entries: Vec<Arc<CatalogEntry>>,
    pub(crate) by_name: HashMap<String, usize>,
    pub(crate) common: Arc<SharedDefaults>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) extensions: Vec<Extension>,
}

/// Content of `defaults.yaml`, shared by all agents.
#[derive(Debug)]
pub(crate) struct SharedDefaults {
    /// Values of keys that an agent file leaves out.
    pub(crate) template: Agent,
    pub(crate) orchestration: Orchestration,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) dependencies: FileDependencies,
}

impl SharedDefaults {
    /// True if both have the same content and findings.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        self.template == other.template
            && self.orchestration == other.orchestration
            && self.diagnostics == other.diagnostics
    }

    pub(crate) fn error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|diagnostic| diagnostic.is_error())
    }
}

impl Snapshot {
    /// Reads all agents from disk.
    pub fn load(settings: &Settings) -> Self {
        load::load_snapshot(settings, None)
    }

    /// Returns the agent of this name, valid or not.
    pub fn get(&self, name: &str) -> Option<&Arc<CatalogEntry>> {
        self.by_name.get(name).and_then(|index| self.entries.get(*index))
    }

    /// Returns all agents, sorted by name.
    pub fn entries(&self) -> &[Arc<CatalogEntry>] {
        &self.entries
    }

    /// Returns the limits of the orchestrator.
    ///
    /// The built-in limits while `defaults.yaml` has errors; no agent is valid then.
    pub fn orchestration(&self) -> &Orchestration {
        &self.common.orchestration
    }

    pub fn defaults_diagnostics(&self) -> &[Diagnostic] {
        &self.common.diagnostics
    }

    /// Returns the extensions, sorted by name.
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// Findings about the `agents/` directory and about extensions.
    pub fn folder_diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    pub(crate) fn new(
        mut entries: Vec<Arc<CatalogEntry>>,
        common: Arc<SharedDefaults>,
        diagnostics: Vec<Diagnostic>,
        extensions: Vec<Extension>,
    ) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name =
            entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        Self { entries, by_name, common, diagnostics, extensions }
    }
}
