//! All agents at one moment: immutable, whole, found by name in constant time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::defaults::{Defaults, Orchestration};
use super::diagnostic::Diagnostic;
use super::extensions::Extension;
use super::load;
use super::model::{Agent, Origin};
use super::stamp::Stamps;
use crate::config::Settings;

/// One agent of the catalog, sound or broken.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its folder's name.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its `agent.md`.
    pub file: PathBuf,
    /// Whether it can be run.
    pub state: State,
    /// Everything found about it, in the order of the file.
    pub diagnostics: Arc<[Diagnostic]>,
    pub(super) stamps: Stamps,
}

/// Whether an agent can be run.
#[derive(Clone, Debug)]
pub enum State {
    /// It can, and this is what its file means.
    Sound(Arc<Agent>),
    /// It cannot; its diagnostics say why.
    Broken,
}

impl Entry {
    /// The agent, if it can be run.
    pub fn agent(&self) -> Option<&Arc<Agent>> {
        match &self.state {
            State::Sound(agent) => Some(agent),
            State::Broken => None,
        }
    }

    /// The first thing that makes it unusable, in one line.
    pub fn reason(&self) -> Option<String> {
        match self.state {
            State::Sound(_) => None,
            State::Broken => self.errors().next().map(ToString::to_string),
        }
    }

    /// What makes it unusable.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error())
    }

    /// What may not be as its author meant.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| !diagnostic.is_error())
    }
}

/// The whole catalog at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) entries: Vec<Arc<Entry>>,
    pub(super) by_name: HashMap<String, usize>,
    pub(super) common: Arc<Common>,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) extensions: Vec<Extension>,
}

/// What `defaults.yaml` said when it was read.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) defaults: Defaults,
    pub(super) orchestration: Orchestration,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) stamps: Stamps,
}

impl Common {
    /// Whether two readings of the file came to the same.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.defaults == other.defaults
            && self.orchestration == other.orchestration
            && self.diagnostics == other.diagnostics
    }

    /// The first error of the file, if it has any.
    pub(super) fn error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|diagnostic| diagnostic.is_error())
    }
}

impl Snapshot {
    /// Reads the project's agents as they are now.
    pub fn load(settings: &Settings) -> Self {
        load::load(settings, None)
    }

    /// The agent of this name, sound or broken.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name).and_then(|index| self.entries.get(*index))
    }

    /// All agents, by name.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// What agents get where their own files do not say.
    pub fn defaults(&self) -> &Defaults {
        &self.common.defaults
    }

    /// The orchestrator's own limits.
    ///
    /// They are the built-in ones while `defaults.yaml` is broken; no agent can be run then.
    pub fn orchestration(&self) -> &Orchestration {
        &self.common.orchestration
    }

    /// What was found in `defaults.yaml`.
    pub fn defaults_diagnostics(&self) -> &[Diagnostic] {
        &self.common.diagnostics
    }

    /// The extensions, by name.
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// What was found about the `agents/` folder itself, and in extensions.
    pub fn folder_diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    pub(super) fn new(
        mut entries: Vec<Arc<Entry>>,
        common: Arc<Common>,
        diagnostics: Vec<Diagnostic>,
        extensions: Vec<Extension>,
    ) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name =
            entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        Self { entries, by_name, common, diagnostics, extensions }
    }
}
