//! Effective settings of an agent, each with its source.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::load::{display_path, read_text};
use super::problem::Problems;
use crate::catalog::model::Agent;
use crate::catalog::parse::{Key, SourcePositions, agent_keys, front_matter};
use crate::config::Settings;
use crate::store::FileDependencies;

/// A setting with its effective value and source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EffectiveSetting {
    /// Key in `agent.md`.
    pub key: &'static str,
    /// Effective value; variables as written.
    pub value: Value,
    pub source: SettingSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub(crate) enum SettingSource {
    /// Set in a file.
    File {
        /// Relative to the project root.
        file: PathBuf,
        /// Line of the key.
        line: usize,
    },
    /// Built-in default.
    BuiltIn,
}

/// Returns all settings of an agent, in the order of `docs/agent-file.md`.
pub(crate) fn effective_settings(settings: &Settings, agent: &Agent) -> Vec<EffectiveSetting> {
    let own = KeyLines::of_agent(settings, agent);
    let common = KeyLines::of_defaults(settings);
    let mut agent = agent.clone();
    let setting = |key: &Key<Agent>| EffectiveSetting {
        key: key.name,
        value: key.show(&mut agent),
        source: own
            .source(key.name)
            .or_else(|| common.source(key.name))
            .unwrap_or(SettingSource::BuiltIn),
    };
    agent_keys().map(setting).collect()
}

/// Returns the line of a rule such as `policy.tools.exclude[1]`, or of its nearest ancestor.
pub(crate) fn rule_line(settings: &Settings, agent: &Agent, path: &str) -> Option<u32> {
    let positions = KeyLines::of_agent(settings, agent).positions;
    let top = path.split(['.', '[']).next().unwrap_or(path);
    positions.line_of(top)?;
    u32::try_from(positions.value_position(path).line).ok()
}

/// Lines of the top-level keys of one file.
struct KeyLines {
    file: PathBuf,
    positions: SourcePositions,
}

impl KeyLines {
    fn of_agent(settings: &Settings, agent: &Agent) -> Self {
        Self::read(settings, &agent.file, |text| {
            let parts = front_matter::split(text, &Problems::default());
            parts.map(|parts| SourcePositions::parse(parts.yaml, parts.first_line))
        })
    }

    fn of_defaults(settings: &Settings) -> Self {
        Self::read(settings, &settings.defaults_file(), |text| {
            Some(SourcePositions::parse(text, 1))
        })
    }

    fn read(
        settings: &Settings,
        path: &Path,
        parse: impl FnOnce(&str) -> Option<SourcePositions>,
    ) -> Self {
        let file = display_path(&settings.root, path);
        let text = read_text(&settings.root, path, &file, &mut FileDependencies::default());
        let positions = parse(&text.ok().flatten().unwrap_or_default()).unwrap_or_default();
        Self { file, positions }
    }

    fn source(&self, key: &str) -> Option<SettingSource> {
        let line = self.positions.line_of(key)?;
        Some(SettingSource::File { file: self.file.clone(), line })
    }
}
